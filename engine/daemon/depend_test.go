package daemon

import (
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/quota"
)

// after is a job without a GPU that runs after others.
func after(command string, deps ...engine.Dependency) engine.Spec {
	s := light(strings.Fields(command)...)
	s.After = deps
	return s
}

func pendingOn(what string) func(api.Job) bool {
	return func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Code == engine.DependencyPending && j.Reason.Detail == what
	}
}

func TestDependencies(t *testing.T) {
	b := newBox(t, 1)
	first := b.submit(light("run"))
	b.untilState(first, engine.Running)
	ok := b.submit(after("run", engine.Dependency{Job: first, On: engine.AfterOK}))
	next := b.submit(after("exit 0", engine.Dependency{Job: ok, On: engine.AfterOK}))
	mend := b.submit(after("exit 0", engine.Dependency{Job: ok, On: engine.AfterFailed}))
	last := b.submit(after("exit 0", engine.Dependency{Job: next, On: engine.AfterAny}, engine.Dependency{Job: first, On: engine.AfterAny}))
	b.until(ok, "waiting for the first", pendingOn("job "+first.String()+" to succeed"))
	b.until(last, "waiting for two", pendingOn("job "+next.String()+" to end, job "+first.String()+" to end"))
	b.restart()
	b.until(ok, "waiting after a restart", pendingOn("job "+first.String()+" to succeed"))
	b.agent.end(b.container(first, 1), 0)
	b.untilState(ok, engine.Running)
	b.until(last, "waiting for one", pendingOn("job "+next.String()+" to end"))
	if _, _, events, err := b.store.Job(t.Context(), ok); err != nil || !strings.Contains(story(events), "ready job "+first.String()+" has ended: succeeded") {
		t.Errorf("its story: %s, %v", story(events), err)
	}
	b.agent.end(b.container(ok, 1), 3)
	// Whose end can never be is cancelled; who waits for any end of that one runs, and so does who waits for a failure.
	j := b.untilState(next, engine.Cancelled)
	if want := "it was to wait for job " + ok.String() + " to succeed, and that job has ended: failed"; !strings.Contains(j.Message, want) {
		t.Errorf("cancelled: %s; want %s", j.Message, want)
	}
	b.untilState(mend, engine.Succeeded)
	b.untilState(last, engine.Succeeded)
	for what, dep := range map[string]engine.Dependency{
		"there is no job 999": {Job: 999, On: engine.AfterOK},
		"has ended: failed":   {Job: ok, On: engine.AfterOK},
		"want ok, failed":     {Job: ok, On: "soon"},
	} {
		_, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: with(after("run", dep))})
		if codeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: %v, want %s", dep, err, what)
		}
	}
	b.untilState(b.submit(after("exit 0", engine.Dependency{Job: ok, On: engine.AfterFailed})), engine.Succeeded)
}

func with(s engine.Spec) engine.Spec { s.Workdir = "/tmp"; return s }

// An end of which nobody was told when the daemon died is told by the next one.
func TestADependencyOverARestart(t *testing.T) {
	b := newBox(t, 1)
	first := b.submit(light("run"))
	b.untilState(first, engine.Running)
	next := b.submit(after("run", engine.Dependency{Job: first, On: engine.AfterOK}))
	later := b.submit(after("run", engine.Dependency{Job: next, On: engine.AfterOK}))
	b.until(next, "waiting", pendingOn("job "+first.String()+" to succeed"))
	b.stop()
	b.agent.alter(b.container(first, 1), func(c *agentrpc.Container) { c.State, c.ExitCode, c.FinishedAt, c.PID = "exited", 1, time.Now(), 0 })
	b.start()
	b.untilState(later, engine.Cancelled)
}

func TestArray(t *testing.T) {
	b := newBox(t, 1)
	s := light("run")
	s.Array, s.Name, s.Workdir = "2-8:2%1", "sweep", "/tmp"
	r, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s})
	if err != nil || r.Last != r.Job.ID+3 || r.Job.Name != "sweep [2]" || r.Job.Element == nil || r.Job.Element.Of != 4 {
		t.Fatalf("%+v, %v", r, err)
	}
	first := r.Job.ID
	b.untilState(first, engine.Running)
	full := func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Code == engine.OverQuota && j.Reason.Detail == "array "+first.String()
	}
	b.until(first+1, "kept back", full)
	b.restart()
	b.until(first+3, "kept back after a restart", full)
	if got := b.agent.env(b.container(first, 1)); got["GPUTOP_ARRAY_INDEX"] != "2" || got["GPUTOP_ARRAY_JOB_ID"] != first.String() || got["GPUTOP_ARRAY_COUNT"] != "4" {
		t.Errorf("its environment: %v", got)
	}
	b.agent.end(b.container(first, 1), 3)
	b.untilState(first+1, engine.Running)
	// Run again, it is the same element, and counts as one.
	again, err := b.d.Requeue(t.Context(), b.caller(), first, "")
	if err != nil || again.Job.Name != "sweep [2]" || again.Job.Element == nil || again.Job.Element.Index != 2 || again.Last != again.Job.ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	b.until(again.Job.ID, "kept back too", full)

	// Of all the jobs of an array that go as they should one notice is enough.
	b.agent.end(b.container(first+1, 1), 0)
	for id := first + 2; id <= again.Job.ID; id++ {
		b.untilState(id, engine.Running)
		b.restart()
		b.agent.end(b.container(id, 1), 0)
		b.untilState(id, engine.Succeeded)
	}
	n, err := b.d.Notices(t.Context(), b.caller(), 100)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, x := range n.Notices {
		told = append(told, x.Job.String()+" "+x.Text)
	}
	if want := []string{again.Job.ID.String() + " the last of the 4 jobs of array " + first.String() + " has ended", first.String() + " failed with exit code 3"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}

	b.rules(everyone(quota.Rule{MaxPending: ref(5)}))
	s.Array = "0-9"
	if _, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s}); codeOf(err) != api.CodeTooMany || !strings.Contains(err.Error(), "these would be 10 more") {
		t.Errorf("more than may wait: %v", err)
	}
	for _, bad := range []string{"0-999999", "x", "5-1"} {
		s.Array = bad
		if _, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s}); codeOf(err) != api.CodeInvalid {
			t.Errorf("array %s: %v", bad, err)
		}
	}
}

func TestBegin(t *testing.T) {
	b := newBox(t, 1)
	s := light("run")
	s.Begin = b.now().Add(time.Hour)
	id := b.submit(s)
	b.until(id, "waiting for its time", func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Code == engine.ReasonNotBefore && j.Reason.Until.Equal(s.Begin)
	})
	b.ahead.Store(int64(time.Hour + time.Second))
	b.untilState(id, engine.Running)
	s.Begin = b.now().Add(400 * 24 * time.Hour)
	if _, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: with(s)}); codeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "more than a year away") {
		t.Errorf("in a year: %v", err)
	}
}

// Who waits for another job, or for its time, does not wait long: that is what its owner asked for.
func TestNoNoticeOfAWaitThatIsWanted(t *testing.T) {
	b := newBox(t, 1)
	first := b.submit(light("run"))
	b.untilState(first, engine.Running)
	for _, s := range []engine.Spec{after("run", engine.Dependency{Job: first, On: engine.AfterOK}), {Begin: b.now().Add(9 * time.Hour)}} {
		if s.Command == nil {
			begin := s.Begin
			s = light("run")
			s.Begin = begin
		}
		b.submit(s)
	}
	held := b.submit(spec(engine.Medium, "run"))
	b.untilState(held, engine.Running)
	waits := b.submit(spec(engine.Medium, "run"))
	b.ahead.Store(int64(2 * time.Hour))
	told := func() (jobs []engine.JobID) {
		n, err := b.d.Notices(t.Context(), b.caller(), 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range n.Notices {
			if x.Kind == engine.NoticeWaiting {
				jobs = append(jobs, x.Job)
			}
		}
		return jobs
	}
	for len(told()) == 0 {
		time.Sleep(20 * time.Millisecond)
	}
	if got := told(); len(got) != 1 || got[0] != waits {
		t.Errorf("told of %v, want of %s alone", got, waits)
	}
}
