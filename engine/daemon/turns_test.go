package daemon

import (
	"context"
	"errors"
	"sync"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

func TestTurns(t *testing.T) {
	var ts turns
	ctx, cancel := context.WithCancel(t.Context())
	var give []func()
	for range submitsAtOnce {
		r, err := ts.take(ctx, 7)
		if err != nil {
			t.Fatal(err)
		}
		give = append(give, r)
	}
	if r, err := ts.take(ctx, 8); err != nil {
		t.Errorf("another user waits: %v", err)
	} else {
		r()
	}
	cancel()
	if _, err := ts.take(ctx, 7); !errors.Is(err, context.Canceled) {
		t.Errorf("one more is let in: %v", err)
	}
	for _, r := range give {
		r()
	}
	if len(ts.of) != 0 {
		t.Errorf("%d users are remembered", len(ts.of))
	}
}

// The most that may wait is never passed, however many submits come at once.
func TestCapHoldsAgainstManyAtOnce(t *testing.T) {
	b := fullBox(t)
	pol := *b.d.policy()
	pol.MaxPending = 5
	b.d.SetPolicy(pol)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			s := spec(engine.Medium, "run")
			s.Workdir = "/tmp"
			if _, err := b.d.Submit(context.Background(), b.caller(), api.SubmitRequest{Spec: s}); err != nil && codeOf(err) != api.CodeTooMany {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	jobs, err := b.d.List(t.Context(), b.caller(), false, 0)
	n := 0
	for _, j := range jobs {
		if j.State.Queued() {
			n++
		}
	}
	if err != nil || n != 5 {
		t.Errorf("%d wait, want 5; %v", n, err)
	}
}
