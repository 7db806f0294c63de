package daemon

import (
	"context"

	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

// Images lists what the caller's Podman holds, asked through the caller's own agent. Root has none.
func (d *Daemon) Images(ctx context.Context, c api.Caller) (api.Images, error) {
	out := api.Images{Images: []agentrpc.StoredImage{}, Ready: d.policy().ReadyImages, Archives: d.policy().ImageArchives}
	if c.UID == 0 {
		return out, nil
	}
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	l, err := d.agents.get(ctx, c.User)
	var list agentrpc.ImageList
	if err == nil {
		err = l.call(ctx, agentrpc.MethodImages, nil, &list)
	}
	if err != nil {
		out.Error = err.Error()
		return out, nil
	}
	out.Images = list.Images[:min(len(list.Images), agentrpc.MaxImages)]
	return out, nil
}
