package daemon

import (
	"strings"
	"sync"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// accounts is the user database of a box.
type accounts struct {
	mu  sync.Mutex
	now engine.User
	err error
}

func (a *accounts) set(u engine.User, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now, a.err = u, err
}

func (a *accounts) of(uint32) (engine.User, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now, a.err
}

// departingBox has a job of me() that runs and one that waits.
func departingBox(t *testing.T) (b *box, db *accounts, running, waiting engine.JobID) {
	db = &accounts{now: me()}
	b = newBoxWith(t, 1, func(o *Options) { o.Account, o.AccountsEvery = db.of, time.Millisecond })
	running = b.submit(spec(engine.Medium, "run"))
	b.untilState(running, engine.Running)
	return b, db, running, b.waiting()
}

// A uid that was given to somebody else: nothing of its old owner runs on, or ever runs, as the new one.
func TestReusedUID(t *testing.T) {
	b, db, running, waiting := departingBox(t)
	db.set(engine.User{UID: me().UID, Name: "newcomer"}, nil)
	for _, id := range []engine.JobID{running, waiting} {
		if j := b.untilState(id, engine.Cancelled); !strings.Contains(j.Message, "its uid") || !strings.Contains(j.Message, "newcomer") {
			t.Errorf("job %s: %q", id, j.Message)
		}
	}
	newcomer := api.Caller{User: engine.User{UID: me().UID, Name: "newcomer"}}
	if det, err := b.d.Show(t.Context(), newcomer, waiting); err != nil || det.Spec != nil || det.Mine || det.Command != "" {
		t.Errorf("the newcomer sees %+v, %v", det, err)
	}
}

// The newcomer's agent is linked; the old owner's job must not go to it, account database or not.
func TestAgentOfAReusedUID(t *testing.T) {
	b := newBox(t, 1)
	b.untilState(b.submit(light("exit", "0")), engine.Succeeded) // the agent is linked
	ctx := t.Context()
	if _, err := b.d.agents.get(ctx, engine.User{UID: me().UID, Name: "earlier"}); err == nil || !strings.Contains(err.Error(), "its uid") {
		t.Errorf("the agent of a reused uid is given: %v", err)
	}
}

// A directory server that knows nobody for a while removes nobody.
func TestAccountThatIsAway(t *testing.T) {
	b, db, running, waiting := departingBox(t)
	db.set(engine.User{}, ErrNoAccount)
	looked := func() (at time.Time) {
		_ = b.d.do(t.Context(), func() {
			for _, at = range b.d.gone.since {
			}
		})
		return at
	}
	for looked().IsZero() {
	}
	for _, id := range []engine.JobID{running, waiting} {
		if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State.Final() {
			t.Errorf("job %s is %s, %v", id, d.State, err)
		}
	}
	// As if it had been so for an hour.
	_ = b.d.do(t.Context(), func() {
		for u := range b.d.gone.since {
			b.d.gone.since[u] = time.Now().Add(-departedAfter)
		}
	})
	for _, id := range []engine.JobID{running, waiting} {
		if j := b.untilState(id, engine.Cancelled); !strings.Contains(j.Message, "was removed") {
			t.Errorf("job %s: %q", id, j.Message)
		}
	}
}
