package api

import (
	"context"
	"fmt"
	"net/http"

	"gputop/engine"
)

// Notices are what the caller was told, newest first.
type Notices struct {
	Notices []engine.Notice `json:"notices"`
	// Read is the id up to which the caller has read; 0 says nothing of it.
	Read int64 `json:"read,omitempty"`
}

// Unread counts the notices that the caller has not read.
func (n Notices) Unread() (unread int) {
	for i := range n.Notices {
		if n.Notices[i].ID > n.Read {
			unread++
		}
	}
	return unread
}

// ReadRequest says up to which id the caller has read notices.
type ReadRequest struct {
	Through int64 `json:"through"`
}

// DefaultNotices and MaxNotices are how many notices one answer has, and may have.
const (
	DefaultNotices = 50
	MaxNotices     = 200
)

// Noticer is the part of the backend that tells callers what became of their own jobs. Admins too read their own alone.
type Noticer interface {
	Notices(ctx context.Context, c Caller, limit int) (Notices, error)
	// ReadNotices notes up to which id the caller has read.
	ReadNotices(ctx context.Context, c Caller, through int64) error
}

func (s *Server) notices() {
	s.mux.Handle("GET /v1/notices", s.value(func(r *http.Request, c Caller) (any, error) {
		q, err := query(r, "limit")
		if err != nil {
			return nil, err
		}
		limit, err := number(q, "limit", DefaultNotices, MaxNotices)
		if err != nil {
			return nil, err
		}
		return s.b.Notices(r.Context(), c, limit)
	}))
	s.mux.Handle("POST /v1/notices/read", s.value(func(r *http.Request, c Caller) (any, error) {
		var req ReadRequest
		if err := s.body(r, &req); err != nil {
			return nil, err
		}
		if req.Through < 0 {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("through %d: want the id of a notice", req.Through)}
		}
		return struct{}{}, s.b.ReadNotices(r.Context(), c, req.Through)
	}))
}

// Notices reads what the caller was told, newest first.
func (c *Client) Notices(ctx context.Context, limit int) (Notices, error) {
	return call[Notices](ctx, c, http.MethodGet, fmt.Sprintf("/v1/notices?limit=%d", limit), nil)
}

// ReadNotices notes up to which id the caller has read.
func (c *Client) ReadNotices(ctx context.Context, through int64) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/notices/read", ReadRequest{Through: through})
	return err
}
