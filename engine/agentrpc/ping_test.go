package agentrpc

import (
	"context"
	"testing"
)

// A ping says whether the process answers, also while every place for calls is taken.
func TestPingIsAnsweredBesideFullSlots(t *testing.T) {
	release := make(chan struct{})
	busy := make(chan struct{}, 2*maxConcurrent)
	c, _ := pair(t, func(context.Context, Method, RawObject) (any, error) {
		busy <- struct{}{}
		<-release
		return nil, nil
	}, nil)
	done := make(chan error)
	for range maxConcurrent + 3 {
		go func() { done <- c.Call(context.Background(), MethodReadLog, nil, nil) }()
	}
	for range maxConcurrent {
		<-busy
	}
	for range 3 {
		if err := c.Call(t.Context(), MethodPing, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(busy) != 0 {
		t.Errorf("%d calls are served beyond the %d places", len(busy), maxConcurrent)
	}
	close(release)
	for range maxConcurrent + 3 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
