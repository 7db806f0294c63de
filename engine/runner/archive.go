package runner

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containers/podman/v5/pkg/bindings/images"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// archiveOf is the archive of an image, if there is one that this user may read.
func archiveOf(dir string, names []string) (string, bool) {
	for _, full := range names {
		file := engine.ImageArchive(dir, full)
		if file == "" {
			continue
		}
		if f, err := os.Open(file); err == nil {
			f.Close()
			return file, true
		}
	}
	return "", false
}

// load brings an image from an archive into the user's store. An archive that holds another image than its path says is
// the admin's mistake, and is no image of that name.
func (a *Agent) load(ctx context.Context, p agentrpc.PrepareArgs, file string) (agentrpc.Image, error) {
	a.progress(p.Job, "loading "+file)
	f, err := os.Open(file)
	if err != nil {
		return agentrpc.Image{}, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: err.Error()}
	}
	defer f.Close()
	var loaded []string
	err = a.podman.call(ctx, "load "+file, func(ctx context.Context) error {
		r, err := images.Load(ctx, f)
		if err != nil {
			return err
		}
		loaded = r.Names
		return nil
	})
	if err != nil {
		return agentrpc.Image{}, err
	}
	img, err := a.lookUpImage(ctx, p.Image)
	if err == nil && !img.Found {
		err = &agentrpc.Error{Code: agentrpc.CodeInvalid, Message: fmt.Sprintf("%s holds %q, and not the image %s that it is named after: tell the admin of this machine", file, loaded, p.Image)}
	}
	return img, err
}

// listImages is what the user's store holds, one entry a name; what has no name cannot be asked for.
func (a *Agent) listImages(ctx context.Context) (agentrpc.ImageList, error) {
	out := agentrpc.ImageList{Images: []agentrpc.StoredImage{}}
	err := a.podman.call(ctx, "list images", func(ctx context.Context) error {
		list, err := images.List(ctx, nil)
		if err != nil {
			return err
		}
		for _, i := range list {
			for _, name := range i.RepoTags {
				if len(out.Images) == agentrpc.MaxImages {
					return nil
				}
				out.Images = append(out.Images, agentrpc.StoredImage{Name: name, ID: i.ID, Digest: i.Digest, Size: engine.Bytes(i.Size), Created: time.Unix(i.Created, 0)})
			}
		}
		return nil
	})
	return out, err
}
