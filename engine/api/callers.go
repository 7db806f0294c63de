package api

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"gputop/engine"
)

const (
	callerFresh    = 30 * time.Second // how long an answer of NSS is used without asking again
	callerStale    = 15 * time.Minute // how long it serves when NSS does not answer
	callerNegative = 2 * time.Second  // how long "no such user" is believed
	maxLookups     = 16               // look-ups under way at once: a hung directory server must not eat threads
)

// Resolve finds a person and their groups by number. It may block.
type Resolve func(uid uint32) (engine.User, []uint32, error)

// LookupUser is Resolve through NSS (in a binary without cgo: through the files in /etc).
func LookupUser(uid uint32) (engine.User, []uint32, error) {
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return engine.User{}, nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return engine.User{}, nil, fmt.Errorf("group of %s: %w", u.Username, err)
	}
	ids, err := u.GroupIds()
	if err != nil {
		return engine.User{}, nil, fmt.Errorf("groups of %s: %w", u.Username, err)
	}
	groups := make([]uint32, 0, len(ids))
	for _, s := range ids {
		if g, err := strconv.ParseUint(s, 10, 32); err == nil {
			groups = append(groups, uint32(g))
		}
	}
	return engine.User{UID: uid, GID: uint32(gid), Name: u.Username}, groups, nil
}

// People knows who has which uid and which groups, through NSS with a cache and a time-out. One People serves a whole
// daemon, so that a directory server that hangs is met by a bounded number of questions.
type People struct{ cs *callers }

// NewPeople asks r (LookupUser when nil) and waits for it no longer than timeout (3 s when 0).
func NewPeople(r Resolve, timeout time.Duration) *People {
	if r == nil {
		r = LookupUser
	}
	if timeout == 0 {
		timeout = Limits{}.withDefaults().LookupTimeout
	}
	return &People{&callers{resolve: r, timeout: timeout, now: time.Now, known: map[uint32]*person{}}}
}

// Of is a person and their groups. The error is NSS's, or says that it does not answer: then nothing is known.
func (p *People) Of(uid uint32) (engine.User, []uint32, error) {
	who, err := p.cs.look(uid)
	return who.user, who.groups, err
}

// callers resolves uids with a cache and a time-out.
type callers struct {
	resolve Resolve
	timeout time.Duration
	subuid  *subIDs
	now     func() time.Time

	mu      sync.Mutex
	known   map[uint32]*person
	lookups int
}

type person struct {
	user   engine.User
	groups []uint32
	err    error
	asked  time.Time
	// pending is closed when the look-up under way ends.
	pending chan struct{}
}

var errNSS = errors.New("the user database (NSS) does not answer")

// find is who uid is. Unknown people and container users are refused.
func (cs *callers) find(uid uint32) (engine.User, []uint32, error) {
	if owner, err := cs.subuid.owner(uid); err != nil || owner != "" {
		if err != nil {
			return engine.User{}, nil, &Error{Code: CodeUnavailable, Message: err.Error()}
		}
		return engine.User{}, nil, &Error{Code: CodeForbidden,
			Message: fmt.Sprintf("uid %d is a container user of %s (a subordinate id); only real users of this machine may use the queue", uid, owner),
			Hint:    "run gputop outside the container"}
	}
	p, err := cs.look(uid)
	var unknown user.UnknownUserIdError
	switch {
	case errors.As(err, &unknown):
		return engine.User{}, nil, &Error{Code: CodeForbidden, Message: fmt.Sprintf("uid %d is no user of this machine", uid)}
	case err != nil:
		return engine.User{}, nil, &Error{Code: CodeUnavailable, Message: fmt.Sprintf("who is uid %d? %v", uid, err), Hint: "try again"}
	}
	return p.user, p.groups, nil
}

// look asks the cache, then NSS. An old answer serves while NSS is away.
func (cs *callers) look(uid uint32) (person, error) {
	cs.mu.Lock()
	p := cs.known[uid]
	now := cs.now()
	if p != nil && !p.asked.IsZero() {
		fresh := callerFresh
		if p.err != nil {
			fresh = callerNegative
		}
		if now.Sub(p.asked) < fresh {
			defer cs.mu.Unlock()
			return *p, p.err
		}
	}
	if p == nil {
		p = &person{}
		cs.known[uid] = p
	}
	if p.pending == nil {
		if cs.lookups >= maxLookups {
			defer cs.mu.Unlock()
			return cs.stale(p, now)
		}
		p.pending = make(chan struct{})
		cs.lookups++
		go cs.ask(uid, p)
	}
	pending := p.pending
	cs.mu.Unlock()

	t := time.NewTimer(cs.timeout)
	defer t.Stop()
	select {
	case <-pending:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return *p, p.err
	case <-t.C:
		cs.mu.Lock()
		defer cs.mu.Unlock()
		return cs.stale(p, now)
	}
}

func (cs *callers) stale(p *person, now time.Time) (person, error) {
	if !p.asked.IsZero() && p.err == nil && now.Sub(p.asked) < callerStale {
		return *p, nil
	}
	return person{}, errNSS
}

// ask does one look-up. It ends when NSS answers: a call into libc can't be taken back, so its number is bounded.
func (cs *callers) ask(uid uint32, p *person) {
	u, groups, err := cs.resolve(uid)
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var unknown user.UnknownUserIdError
	failed := err != nil && !errors.As(err, &unknown)
	if kept, _ := cs.stale(p, cs.now()); !failed || kept.user.Name == "" {
		p.user, p.groups, p.err, p.asked = u, groups, err, cs.now()
	}
	cs.lookups--
	close(p.pending)
	p.pending = nil
}

// subIDs knows the ranges of /etc/subuid, read again when the file changes.
type subIDs struct {
	path string

	mu     sync.Mutex
	mod    time.Time
	size   int64
	ranges []subRange
}

type subRange struct {
	owner        string
	start, count uint64
}

// owner is whose subordinate id uid is, or "". A missing file means that there are none.
func (s *subIDs) owner(uid uint32) (string, error) {
	st, err := os.Stat(s.path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("subordinate ids: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !st.ModTime().Equal(s.mod) || st.Size() != s.size {
		if s.ranges, err = readSubIDs(s.path); err != nil {
			return "", fmt.Errorf("subordinate ids: %w", err)
		}
		s.mod, s.size = st.ModTime(), st.Size()
	}
	for _, r := range s.ranges {
		if n := uint64(uid); n >= r.start && n-r.start < r.count {
			return r.owner, nil
		}
	}
	return "", nil
}

func readSubIDs(path string) (out []subRange, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		parts := strings.Split(strings.TrimSpace(sc.Text()), ":")
		if len(parts) != 3 {
			continue
		}
		start, err1 := strconv.ParseUint(parts[1], 10, 32)
		count, err2 := strconv.ParseUint(parts[2], 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		// "root:1000:1" lets root's system containers map one real user: that user stays a person.
		if root := parts[0] == "root" || parts[0] == "0"; root && count == 1 {
			continue
		}
		out = append(out, subRange{parts[0], start, count})
	}
	return out, sc.Err()
}
