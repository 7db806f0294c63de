package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/quota"
)

// saving is a job that saves its work when it is told to stop: it gives way at once.
func saving(class engine.Class) engine.Spec {
	s := spec(class, "run")
	s.TimeLimit, s.Checkpoint = 24*time.Hour, true
	return s
}

func TestAHighJobPreemptsByItself(t *testing.T) {
	b := newBox(t, 1)
	low := b.submit(saving(engine.Low))
	b.untilState(low, engine.Running)
	before := b.submit(spec(engine.Medium, "run"))
	b.until(before, "waiting", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	high := b.submit(spec(engine.High, "run"))
	b.untilState(high, engine.Running)
	v := b.until(low, "back in the queue", func(j api.Job) bool { return j.State == engine.Pending })
	if v.Preemptions != 1 {
		t.Errorf("preempted %d times", v.Preemptions)
	}
	if n := b.agent.started(b.container(before, 1)); n != 0 {
		t.Error("the job that waited before got the place")
	}
	j, attempts, events, err := b.store.Job(t.Context(), low)
	if err != nil || j.Displaced != 1 || attempts[0].StoppedFor != high {
		t.Errorf("displaced %d times, stopped for job %s, %v", j.Displaced, attempts[0].StoppedFor, err)
	}
	if text := story(events); !strings.Contains(text, "preempted for job "+high.String()+" of "+me().Name+", of class high") {
		t.Errorf("the victim's story: %s", text)
	}
	g, _, events, err := b.store.Job(t.Context(), high)
	if err != nil || g.Promised || !strings.Contains(story(events), "job "+low.String()+" is stopped for it") {
		t.Errorf("promised %v after its start, %s, %v", g.Promised, story(events), err)
	}
	if times, err := b.store.Preempted(t.Context()); err != nil || len(times) != 1 {
		t.Errorf("preemptions on record: %v, %v", times, err)
	}
}

func story(events []engine.Event) (s string) {
	for _, e := range events {
		s += e.Kind + " " + e.Text + "\n"
	}
	return s
}

// The victim is not gone when the daemon dies: the next one still gives its place to who it was stopped for.
func TestAPromiseOutlivesTheDaemon(t *testing.T) {
	b := newBox(t, 1)
	low := b.submit(saving(engine.Low))
	b.untilState(low, engine.Running)
	b.agent.hooks(func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodStop {
			return &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "not now"}
		}
		return nil
	}, nil)
	first := b.submit(spec(engine.High, "run"))
	b.until(first, "waiting for the victim", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForPreempted })
	second := spec(engine.High, "run")
	second.TimeLimit = time.Minute
	later := b.submit(second)
	b.until(later, "waiting", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	e, err := b.d.Explain(t.Context(), mallory, first)
	if err != nil || e.Preempts != engine.PreemptsNow || len(e.Stopped) != 1 || e.Stopped[0] != low || e.Job.Command != "" {
		t.Errorf("explained to a stranger: %+v, %v", e, err)
	}
	b.restart()
	b.agent.hooks(nil, nil)
	b.untilState(first, engine.Running)
	if n := b.agent.started(b.container(later, 1)); n != 0 {
		t.Error("another job got the place")
	}
}

// What others were stopped for is what the job asked for then.
func TestAPromiseEndsWithTheRequest(t *testing.T) {
	b := newBox(t, 2)
	low := b.submit(saving(engine.Low))
	b.untilState(low, engine.Running)
	b.untilState(b.submit(spec(engine.Medium, "run")), engine.Running)
	stuck := func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodStop {
			return errors.New("not now")
		}
		return nil
	}
	b.agent.hooks(stuck, nil)
	promised := func(id engine.JobID) bool {
		j, _, _, err := b.store.Job(t.Context(), id)
		return err == nil && j.Promised
	}
	high := b.submit(spec(engine.High, "run"))
	b.until(high, "promised", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForPreempted })
	if !promised(high) {
		t.Fatal("no promise")
	}
	if err := b.change(b.caller(), high, api.UpdateRequest{Name: ref("other")}); err != nil || !promised(high) {
		t.Errorf("a new name ends the promise: %v", err)
	}
	// What it asks for now is no more than the victim frees: the plan keeps that for it all the same, not the rank.
	if err := b.change(b.caller(), high, api.UpdateRequest{GPUs: ref(2)}); err != nil || promised(high) {
		t.Errorf("a larger request keeps the promise: %v", err)
	}
	if _, err := b.d.Hold(t.Context(), b.caller(), high, true, ""); err != nil || promised(high) {
		t.Errorf("a held job keeps the promise: %v", err)
	}
}

func TestUseIsChargedOnceAndKept(t *testing.T) {
	b := newBox(t, 2)
	s := spec(engine.Medium, "run")
	s.Request.GPUs = 2
	id := b.submit(s)
	b.untilState(id, engine.Running)
	b.ahead.Store(int64(30 * time.Minute))
	near := func(what string, want float64) {
		t.Helper()
		var got float64
		if err := b.d.do(t.Context(), func() {
			for _, u := range b.d.users(b.caller()).Users {
				got += u.Usage
			}
		}); err != nil || got < want*0.98 || got > want*1.02 {
			t.Errorf("%s: %.0f GPU-seconds, want about %.0f (%v)", what, got, want, err)
		}
	}
	near("two GPUs for half an hour", 3600)
	if got := b.d.snapshotForTest(t).Shares[me().UID]; got.Usage < 3500 || got.Usage > 3700 || got.Weight != 1 {
		t.Errorf("as the scheduler sees it: %+v", got)
	}
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
	for b.held() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	near("given back", 3600)
	b.restart()
	near("after a restart", 3600)
	b.ahead.Store(int64(30*time.Minute + 7*24*time.Hour))
	near("a half-life later", 1800)
	b.rules(everyone(quota.Rule{Weight: ref(4.0)}))
	b.submit(spec(engine.Medium, "run"))
	if got := b.d.snapshotForTest(t).Shares[me().UID]; got.Weight != 4 {
		t.Errorf("with a weight: %+v", got)
	}
}

// held is how many attempts hold an allocation.
func (b *box) held() int { return len(b.d.snapshotForTest(b.t).Held) }
