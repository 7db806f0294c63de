package daemon

import (
	"context"
	"sync"
	"time"
)

const (
	// submitsAtOnce is how many submits of one user are worked on at once: who sends thousands is not to hold up the others.
	submitsAtOnce = 2
	// tooManyPause is how long a refusal for too many jobs takes: a program that does not listen is slowed down by it.
	tooManyPause = 250 * time.Millisecond
)

// turns lets a bounded number of one user's requests in at a time. Its zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[uint32]*turn
}

type turn struct {
	slots chan struct{}
	users int
}

// take waits for the user's turn; release gives it back.
func (t *turns) take(ctx context.Context, uid uint32) (release func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[uint32]*turn{}
	}
	one := t.of[uid]
	if one == nil {
		one = &turn{slots: make(chan struct{}, submitsAtOnce)}
		t.of[uid] = one
	}
	one.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if one.users--; one.users == 0 {
			delete(t.of, uid)
		}
	}
	select {
	case one.slots <- struct{}{}:
		return func() { <-one.slots; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
