//go:build tuidemo

// Command tuidemo shows the terminal interface with made-up machines and jobs, to look at it. Build it with -tags tuidemo.
// It talks to no daemon.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/tui"
	"gputop/tui/internal/tuitest"
)

func main() {
	boxes := map[string]api.Snapshot{"two": tuitest.TwoCards(), "eight": tuitest.Many(8, 0, true), "mig": tuitest.Many(2, 3, true),
		"full": tuitest.Many(8, 7, true), "odd": tuitest.Odd(), "none": tuitest.NoCards(), "crowd": tuitest.Crowd(10000)}
	name := "two"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	s, ok := boxes[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "tuidemo: want one of two, eight, mig, full, odd, none, crowd")
		os.Exit(2)
	}
	begin := time.Now()
	now := func() time.Time { return tuitest.Time.Add(time.Since(begin)) }
	c := tuitest.New(s)
	c.Now = now
	for i := range 60 {
		c.Output += fmt.Sprintf("epoch %2d  loss %.4f  acc %.3f  2.31 it/s\n", i, 2.3/float64(i+1), 1-1/float64(i+2))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		play(ctx, c, s.GPUs, now)
	}()
	err := tui.Run(ctx, tui.Options{Client: c, Version: "demo", Now: now, Draft: func(f draft.Fields) (engine.Spec, error) {
		return draft.Build(f, draft.Defaults{}, draft.Caller{Workdir: "/tmp"})
	}})
	cancel()
	<-done
	if err != nil {
		fmt.Fprintln(os.Stderr, "tuidemo:", err)
		os.Exit(1)
	}
}

// play lets the numbers wander.
func play(ctx context.Context, c *tuitest.Client, g api.GPUs, now func() time.Time) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		g.Time = now()
		g.GPUs = append([]api.GPU(nil), g.GPUs...)
		for i := range g.GPUs {
			if v := g.GPUs[i].SM; v != nil {
				n := max(0, min(1, *v+rand.Float64()*0.1-0.05))
				g.GPUs[i].SM = &n
			}
		}
		sample := g
		c.Send(ctx, api.WatchEvent{GPUs: &sample})
	}
}
