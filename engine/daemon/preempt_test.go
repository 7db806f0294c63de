package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/quota"
	"gputop/engine/store"
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

func TestBudgetOfGPUHours(t *testing.T) {
	b := newBox(t, 1, func(b *box) { b.policy.People = everyone(quota.Rule{GPUHours: &engine.Budget{Hours: 1, Days: 2}}) })
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	next, light := b.submit(spec(engine.Medium, "run")), b.submit(light("exit", "0"))
	b.untilState(light, engine.Succeeded)
	b.ahead.Store(int64(61 * time.Minute))
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
	spent := func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Code == engine.OverQuota && j.Reason.Detail == me().Name+" has used 1.0 of 1 GPU hour in 2 days"
	}
	b.until(next, "out of budget", spent)
	b.restart()
	b.until(next, "out of budget after a restart", spent)
	b.rules(everyone(quota.Rule{HighGPUHours: &engine.Budget{Hours: 0, Days: 7}}))
	high := b.submit(spec(engine.High, "run"))
	b.until(high, "out of its own budget", func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Detail == me().Name+" has used 0.0 of 0 GPU hours in 7 days for class high"
	})
	if _, err := b.d.Stop(t.Context(), b.caller(), high, engine.StopCancelled, ""); err != nil {
		t.Fatal(err)
	}
	b.untilState(next, engine.Running) // it is of another class
	b.rules(everyone(quota.Rule{GPUHours: &engine.Budget{Hours: 1, Days: 2}}))
	u, err := b.d.Users(t.Context(), b.caller())
	if err != nil || u.Users[0].Budget == nil || u.Users[0].InBudget < 3600 || u.Users[0].InBudget > 3700 {
		t.Errorf("as gputop users shows it: %+v, %v", u.Users, err)
	}
	b.agent.end(b.container(next, 1), 0)
	b.untilState(next, engine.Succeeded)
	for b.held() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	last := b.submit(spec(engine.Medium, "run"))
	b.until(last, "out of budget again", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.OverQuota })
	b.ahead.Store(int64(3 * 24 * time.Hour))
	b.untilState(last, engine.Running)
}

func TestUseIsSplitByDays(t *testing.T) {
	b := newBox(t, 1)
	j := engine.Job{Owner: me(), Spec: spec(engine.Low, "run")}
	j.Spec.TimeLimit = 36 * time.Hour
	a := engine.Attempt{BootID: "another", Granted: time.Unix(20000*86400+18*3600, 0), Allocation: engine.Allocation{CPUs: 2,
		Grants: []engine.Grant{{Memory: 10, Fraction: 0.5}}}}
	got := b.d.usedBy(&j, &a)
	want := []store.Used{
		{Day: 20000, Owner: me(), Class: engine.Low, GPUSeconds: 3 * 3600, GPUMemory: 10 * 6 * 3600, CPUSeconds: 12 * 3600},
		{Day: 20001, Owner: me(), Class: engine.Low, GPUSeconds: 12 * 3600, GPUMemory: 10 * 24 * 3600, CPUSeconds: 48 * 3600},
		{Day: 20002, Owner: me(), Class: engine.Low, GPUSeconds: 3 * 3600, GPUMemory: 10 * 6 * 3600, CPUSeconds: 12 * 3600, Attempts: 1},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestReport(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Low, "run"))
	b.untilState(id, engine.Running)
	b.ahead.Store(int64(time.Hour))
	q := api.ReportQuery{Since: b.now().Add(-48 * time.Hour), Until: b.now()}
	hours := func() (h float64, attempts int) {
		r, err := b.d.Report(t.Context(), mallory, q)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range r.Rows {
			if row.User != me().Name || row.Class != engine.Low {
				t.Errorf("a row of %+v", row)
			}
			h, attempts = h+row.GPUSeconds/3600, attempts+row.Attempts
		}
		return h, attempts
	}
	if h, n := hours(); h < 0.99 || h > 1.02 || n != 1 {
		t.Errorf("while it runs: %.3f hours of %d attempts", h, n)
	}
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
	for b.held() > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if h, n := hours(); h < 0.99 || h > 1.02 || n != 1 {
		t.Errorf("when it has ended: %.3f hours of %d attempts", h, n)
	}
	q.Since, q.Until = q.Since.Add(-48*time.Hour), q.Since
	if h, n := hours(); h != 0 || n != 0 {
		t.Errorf("in the days before: %.3f hours of %d attempts", h, n)
	}
}

func TestAWarningBeforeTheTimeLimit(t *testing.T) {
	b := newBox(t, 1)
	s := spec(engine.Medium, "run")
	s.Warn, s.WarnBefore = "SIGUSR1", 10*time.Minute
	id := b.submit(s)
	b.untilState(id, engine.Running)
	warned := func() int { return b.agent.called(agentrpc.MethodWarn) }
	b.boot.Add(int64(49 * time.Minute))
	b.restart()
	b.until(id, "adopted", func(j api.Job) bool { return j.State == engine.Running })
	if n := warned(); n != 0 {
		t.Errorf("warned %d times before it is time", n)
	}
	b.boot.Add(int64(2 * time.Minute))
	for warned() == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	b.restart()
	b.boot.Add(int64(10 * time.Minute))
	b.untilState(id, engine.TimedOut)
	if n := warned(); n != 1 {
		t.Errorf("warned %d times", n)
	}
	if _, _, events, err := b.store.Job(t.Context(), id); err != nil || strings.Count(story(events), "warned SIGUSR1, 10m0s before its time limit") != 1 {
		t.Errorf("its story: %s, %v", story(events), err)
	}
}
