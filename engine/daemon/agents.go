package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

const (
	// helloTimeout bounds the first frame of an agent.
	helloTimeout = 30 * time.Second
	// agentPatience is how long an agent that was started may take to connect before another is started.
	agentPatience = 15 * time.Second
	// callTimeout bounds a quick call to an agent, pullTimeout one that may pull an image.
	callTimeout = 60 * time.Second
	pullTimeout = 2 * time.Hour
)

// link is a connected agent.
type link struct {
	user    engine.User
	conn    *agentrpc.Conn
	runtime atomic.Pointer[agentrpc.RuntimeInfo]
	process agentProcess
	version string
}

// info is what the agent last said of its Podman.
func (l *link) info() agentrpc.RuntimeInfo {
	if r := l.runtime.Load(); r != nil {
		return *r
	}
	return agentrpc.RuntimeInfo{}
}

// probe has the agent look at its Podman again.
func (l *link) probe(ctx context.Context) error {
	var r agentrpc.RuntimeInfo
	if err := l.call(ctx, agentrpc.MethodProbe, nil, &r); err != nil {
		return err
	}
	l.runtime.Store(&r)
	return nil
}

func (l *link) call(ctx context.Context, m agentrpc.Method, params, out any) error {
	limit := callTimeout
	if m == agentrpc.MethodPrepare {
		limit = pullTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := l.conn.Call(ctx, m, params, out)
	var refused *agentrpc.Error
	if errors.As(err, &refused) {
		refused.Message = said(refused.Message)
	}
	return err
}

// maxSaid is the longest sentence of an agent's that is kept, in bytes; maxNotes how many of a container's notes are.
const (
	maxSaid  = 2000
	maxNotes = 16
)

// said is a sentence of an agent's, cut to what is worth keeping: what an agent sends ends in the database.
func said(s string) string {
	if len(s) <= maxSaid {
		return s
	}
	return strings.ToValidUTF8(s[:maxSaid], "") + "…"
}

// agents keeps one link per user. The newest connection of a user wins: an agent that hangs is replaced.
type agents struct {
	d  *Daemon
	mu sync.Mutex
	// links by uid; changed is closed and replaced whenever one comes or goes.
	links   map[uint32]*link
	changed chan struct{}
	started map[uint32]time.Time
	problem map[uint32]error
	// last is the process of each user's last agent, and asked why one was last asked to make way.
	last  map[uint32]agentProcess
	asked map[uint32]string
	// every and limit are pingEvery and pingLimit but in tests.
	every, limit time.Duration
	// exits routes exit notes by container name.
	exits map[string]chan struct{}
}

func newAgents(d *Daemon) *agents {
	return &agents{d: d, links: map[uint32]*link{}, changed: make(chan struct{}), started: map[uint32]time.Time{},
		problem: map[uint32]error{}, exits: map[string]chan struct{}{}, last: map[uint32]agentProcess{}, asked: map[uint32]string{},
		every: pingEvery, limit: pingLimit}
}

// get returns the user's link, starting an agent when there is none, and waits for it until ctx ends.
func (a *agents) get(ctx context.Context, u engine.User) (*link, error) {
	for {
		a.mu.Lock()
		l, changed := a.links[u.UID], a.changed
		if l == nil {
			a.startLocked(u)
		}
		problem := a.problem[u.UID]
		a.mu.Unlock()
		if l != nil && !l.user.Is(u) {
			return nil, &otherAccount{was: u, now: l.user.Name}
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-time.After(agentPatience):
		case <-ctx.Done():
			if problem != nil {
				return nil, fmt.Errorf("the agent of %s does not start: %w", u.Name, problem)
			}
			return nil, fmt.Errorf("the agent of %s does not answer: %w", u.Name, ctx.Err())
		}
	}
}

func (a *agents) startLocked(u engine.User) {
	now := a.d.o.System.Now()
	if last, ok := a.started[u.UID]; ok && now.Sub(last) < agentPatience {
		return
	}
	a.started[u.UID] = now
	// A living agent comes back within seconds of losing its link. One that does not, hangs, and holds the lock.
	old := a.last[u.UID]
	hangs := !old.gone.IsZero() && now.Sub(old.gone) >= agentPatience
	// Starting a process may take a while (a user manager, a name service): never under the lock.
	a.d.goWork(func(context.Context) {
		if hangs {
			a.d.endAgent(old)
		}
		err := a.d.o.StartAgent(u)
		a.mu.Lock()
		a.problem[u.UID] = err
		a.mu.Unlock()
		if err != nil {
			a.d.log.Error("agent not started", "user", u.Name, "err", err)
		}
	})
}

// reap lets an agent that never connected be started anew.
func (a *agents) reap() {
	now := a.d.o.System.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, t := range a.started {
		if now.Sub(t) >= agentPatience {
			delete(a.started, uid)
		}
	}
}

func (a *agents) set(l *link) {
	a.mu.Lock()
	old := a.links[l.user.UID]
	a.links[l.user.UID] = l
	a.wakeLocked()
	a.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
}

func (a *agents) unset(l *link) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.links[l.user.UID] == l {
		delete(a.links, l.user.UID)
		delete(a.started, l.user.UID)
		a.wakeLocked()
	}
}

// left notes that the link which a process opened has ended.
func (a *agents) left(p agentProcess) {
	if p.pid == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if l := a.links[p.uid]; l == nil || l.process.pid == p.pid {
		p.gone = a.d.o.System.Now()
		a.last[p.uid] = p
	}
}

func (a *agents) wakeLocked() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// all are the links there are now.
func (a *agents) all() []*link {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Collect(maps.Values(a.links))
}

func (a *agents) closeAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.links {
		l.conn.Close()
	}
}

// watchExit registers for exit notes of a container; the returned function ends that.
func (a *agents) watchExit(container string) (<-chan struct{}, func()) {
	ch := make(chan struct{}, 1)
	a.mu.Lock()
	a.exits[container] = ch
	a.mu.Unlock()
	return ch, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.exits, container)
	}
}

// ServeAgent runs one agent's connection. Whose agent it is comes from the socket, not from the agent.
func (d *Daemon) ServeAgent(ctx context.Context, c api.Caller, nc net.Conn) {
	defer nc.Close()
	l := &link{user: c.User, process: d.processOf(c)}
	defer d.agents.left(l.process)
	hello := make(chan agentrpc.Hello, 1)
	l.conn = agentrpc.NewConn(nc, nil, nil, func(m agentrpc.Method, raw agentrpc.RawObject) {
		d.agentNote(c, m, raw, hello)
	})
	served := make(chan error, 1)
	go func() { served <- l.conn.Serve(ctx) }()
	defer func() {
		l.conn.Close()
		<-served
	}()
	select {
	case h := <-hello:
		if h.Protocol != agentrpc.Protocol {
			d.log.Error("agent speaks another protocol", "user", c.Name, "theirs", h.Protocol, "ours", agentrpc.Protocol)
			return
		}
		l.runtime.Store(&h.Runtime)
		l.version = h.Version
	case <-time.After(helloTimeout):
		d.log.Error("agent said nothing", "user", c.Name)
		return
	case <-l.conn.Done():
		return
	case <-ctx.Done():
		return
	}
	d.log.Info("agent connected", "user", c.Name, "podman", l.info().PodmanVersion)
	d.agents.set(l)
	d.goWork(func(ctx context.Context) { d.tidy(ctx, l) })
	d.attend(ctx, l)
	d.agents.unset(l)
	d.log.Info("agent gone", "user", c.Name)
}

func (d *Daemon) agentNote(c api.Caller, m agentrpc.Method, raw agentrpc.RawObject, hello chan<- agentrpc.Hello) {
	switch m {
	case agentrpc.NoteHello:
		var h agentrpc.Hello
		if json.Unmarshal(raw, &h) == nil {
			select {
			case hello <- h:
			default:
			}
		}
	case agentrpc.NoteExited:
		var ct agentrpc.Container
		if json.Unmarshal(raw, &ct) == nil {
			d.agents.exited(ct.Name)
		}
	case agentrpc.NoteProgress:
		var p agentrpc.Progress
		if json.Unmarshal(raw, &p) == nil {
			d.progress(c.UID, p)
		}
	}
}

// exited wakes the attempt that waits for a container. The attempt asks its owner's agent by itself before it believes
// anything, so that a note may be forged without harm.
func (a *agents) exited(container string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ch := a.exits[container]; ch != nil {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
