package tui

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

var _ Client = (*api.Client)(nil)

// flaky fails, and sometimes sends a snapshot before it does.
type flaky struct {
	*tuitest.Client
	sends []bool
}

func (f *flaky) Watch(_ context.Context, send func(api.WatchEvent) error) error {
	ok := f.sends[0]
	f.sends = f.sends[1:]
	if ok {
		_ = send(api.WatchEvent{Snapshot: &api.Snapshot{}})
		return nil
	}
	return errors.New("refused")
}

func TestWatchPausesLongerAndBeginsAnew(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var pauses []time.Duration
	var got []string
	c := &flaky{sends: []bool{false, false, false, false, false, false, true, false}}
	watch(ctx, c, func(m tea.Msg) {
		switch m := m.(type) {
		case eventArrivedMsg:
			got = append(got, "snapshot")
		case linkLostMsg:
			got = append(got, m.err.Error())
		}
	}, func(_ context.Context, d time.Duration) bool {
		pauses = append(pauses, d)
		if len(pauses) == 8 {
			cancel()
		}
		return ctx.Err() == nil
	})
	if g, want := fmt.Sprint(pauses), "[250ms 500ms 1s 2s 4s 5s 250ms 500ms]"; g != want {
		t.Errorf("pauses %s, want %s", g, want)
	}
	if g, want := fmt.Sprint(got), "[refused refused refused refused refused refused snapshot the daemon closed the connection refused]"; g != want {
		t.Errorf("messages %s, want %s", g, want)
	}
}
