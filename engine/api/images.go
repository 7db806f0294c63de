package api

import (
	"context"
	"net/http"

	"gputop/engine/agentrpc"
)

// Images are those that the caller's own Podman holds, and what an admin keeps ready.
type Images struct {
	Images []agentrpc.StoredImage `json:"images"`
	// Ready are full names that an admin keeps for everybody, as archives below the directory Archives; empty for none.
	Ready    []string `json:"ready,omitempty"`
	Archives string   `json:"archives,omitempty"`
	// Error says why the caller's images are not known.
	Error string `json:"error,omitempty"`
}

// Imager is the part of the backend that is about images. It starts the caller's agent.
type Imager interface {
	Images(ctx context.Context, c Caller) (Images, error)
}

// Images lists the images that the caller's jobs find without a pull.
func (c *Client) Images(ctx context.Context) (Images, error) {
	return call[Images](ctx, c, http.MethodGet, "/v1/images", nil)
}
