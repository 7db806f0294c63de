package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gputop/engine"
)

// ErrNoAccount says that this machine has no account with a uid.
var ErrNoAccount = errors.New("no such account")

const (
	// departedLook is how often the accounts of people with live jobs are looked at.
	departedLook = time.Minute
	// departedAfter is how long an account has to be unknown until it counts as removed: a directory server that is being
	// repaired knows nobody, too. A uid that has another name is somebody else's at once.
	departedAfter = time.Hour
)

// departed looks after accounts that were removed: their jobs are cancelled, and nobody who gets the uid gets them.
type departed struct {
	next time.Time
	busy bool
	// since is from when an account was found unknown.
	since map[engine.User]time.Time
}

// lookForDeparted asks, outside the loop, whether the owners of live jobs still are there.
func (d *Daemon) lookForDeparted() {
	now := d.o.System.Now()
	if d.o.Account == nil || d.gone.busy || now.Before(d.gone.next) {
		return
	}
	d.gone.busy, d.gone.next = true, now.Add(d.o.accountsEvery())
	owners := map[engine.User]error{}
	for u := range d.state.owners {
		owners[engine.User{UID: u.UID, Name: u.Name}] = nil
	}
	d.goWork(func(ctx context.Context) {
		for u := range owners {
			owners[u] = sameAccount(d.o.Account, u)
		}
		_ = d.do(ctx, func() {
			d.gone.busy = false
			d.depart(owners)
		})
	})
}

// otherAccount is a uid that has become somebody else's.
type otherAccount struct {
	was engine.User
	now string
}

func (e *otherAccount) Error() string {
	return fmt.Sprintf("the account %s was removed, and its uid %d is now that of %s", e.was.Name, e.was.UID, e.now)
}

// sameAccount says whether a uid still is that person's.
func sameAccount(account func(uint32) (engine.User, error), u engine.User) error {
	now, err := account(u.UID)
	if err != nil {
		return err
	}
	if !now.Is(u) {
		return &otherAccount{was: u, now: now.Name}
	}
	return nil
}

// depart cancels the jobs of those who are gone for certain.
func (d *Daemon) depart(owners map[engine.User]error) {
	now := d.o.System.Now()
	since := map[engine.User]time.Time{}
	for u, err := range owners {
		var other *otherAccount
		switch {
		case errors.As(err, &other):
			d.cancelAll(u, err.Error())
		case errors.Is(err, ErrNoAccount):
			if since[u] = d.gone.since[u]; since[u].IsZero() {
				since[u] = now
				d.log.Warn("an account with live jobs is not known; if it stays so its jobs are cancelled", "user", u.Name, "uid", u.UID, "after", departedAfter)
			}
			if now.Sub(since[u]) >= departedAfter {
				d.cancelAll(u, fmt.Sprintf("the account %s was removed", u.Name))
			}
		case err != nil:
			since[u] = d.gone.since[u] // no answer: nothing is learnt
			if since[u].IsZero() {
				delete(since, u)
			}
		}
	}
	d.gone.since = since
}

// cancelAll ends all that somebody has in the queue and running.
func (d *Daemon) cancelAll(u engine.User, why string) {
	text := "cancelled: " + why
	for id, e := range d.state.jobs {
		if !e.job.Owner.Is(u) || e.job.State.Final() || e.job.StopReason == engine.StopCancelled {
			continue
		}
		d.log.Warn("job cancelled", "job", id, "owner", u.Name, "why", why)
		if err := d.endJob(e, text); err != nil {
			d.log.Error("job not cancelled, trying again", "job", id, "err", err)
		}
	}
}
