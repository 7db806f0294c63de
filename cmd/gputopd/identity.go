package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os/user"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/daemon"
)

const (
	// nameFresh is how long a name is used without asking again, and nameWait how long somebody who wants one waits: the
	// daemon's loop does, and a directory server that hangs must not stop it.
	nameFresh = 10 * time.Minute
	nameWait  = 100 * time.Millisecond
	// groupWait bounds the one look-up of the admin group.
	groupWait = 10 * time.Second
)

// names remembers who a uid is, for display. A uid that is not known, or not yet, is shown as its number.
type names struct {
	people *api.People
	now    func() time.Time
	wait   time.Duration

	mu    sync.Mutex
	known map[uint32]*knownName
}

type knownName struct {
	name  string
	asked time.Time
	// pending is closed when the look-up under way ends; nil when none is.
	pending chan struct{}
}

func newNames(p *api.People) *names {
	return &names{people: p, now: time.Now, wait: nameWait, known: map[uint32]*knownName{}}
}

func (n *names) of(uid uint32) string {
	n.mu.Lock()
	k := n.known[uid]
	if k == nil {
		k = &knownName{name: strconv.FormatUint(uint64(uid), 10)}
		n.known[uid] = k
	}
	first := k.asked.IsZero()
	if !first && (k.pending != nil || n.now().Sub(k.asked) < nameFresh) {
		defer n.mu.Unlock()
		return k.name
	}
	k.asked, k.pending = n.now(), make(chan struct{})
	pending := k.pending
	go n.ask(uid, k) // ends when NSS answers or within the time-out of people
	n.mu.Unlock()
	t := time.NewTimer(n.wait)
	defer t.Stop()
	select {
	case <-pending:
	case <-t.C:
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return k.name
}

func (n *names) ask(uid uint32, k *knownName) {
	u, _, err := n.people.Of(uid)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && u.Name != "" {
		k.name = u.Name
	}
	close(k.pending)
	k.pending = nil
}

// groupsOf are a user's groups now.
func groupsOf(p *api.People) func(uid uint32) ([]uint32, error) {
	return func(uid uint32) ([]uint32, error) {
		_, groups, err := p.Of(uid)
		if err != nil {
			return nil, fmt.Errorf("groups of uid %d: %w", uid, err)
		}
		return groups, nil
	}
}

// accountOf is who has a uid now.
func accountOf(p *api.People) func(uid uint32) (engine.User, error) {
	return func(uid uint32) (engine.User, error) {
		u, _, err := p.Of(uid)
		var unknown user.UnknownUserIdError
		if errors.As(err, &unknown) {
			return u, daemon.ErrNoAccount
		}
		return u, err
	}
}

// adminGroup is the group whose members are admins in shared mode, where it exists.
type adminGroup struct {
	shared bool
	log    *slog.Logger
	now    atomic.Pointer[[]uint32]
}

// gids are the groups of admins now.
func (a *adminGroup) gids() []uint32 {
	if p := a.now.Load(); p != nil {
		return *p
	}
	return nil
}

func (a *adminGroup) set(name string) {
	if !a.shared {
		return
	}
	gid, err := groupID(name)
	if err != nil {
		a.log.Info("no admin group, only root is an admin", "group", name, "why", err)
		a.now.Store(nil)
		return
	}
	a.now.Store(&[]uint32{gid})
}

// groupID is the number of a group.
func groupID(name string) (uint32, error) {
	g, err := lookupGroup(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err
}

// userID is the number of a user.
func userID(name string) (uint32, error) {
	return within(func() (uint32, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return 0, err
		}
		n, err := strconv.ParseUint(u.Uid, 10, 32)
		return uint32(n), err
	})
}

// lookupGroup asks NSS, and does not wait for one that hangs.
func lookupGroup(name string) (*user.Group, error) {
	return within(func() (*user.Group, error) { return user.LookupGroup(name) })
}

// within asks NSS, and does not wait for one that hangs.
func within[T any](ask func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := ask()
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		return a.v, a.err
	case <-time.After(groupWait):
		var none T
		return none, fmt.Errorf("the user database (NSS) does not answer within %v", groupWait)
	}
}
