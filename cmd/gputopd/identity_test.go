package main

import (
	"errors"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func TestNamesDoNotWaitForNSS(t *testing.T) {
	release, asked := make(chan struct{}), make(chan uint32, 10)
	people := api.NewPeople(func(uid uint32) (engine.User, []uint32, error) {
		asked <- uid
		if uid == 7 {
			<-release
		}
		if uid == 9 {
			return engine.User{}, nil, errors.New("ldap down")
		}
		return engine.User{UID: uid, Name: "carol"}, nil, nil
	}, time.Minute)
	now := time.Unix(0, 0)
	n := newNames(people)
	n.now, n.wait = func() time.Time { return now.Add(time.Hour) }, time.Minute
	if got := n.of(8); got != "carol" {
		t.Errorf("a name known at once is %q", got)
	}
	if got := n.of(9); got != "9" {
		t.Errorf("an unknown uid is %q", got)
	}
	n.wait = time.Millisecond
	for range 3 {
		if got := n.of(7); got != "7" {
			t.Errorf("while NSS hangs uid 7 is %q", got)
		}
	}
	n.mu.Lock()
	pending := n.known[7].pending
	n.mu.Unlock()
	close(release)
	<-pending
	if got := n.of(7); got != "carol" {
		t.Errorf("after NSS answered uid 7 is %q", got)
	}
	if len(asked) != 3 {
		t.Errorf("NSS was asked %d times, want once for each uid", len(asked))
	}
}
