package tui

import (
	"context"
	"errors"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine/api"
)

// Pauses between attempts to reach the daemon.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 5 * time.Second
)

// eventArrivedMsg carries one event of the watch stream.
type eventArrivedMsg struct{ event api.WatchEvent }

// linkLostMsg says that the stream ended; another attempt follows after the pause.
type linkLostMsg struct{ err error }

// watch follows the daemon until ctx ends, and begins again with a new snapshot whenever the stream breaks.
func watch(ctx context.Context, c Client, send func(tea.Msg), wait func(context.Context, time.Duration) bool) {
	pause := firstPause
	for ctx.Err() == nil {
		err := c.Watch(ctx, func(e api.WatchEvent) error {
			pause = firstPause
			send(eventArrivedMsg{event: e})
			return ctx.Err()
		})
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the daemon closed the connection")
		}
		send(linkLostMsg{err: err})
		if !wait(ctx, pause) {
			return
		}
		pause = min(2*pause, lastPause)
	}
}

// wait pauses; false when ctx ended first.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
