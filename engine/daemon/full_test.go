package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/store"
)

// fullDisk lets everything that has happened be refused until room is called.
func (b *box) fullDisk() (room func()) {
	b.t.Helper()
	set := func(f func(context.Context, ...store.Change) error) {
		if err := b.d.do(b.t.Context(), func() { b.d.applyFact = f }); err != nil {
			b.t.Fatal(err)
		}
	}
	set(func(context.Context, ...store.Change) error { return store.ErrFull })
	return func() { set(b.store.ApplyFact) }
}

// A job that fills the disk can be cancelled: it is stopped at once, and what became of it is stored when there is room.
func TestCancelOnAFullDisk(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	room := b.fullDisk()
	j, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, "too big")
	if err != nil || j.State != engine.Stopping || !strings.Contains(j.Progress, "full") || !strings.Contains(j.Message, "too big") {
		t.Fatalf("cancel: %v, %+v", err, j)
	}
	b.agent.untilEnded(b.container(id, 1))
	if stored, _, _, err := b.store.Job(t.Context(), id); err != nil || stored.State != engine.Running {
		t.Errorf("the store says %s, %v", stored.State, err)
	}
	if j, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, "again"); err != nil || j.State != engine.Stopping {
		t.Errorf("cancelled again: %v, %+v", err, j)
	}
	room()
	j = b.untilState(id, engine.Cancelled)
	if !strings.Contains(j.Message, "too big") || j.StopReason != engine.StopCancelled || j.Progress != "" {
		t.Errorf("in the end: %+v", j)
	}
	det, err := b.d.Show(t.Context(), b.caller(), id)
	if err != nil {
		t.Fatal(err)
	}
	var stops int
	for _, e := range det.Events {
		if e.Kind == "stopping" {
			stops++
		}
	}
	if stops != 1 {
		t.Errorf("%d events tell of the stop", stops)
	}
}

// A preemption that can't be stored is refused: the job would not come back.
func TestPreemptOnAFullDisk(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.fullDisk()
	_, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopPreempted, "")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeUnavailable || !strings.Contains(e.Message, "nothing was changed") {
		t.Errorf("preempt: %v", err)
	}
	if n := b.agent.called(agentrpc.MethodStop); n != 0 {
		t.Errorf("it was stopped %d times", n)
	}
}

// A daemon that dies before there is room has forgotten the cancel: the job is then one that ended by a signal.
func TestCrashBeforeACancelIsStored(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.fullDisk()
	if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil {
		t.Fatal(err)
	}
	b.agent.untilEnded(b.container(id, 1))
	b.restart()
	if j := b.untilState(id, engine.Failed); j.ExitCode == nil || *j.ExitCode != 143 {
		t.Errorf("after the crash: %+v", j)
	}
}

func (f *fakeAgent) untilEnded(name string) {
	f.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		f.mu.Lock()
		ended := f.containers[name] != nil && f.containers[name].State == "exited"
		f.mu.Unlock()
		if ended {
			return
		}
	}
	f.t.Fatalf("container %s never ends", name)
}

func (f *fakeAgent) called(m agentrpc.Method) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		if c == string(m) {
			n++
		}
	}
	return n
}

// What is too old goes, from the store and from its owner's agent when that is there; nothing that runs or is held does.
func TestRetention(t *testing.T) {
	b := newBox(t, 2)
	var ended []engine.JobID
	for range 3 {
		id := b.submit(spec(engine.Medium, "exit", "0"))
		b.until(id, "released", func(j api.Job) bool { return j.State.Final() && len(j.Grants) == 0 })
		ended = append(ended, id)
	}
	run := b.submit(spec(engine.Medium, "run"))
	b.untilState(run, engine.Running)
	b.agent.keeps(ended[0], ended[1], ended[2], run, 77)
	b.d.policy().KeepEnded, b.d.policy().KeepLogs = 2, 0
	b.d.retainOnce(t.Context())
	if got, want := b.agent.has(), []engine.JobID{ended[1], ended[2], run}; !slices.Equal(got, want) {
		t.Errorf("the agent keeps %v, want %v", got, want)
	}
	var e *api.Error
	if _, err := b.d.Show(t.Context(), b.caller(), ended[0]); !errors.As(err, &e) || e.Code != api.CodeNotFound {
		t.Errorf("a pruned job: %v", err)
	}
	list, err := b.d.List(t.Context(), b.caller(), true, 0)
	if err != nil || len(list) != 3 {
		t.Errorf("listed: %+v, %v", list, err)
	}

	// An agent that is away is told when it comes, and is not started for it.
	b.agent.goAway(b)
	starts := b.agent.called(agentrpc.MethodKept)
	b.d.policy().KeepEnded, b.d.policy().KeepLogs = 0, time.Nanosecond
	b.d.retainOnce(t.Context())
	if n := b.agent.called(agentrpc.MethodKept); n != starts {
		t.Errorf("the agent was asked %d times while it was away", n-starts)
	}
	if n := len(b.agent.has()); n != 3 {
		t.Fatalf("the agent that is away keeps %d", n)
	}
	b.silent.Store(false)
	again := b.submit(spec(engine.Medium, "exit", "0"))
	b.untilState(again, engine.Succeeded)
	for deadline := time.Now().Add(20 * time.Second); len(b.agent.has()) != 1; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the agent keeps %v", b.agent.has())
		}
	}
	if got := b.agent.has(); got[0] != run {
		t.Errorf("the agent keeps %v, want the running job's", got)
	}
	err = b.d.Logs(t.Context(), b.caller(), ended[1], api.LogOptions{}, &strings.Builder{})
	if !errors.As(err, &e) || !strings.Contains(e.Message, "is gone") {
		t.Errorf("logs: %v", err)
	}
}

// keeps says of which jobs the agent has something.
func (f *fakeAgent) keeps(ids ...engine.JobID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept = ids
}

func (f *fakeAgent) has() []engine.JobID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.kept)
}

// goAway ends the agent's link, and keeps the next one from coming until silent is unset.
func (f *fakeAgent) goAway(b *box) {
	b.silent.Store(true)
	f.mu.Lock()
	conn := f.conn
	f.mu.Unlock()
	conn.Close()
	for deadline := time.Now().Add(20 * time.Second); len(b.d.agents.all()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			f.t.Fatal("the link never ends")
		}
	}
	b.d.agents.mu.Lock()
	defer b.d.agents.mu.Unlock()
	clear(b.d.agents.started)
}
