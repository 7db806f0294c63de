package daemon

import (
	"context"
	"errors"
	"testing"
)

func TestAliveNeedsTheLoopToTurn(t *testing.T) {
	b := newBox(t, 0)
	if err := b.d.Alive(t.Context()); err != nil {
		t.Fatal(err)
	}
	hangs, let := make(chan struct{}), make(chan struct{})
	go func() { _ = b.d.do(context.WithoutCancel(t.Context()), func() { close(hangs); <-let }) }()
	<-hangs
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- b.d.Alive(ctx) }()
	cancel()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("the loop hangs, and Alive says %v", err)
	}
	close(let)
	if err := b.d.Alive(t.Context()); err != nil {
		t.Errorf("the loop goes on, and Alive says %v", err)
	}
	b.stop()
	if err := b.d.Alive(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("after the end: %v", err)
	}
}
