package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

const (
	// pingEvery is how often a connected agent is asked for a sign of life, pingLimit how long it may take, and pingMisses
	// how many signs may stay away before it is replaced.
	pingEvery  = 20 * time.Second
	pingLimit  = 15 * time.Second
	pingMisses = 2
	// endTimeout bounds asking an agent to make way.
	endTimeout = 10 * time.Second
)

// agentProcess is the process that opened an agent's link, as the kernel named it. The zero value is none.
type agentProcess struct {
	uid   uint32
	pid   int
	start uint64
	// gone is when its link ended; zero while it is linked.
	gone time.Time
}

// processOf is who opened a link, if it is still there and its user's own.
func (d *Daemon) processOf(c api.Caller) agentProcess {
	if c.PID <= 0 || c.PID == os.Getpid() {
		return agentProcess{}
	}
	p, ok := d.o.System.Process(c.PID)
	if !ok || p.UID != c.UID {
		return agentProcess{}
	}
	return agentProcess{uid: c.UID, pid: c.PID, start: p.Start}
}

// attend looks after a link until it ends. An agent that is connected and answers nothing, as one that was stopped, holds
// its lock and keeps every other away: it is ended, and the next call starts another. Containers survive that.
func (d *Daemon) attend(ctx context.Context, l *link) {
	tick := time.NewTicker(d.agents.every)
	defer tick.Stop()
	d.makeWay(ctx, l)
	for misses := 0; ; {
		select {
		case <-l.conn.Done():
			return
		case <-tick.C:
		}
		if d.ping(ctx, l) {
			misses = 0
			d.makeWay(ctx, l)
			continue
		}
		if misses++; misses < pingMisses || ctx.Err() != nil {
			continue
		}
		d.log.Warn("agent is connected and answers nothing: it is replaced", "user", l.user.Name, "pid", l.process.pid)
		d.endAgent(l.process)
		l.conn.Close()
		return
	}
}

// ping says whether the agent gave a sign of life. A refusal is one.
func (d *Daemon) ping(ctx context.Context, l *link) bool {
	ctx, cancel := context.WithTimeout(ctx, d.agents.limit)
	defer cancel()
	err := l.conn.Call(ctx, agentrpc.MethodPing, nil, nil)
	var refused *agentrpc.Error
	return err == nil || errors.As(err, &refused)
}

// endAgent kills an agent's process, if that still is the one that opened the link, and its user's.
func (d *Daemon) endAgent(p agentProcess) {
	if p.pid == 0 || d.o.System.Kill == nil {
		return
	}
	if now, ok := d.o.System.Process(p.pid); !ok || now.Start != p.start || now.UID != p.uid {
		return
	}
	if err := d.o.System.Kill(p.pid, p.start); err != nil {
		d.log.Error("agent not ended", "pid", p.pid, "err", err)
	}
}

// makeWay asks an agent that is out of date to end when it has nothing to do; the next call starts another. It is asked
// once for each cause: where a new one is as old in the same way, as under a user's manager, asking again mends nothing.
func (d *Daemon) makeWay(ctx context.Context, l *link) {
	cause := ""
	if l.version != d.o.Version {
		cause = "it is of version " + l.version
	}
	if now, old := d.oldGroups(l); old {
		cause = fmt.Sprint("its user now has the groups ", now)
	}
	if cause == "" || !d.agents.askOnce(l.user.UID, cause) {
		return
	}
	d.log.Info("agent is asked to make way for a new one", "user", l.user.Name, "why", cause)
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	if err := l.conn.Call(ctx, agentrpc.MethodEnd, nil, nil); err != nil && !errors.Is(err, agentrpc.ErrClosed) {
		d.log.Warn("agent does not make way", "user", l.user.Name, "err", err)
	}
}

// askOnce says whether the user's agents have not been asked to end for this cause yet.
func (a *agents) askOnce(uid uint32, cause string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked[uid] == cause {
		return false
	}
	a.asked[uid] = cause
	return true
}

// oldGroups says whether the agent's process has other groups than its user has now, and which those are. A personal
// daemon's agents have the daemon's, which nobody can change while it runs.
func (d *Daemon) oldGroups(l *link) (now []uint32, old bool) {
	if d.o.Mode != Shared || d.o.Groups == nil || d.o.System.Groups == nil || l.process.pid == 0 {
		return nil, false
	}
	should, err := d.o.Groups(l.user.UID)
	if err != nil {
		return nil, false // unknown is no change
	}
	has, ok := d.o.System.Groups(l.process.pid)
	if !ok {
		return nil, false
	}
	now = groupSet(should, l.user)
	return now, !slices.Equal(groupSet(has, l.user), now)
}

// groupSet is what a process may do by groups: sorted, each once, the primary one included.
func groupSet(groups []uint32, u engine.User) []uint32 {
	all := append(slices.Clone(groups), u.GID)
	slices.Sort(all)
	return slices.Compact(all)
}
