package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/notice"
	"gputop/engine/store"
)

// Notices are stored with the change they tell of, then published, then sent by the Deliverer, which takes them from the
// store: what a crash comes between is sent by the next daemon.

// Deliverer sends stored notices by mail or to an admin's program, in its own time.
type Deliverer interface {
	// Run works until ctx is done.
	Run(ctx context.Context)
	// Wake says that there is something new; it never blocks.
	Wake()
	// Ways are those that are configured.
	Ways() store.Ways
}

const (
	// waitLook is how often the longest waits are looked at, and waitsAtOnce how many of them at most.
	waitLook    = 30 * time.Second
	waitsAtOnce = 4096
	// waitsEach is how many long waits a user is told one by one; more of them at a time are told in one notice.
	waitsEach = 5
	// hostLook is how often the host memory of running jobs is read.
	hostLook = 30 * time.Second
)

// teller is what the loop remembers for notices: who waits, and how running attempts use what they hold.
type teller struct {
	waits notice.Queue
	// next is when the waits are looked at again.
	next time.Time
	uses map[engine.AttemptID]*notice.Use
}

// newTeller takes up what an earlier daemon left. Who waits since told or longer has been told.
func newTeller(s *state, told time.Time) *teller {
	t := &teller{uses: map[engine.AttemptID]*notice.Use{}}
	for _, e := range s.jobs {
		switch j := &e.job; {
		case j.State.Queued():
			since := j.Queued
			if a := s.newest(j); a != nil && a.Ended.After(since) {
				since = a.Ended
			}
			if since.After(told) {
				t.waits.Add(notice.Wait{Job: j.ID, Since: since})
			}
		case j.State == engine.Running:
			t.uses[engine.AttemptID{Job: j.ID, Number: j.Attempts}] = &notice.Use{}
		}
	}
	return t
}

// follow keeps up with a change of a job that has become the state.
func (t *teller) follow(was engine.JobState, j *engine.Job, now time.Time) {
	if j.State.Queued() && !was.Queued() {
		t.waits.Add(notice.Wait{Job: j.ID, Since: now})
	}
	id := engine.AttemptID{Job: j.ID, Number: j.Attempts}
	switch {
	case j.State != engine.Running:
		delete(t.uses, id)
	case was != engine.Running:
		t.uses[id] = &notice.Use{}
	}
}

// forStore is a notice with what becomes of it: what its owner wants to see and have mailed, and what is configured.
func (d *Daemon) forStore(j *engine.Job, n engine.Notice) *store.Notice {
	out := &store.Notice{Notice: n, Hidden: !j.Spec.Tells(n.Kind)}
	if d.o.Deliver == nil {
		return out
	}
	out.Due = d.o.Deliver.Ways()
	if !j.Spec.Mails(n.Kind) {
		out.Due &^= store.ByMail
	}
	return out
}

// changed is what a step of a job tells.
func (d *Daemon) changed(e *entry, c *change) []*store.Notice {
	var out []*store.Notice
	if n, ok := notice.Changed(&e.job, &c.job, c.now); ok {
		out = append(out, d.forStore(&c.job, n))
	}
	if el := c.job.Element; el != nil && !e.job.State.Final() && c.job.State.Final() && d.unended[el.Array] == 1 {
		out = append(out, d.forStore(&c.job, notice.ArrayEnded(&c.job, c.now)))
	}
	return out
}

func kept(list []*store.Notice) (out []store.Change) {
	for _, n := range list {
		out = append(out, store.AddNotice(n))
	}
	return out
}

// publishNotices tells of notices that are on disk.
func (d *Daemon) publishNotices(list []*store.Notice) {
	due := false
	for _, n := range list {
		if n.Again {
			continue
		}
		due = due || n.Due != 0
		if !n.Hidden {
			d.hub.notice(n.Notice)
		}
	}
	if due {
		d.o.Deliver.Wake()
	}
}

// tellNow stores and publishes notices that go with no change of a job; false when the disk refused.
func (d *Daemon) tellNow(list []*store.Notice, with ...store.Change) bool {
	if len(list) == 0 {
		return true
	}
	if err := d.store.Apply(d.runCtx, append(kept(list), with...)...); err != nil {
		if !errors.Is(err, context.Canceled) {
			d.log.Error("notices not kept", "notices", len(list), "err", err)
		}
		return false
	}
	d.publishNotices(list)
	return true
}

// tellWaits tells those that have waited for long. It costs what has become due, not what waits.
func (d *Daemon) tellWaits() {
	after, now := d.policy().Notices.WaitAfter, d.o.System.Now()
	if after <= 0 || now.Before(d.tell.next) {
		return
	}
	d.tell.next = now.Add(min(waitLook, after/2))
	due := d.tell.waits.Take(now.Add(-after), waitsAtOnce)
	if len(due) == 0 {
		return
	}
	byOwner := map[engine.User][]notice.Wait{}
	var owners []engine.User
	for _, w := range due {
		e := d.state.jobs[w.Job]
		switch {
		case e == nil || !e.job.State.Queued():
			continue
		case e.job.Held, len(e.unmet) > 0, e.job.NotBefore.After(now): // somebody wants it to wait
			d.tell.waits.Add(notice.Wait{Job: w.Job, Since: now})
			continue
		}
		if byOwner[e.job.Owner] == nil {
			owners = append(owners, e.job.Owner)
		}
		byOwner[e.job.Owner] = append(byOwner[e.job.Owner], w)
	}
	var list []*store.Notice
	for _, o := range owners {
		list = append(list, d.waitsOf(byOwner[o], now)...)
	}
	if len(list) > 0 && !d.tellNow(list, store.SetWaitsTold(due[len(due)-1].Since)) {
		for _, w := range due {
			d.tell.waits.Add(w) // the next look tries again
		}
	}
}

// waitsOf is what one user is told of long waits.
func (d *Daemon) waitsOf(list []notice.Wait, now time.Time) (out []*store.Notice) {
	for _, w := range list {
		e := d.state.jobs[w.Job]
		why := ""
		if e.reason != nil {
			why = waitWords[e.reason.Code]
		}
		n := notice.Waits(&e.job, now.Sub(w.Since), why, now)
		if len(list) > waitsEach {
			n.Text += fmt.Sprintf(", and so have %d more jobs", len(list)-1)
			return append(out, d.forStore(&e.job, n))
		}
		out = append(out, d.forStore(&e.job, n))
	}
	return out
}

// waitWords say why a job waits, without amounts that change by the second.
var waitWords = map[engine.ReasonCode]string{
	engine.WaitingForDevice: "no GPU that fits is free", engine.WaitingForHost: "host memory or CPUs are taken",
	engine.BlockedByPriority: "a job ahead of it waits for the GPU", engine.BlockedBySize: "it needs more than this machine has now",
	engine.ReasonPreparing: "it is still being prepared", engine.ReasonNotBefore: "its time has not come", engine.DependencyPending: "jobs that it runs after have not ended",
	engine.DeviceNotAnswering: "the GPUs that would do do not answer", engine.DeviceUnresolvable: "no container can be given the GPU",
	engine.DevicesUnknown: "no GPU has been seen", engine.WaitingForPreempted: "jobs that are stopped for it are not gone yet", engine.AgentUnavailable: "your agent or Podman does not answer",
}

// seeUse looks at how running attempts use their GPUs, in the sample that has just come.
func (d *Daemon) seeUse() {
	if len(d.tell.uses) == 0 || d.state.stale {
		return
	}
	cards := make(map[engine.DeviceID]*engine.GPU, len(d.state.sample.GPUs))
	for i := range d.state.sample.GPUs {
		g := &d.state.sample.GPUs[i]
		cards[g.UUID] = g
	}
	for id, u := range d.tell.uses {
		e, a := d.state.jobs[id.Job], d.state.attempts[id]
		if e == nil || a == nil {
			delete(d.tell.uses, id)
			continue
		}
		l := notice.Look{Time: d.o.System.Now(), GPU: d.memoryUsed(id)}
		for _, g := range a.Allocation.Grants {
			l.GPULimit += g.Memory
			if c := cards[g.Device]; g.Whole && c != nil {
				l.Whole = append(l.Whole, notice.Card{ID: g.Device, Index: c.Index, SM: c.SM})
			} else if g.Whole { // not in this sample: not known
				l.Whole = append(l.Whole, notice.Card{ID: g.Device, Index: -1})
			}
		}
		d.tellUse(e, id, u, l)
	}
}

func (d *Daemon) tellUse(e *entry, id engine.AttemptID, u *notice.Use, l notice.Look) {
	list, reclaim := u.See(&e.job, d.policy().Notices, l)
	if reclaim {
		list = append(list, notice.Reclaimed(&e.job, d.policy().Notices, l.Time))
	}
	var out []*store.Notice
	for _, n := range list {
		out = append(out, d.forStore(&e.job, n))
	}
	if !d.tellNow(out) {
		d.tell.uses[id] = &notice.Use{} // nobody was told: it counts from here
		return
	}
	if !reclaim {
		return
	}
	why := notice.ReclaimReason(d.policy().Notices)
	d.log.Info("idle job is stopped", "job", e.job.ID, "owner", e.job.Owner.Name, "why", why)
	if err := d.stopActive(e, engine.StopCancelled, why); err != nil {
		d.log.Error("idle job not stopped, trying again", "job", e.job.ID, "err", err)
	}
}

// watchHostMemory reads now and then how much host memory running jobs use, beside the loop.
func (d *Daemon) watchHostMemory(ctx context.Context) {
	if d.o.System.HostMemory == nil {
		return
	}
	for sleep(ctx, hostLook) {
		d.lookAtHostMemory(ctx)
	}
}

func (d *Daemon) lookAtHostMemory(ctx context.Context) {
	var running []engine.Attempt
	if d.do(ctx, func() {
		for id := range d.tell.uses {
			if a := d.state.attempts[id]; a != nil && a.PID != 0 && a.BootID == d.o.System.BootID {
				running = append(running, *a)
			}
		}
	}) != nil {
		return
	}
	for _, a := range running {
		used, ok := d.o.System.HostMemory(a.PID)
		if p, alive := d.o.System.Process(a.PID); !ok || !alive || p.Start != a.PIDStart {
			continue // gone, or the number is another process's by now
		}
		_ = d.do(ctx, func() { d.seeHost(a, used) }) // it ends only with the daemon
	}
}

func (d *Daemon) seeHost(a engine.Attempt, used engine.Bytes) {
	e, u := d.state.jobs[a.ID.Job], d.tell.uses[a.ID]
	if e == nil || u == nil {
		return
	}
	if n, ok := u.SeeHost(&e.job, d.policy().Notices, used, a.Allocation.Memory, d.o.System.Now()); ok {
		d.tellNow([]*store.Notice{d.forStore(&e.job, n)})
	}
}

// Notices reads what the caller was told.
func (d *Daemon) Notices(ctx context.Context, c api.Caller, limit int) (api.Notices, error) {
	list, read, err := d.store.Notices(ctx, c.User, limit)
	for i := range list {
		list[i].Key = ""
	}
	return api.Notices{Notices: slices.Concat([]engine.Notice{}, list), Read: read}, err
}

// ReadNotices notes up to which id the caller has read, and tells the caller's other screens.
func (d *Daemon) ReadNotices(ctx context.Context, c api.Caller, through int64) error {
	if err := d.store.ReadNotices(ctx, c.User, through); err != nil {
		return err
	}
	d.hub.read(c.User, through)
	return nil
}

// notice passes a notice on to its owner's screens.
func (h *hub) notice(n engine.Notice) {
	n.Key = ""
	h.each(func(w *watcher) {
		if !w.user.Is(n.Owner) {
			return
		}
		to := w.toNotices()
		to.Notices = append([]engine.Notice{n}, to.Notices[:min(len(to.Notices), api.MaxNotices-1)]...)
	})
}

func (h *hub) read(u engine.User, through int64) {
	h.each(func(w *watcher) {
		if w.user.Is(u) {
			w.toNotices().Read = through
		}
	})
}

func (w *watcher) toNotices() *api.Notices {
	if w.notices == nil {
		w.notices = &api.Notices{}
	}
	return w.notices
}
