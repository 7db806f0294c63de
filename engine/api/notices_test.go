package api

import (
	"errors"
	"testing"

	"gputop/engine"
)

func TestNoticesRoundTrip(t *testing.T) {
	f := &fake{}
	c := start(t, f, ServerOptions{})
	n, err := c.Notices(ctx, 7)
	if err != nil || len(n.Notices) != 1 || n.Notices[0].ID != 7 || n.Notices[0].Kind != engine.NoticeEnded || n.Unread() != 1 {
		t.Errorf("notices: %+v, %v", n, err)
	}
	if err := c.ReadNotices(ctx, 9); err != nil || f.stop != "read through 9" {
		t.Errorf("read: %v, %s", err, f.stop)
	}
	_, many := c.Notices(ctx, MaxNotices+1)
	for what, err := range map[string]error{"too many": many, "read nothing": c.ReadNotices(ctx, -1)} {
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid {
			t.Errorf("%s: %v", what, err)
		}
	}
}
