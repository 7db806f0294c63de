package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/notice"
	"gputop/engine/store"
)

// notedFor waits until the caller has been told n things, and gives them as "JOB kind: sentence", oldest first.
func (b *box) notedFor(c api.Caller, n int) (out []string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	seen, stop := map[int64]bool{}, errors.New("enough")
	err := b.d.Watch(ctx, c, func(ev api.WatchEvent) error {
		if ev.Notices != nil {
			for i := len(ev.Notices.Notices) - 1; i >= 0; i-- {
				if x := ev.Notices.Notices[i]; !seen[x.ID] {
					seen[x.ID] = true
					out = append(out, fmt.Sprintf("%s %s: %s", x.Job, x.Kind, x.Sentence()))
				}
			}
		}
		if len(out) >= n {
			return stop
		}
		return nil
	})
	if !errors.Is(err, stop) {
		b.t.Fatalf("told of %q, want %d (%v)", out, n, err)
	}
	return out
}

func (b *box) noted(n int) string { b.t.Helper(); return strings.Join(b.notedFor(b.caller(), n), "; ") }

// exactly says what the store has for the caller, newest last.
func (b *box) storedNotices() string {
	b.t.Helper()
	list, err := b.d.Notices(b.t.Context(), b.caller(), 100)
	if err != nil {
		b.t.Fatal(err)
	}
	var out []string
	for i := len(list.Notices) - 1; i >= 0; i-- {
		out = append(out, fmt.Sprintf("%s %s", list.Notices[i].Job, list.Notices[i].Kind))
	}
	return strings.Join(out, ", ")
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestNoticesOfAJobComeOnceAlsoOverARestart(t *testing.T) {
	b := newBox(t, 1)
	bad := b.submit(spec(engine.Medium, "exit", "3"))
	b.untilState(bad, engine.Failed)
	same(t, "told", b.noted(2), "1 started: started; 1 ended: failed with exit code 3")
	run := b.submit(spec(engine.Medium, "run"))
	b.untilState(run, engine.Running)
	if _, err := b.d.Stop(t.Context(), root, run, engine.StopPreempted, "a demo"); err != nil {
		t.Fatal(err)
	}
	b.until(run, "running again", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
	want := "1 started, 1 ended, 2 started, 2 preempted, 2 started"
	same(t, "kept", b.storedNotices(), want)
	if told := b.noted(5); !strings.Contains(told, "2 preempted: stopped and put back in the queue: preempted by root: a demo") {
		t.Errorf("told %s", told)
	}
	b.restart()
	b.until(run, "adopted", func(j api.Job) bool { return j.State == engine.Running })
	same(t, "kept after a restart", b.storedNotices(), want)
	b.agent.end(b.container(run, 2), 0)
	b.untilState(run, engine.Succeeded)
	same(t, "kept after the end", b.storedNotices(), want+", 2 ended")
	for _, c := range []api.Caller{root, mallory} {
		if n, err := b.d.Notices(t.Context(), c, 100); err != nil || len(n.Notices) != 0 {
			t.Errorf("%s reads %d notices of somebody else, %v", c.Name, len(n.Notices), err)
		}
	}
}

func TestNoticesAreTheOwnersAlone(t *testing.T) {
	b := newBox(t, 1)
	w, r := b.d.hub.add(b.caller().User), b.d.hub.add(root.User)
	reused := b.d.hub.add(engine.User{UID: me().UID, Name: "somebody-else"})
	defer func() { b.d.hub.remove(w); b.d.hub.remove(r); b.d.hub.remove(reused) }()
	b.untilState(b.submit(spec(engine.Medium, "exit", "0")), engine.Succeeded)
	if ev, _ := b.d.hub.take(w, b.caller()); ev.Notices == nil || len(ev.Notices.Notices) != 2 {
		t.Errorf("the owner's screen got %+v", ev.Notices)
	}
	for _, other := range []*watcher{r, reused} {
		if ev, _ := b.d.hub.take(other, root); ev.Notices != nil || len(ev.Jobs) == 0 {
			t.Errorf("another's screen got %+v", ev.Notices)
		}
	}
	if err := b.d.ReadNotices(t.Context(), b.caller(), 2); err != nil {
		t.Fatal(err)
	}
	if ev, _ := b.d.hub.take(w, b.caller()); ev.Notices == nil || ev.Notices.Read != 2 {
		t.Errorf("the owner's other screen got %+v", ev.Notices)
	}
	if n, err := b.d.Notices(t.Context(), b.caller(), 9); err != nil || n.Unread() != 0 || n.Notices[0].Key != "" {
		t.Errorf("after reading: %+v, %v", n, err)
	}
}

// outgoing is a deliverer that sends nothing.
type outgoing struct{ wake chan struct{} }

func (outgoing) Run(ctx context.Context) { <-ctx.Done() }
func (o outgoing) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}
func (outgoing) Ways() store.Ways { return store.ByMail | store.ByCommand }

func TestWhatAJobSaysOfNotices(t *testing.T) {
	o := outgoing{wake: make(chan struct{}, 1)}
	b := newBox(t, 1, func(b *box) { b.deliver = o })
	for _, words := range [][]string{nil, {"none"}, {"started"}, {"all"}} {
		s := spec(engine.Medium, "exit", "0")
		s.Notify = words
		b.untilState(b.submit(s), engine.Succeeded)
	}
	<-o.wake
	same(t, "shown", b.storedNotices(), "1 started, 1 ended, 3 started, 4 started, 4 ended")
	list, err := b.store.DueNotices(t.Context(), store.ByMail|store.ByCommand, 100)
	if err != nil {
		t.Fatal(err)
	}
	var due []string
	for _, n := range list {
		due = append(due, fmt.Sprintf("%s %s %d", n.Job, n.Kind, n.Due))
	}
	// 1 is mail, 2 the admin's program, which hears of everything.
	same(t, "due", strings.Join(due, ", "), "1 started 2, 1 ended 3, 2 started 2, 2 ended 2, 3 started 3, 3 ended 2, 4 started 3, 4 ended 3")
}

// lookAtWaits has the loop look as if nothing had kept it from it.
func (b *box) lookAtWaits() {
	b.t.Helper()
	if err := b.d.do(b.t.Context(), func() { b.d.tell.next = time.Time{}; b.d.tellWaits() }); err != nil {
		b.t.Fatal(err)
	}
}

func TestLongWaitsAreToldOnce(t *testing.T) {
	b := fullBox(t)
	first := b.waiting()
	held := b.waiting()
	if _, err := b.d.Hold(t.Context(), b.caller(), held, true, ""); err != nil {
		t.Fatal(err)
	}
	b.lookAtWaits()
	same(t, "at first", b.storedNotices(), "1 started")
	b.ahead.Store(int64(31 * time.Minute))
	b.lookAtWaits()
	same(t, "told", b.noted(2), "1 started: started; "+first.String()+" waiting: has waited for 31m: no GPU that fits is free")
	for range 7 {
		b.waiting()
	}
	b.restart()
	b.lookAtWaits()
	same(t, "after a restart", b.storedNotices(), "1 started, 2 waiting")
	b.until(4, "told why it waits", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	b.ahead.Store(int64(62 * time.Minute))
	b.lookAtWaits()
	same(t, "many at a time", b.noted(3), "1 started: started; "+first.String()+
		" waiting: has waited for 31m: no GPU that fits is free; 4 waiting: has waited for 31m, and so have 6 more jobs: no GPU that fits is free")
	for _, id := range []engine.JobID{first, 4} { // the others were told with these
		if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil {
			t.Fatal(err)
		}
	}
	b.restart()
	b.lookAtWaits()
	same(t, "after another restart", b.storedNotices(), "1 started, 2 waiting, 4 waiting, 2 ended, 4 ended")
}

func TestIdleJobIsToldThenReclaimed(t *testing.T) {
	b := newBox(t, 1, func(b *box) {
		b.policy.Notices.IdleAfter, b.policy.Notices.ReclaimAfter = 100*time.Millisecond, 100*time.Millisecond
	})
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	for range 20 { // a dash is not idle
		b.sample()
		b.ahead.Add(int64(20 * time.Millisecond))
	}
	same(t, "while nothing is known", b.storedNotices(), "1 started")
	b.idle.Store(true)
	if j := b.untilState(id, engine.Cancelled); !strings.HasPrefix(j.Message, "reclaimed: its GPUs did nothing for ") {
		t.Errorf("message %q", j.Message)
	}
	same(t, "kept", b.storedNotices(), "1 started, 1 idle, 1 reclaimed, 1 ended")
}

func TestIdleJobGoesOnByDefault(t *testing.T) {
	b := newBox(t, 1, func(b *box) { b.policy.Notices.IdleAfter = 50 * time.Millisecond; b.idle.Store(true) })
	id := b.submit(spec(engine.Medium, "run"))
	same(t, "told", b.noted(2), "1 started: started; 1 idle: GPU 0 has done nothing for 0s")
	for range 10 {
		b.ahead.Add(int64(30 * time.Second))
		b.sample()
	}
	b.until(id, "running", func(j api.Job) bool { return j.State == engine.Running })
	same(t, "kept", b.storedNotices(), "1 started, 1 idle")
}

func TestHostMemoryIsTold(t *testing.T) {
	b := newBox(t, 1)
	s := light("run")
	s.Request.Memory = engine.GiB
	b.untilState(b.submit(s), engine.Running)
	for range 12 {
		b.d.lookAtHostMemory(t.Context()) // not known
		b.ahead.Add(int64(30 * time.Second))
	}
	same(t, "while nothing is known", b.storedNotices(), "1 started")
	b.hostMem.Store(int64(engine.GiB - engine.MiB))
	for range 12 {
		b.d.lookAtHostMemory(t.Context())
		b.ahead.Add(int64(30 * time.Second))
	}
	same(t, "told", b.noted(2), "1 started: started; 1 memory: uses 1023MiB of its 1GiB of host memory, for 5m")
}

// What a tick and a sample cost for notices, with so many jobs waiting.
func BenchmarkNotices(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			now := time.Now()
			d := &Daemon{o: Options{System: System{Now: func() time.Time { return now }}}, state: newState(store.Live{}, nil)}
			policy := DefaultPolicy()
			d.current.Store(&policy)
			for i := range n {
				d.state.add(engine.Job{ID: engine.JobID(i + 1), State: engine.Pending, Queued: now})
			}
			d.tell = newTeller(d.state, time.Time{})
			if d.tell.waits.Len() != n {
				b.Fatal(d.tell.waits.Len())
			}
			d.tell.uses[engine.AttemptID{}] = &notice.Use{}
			for b.Loop() {
				d.tell.next = time.Time{} // nothing holds it back
				d.tellWaits()
			}
		})
	}
}
