package daemon

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func (b *box) story(id engine.JobID) (kinds, texts []string) {
	b.t.Helper()
	det, err := b.d.Show(b.t.Context(), b.caller(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range det.Events {
		kinds, texts = append(kinds, e.Kind), append(texts, e.Text)
	}
	return kinds, texts
}

func TestHeldJobKeepsItsPlaceAndIsNotStarted(t *testing.T) {
	b := newBox(t, 1)
	running := b.submit(spec(engine.Medium, "run"))
	b.untilState(running, engine.Running)
	held, later := b.waiting(), b.waiting()
	if _, err := b.d.Hold(t.Context(), b.caller(), held, true, "not yet"); err != nil {
		t.Fatal(err)
	}
	b.until(held, "held", func(j api.Job) bool {
		return j.Held && j.Reason != nil && j.Reason.Code == engine.ReasonHeld && j.Reason.Detail == "by "+me().Name
	})
	b.restart()
	b.untilState(running, engine.Running)
	b.agent.end(b.container(running, 1), 0)
	b.untilState(later, engine.Running)
	if n := b.agent.started(b.container(held, 1)); n != 0 {
		t.Fatalf("the held job was started %d times", n)
	}
	last := b.waiting()
	if _, err := b.d.Hold(t.Context(), b.caller(), held, false, ""); err != nil {
		t.Fatal(err)
	}
	b.until(held, "first in the queue again", func(j api.Job) bool { return !j.Held && j.Position == 1 })
	b.agent.end(b.container(later, 1), 0)
	b.untilState(held, engine.Running)
	if n := b.agent.started(b.container(last, 1)); n != 0 {
		t.Error("a later job went first")
	}
	kinds, texts := b.story(held)
	if i := slices.Index(kinds, "held"); i < 0 || texts[i] != "held by "+me().Name+": not yet" || !slices.Contains(kinds, "released-hold") {
		t.Errorf("the story is %q %q", kinds, texts)
	}
}

func TestHoldRefusesWhatDoesNotWait(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	for _, hold := range []bool{true, false} {
		_, err := b.d.Hold(t.Context(), b.caller(), id, hold, "")
		if codeOf(err) != api.CodeConflict || hold && !strings.Contains(err.Error(), "gputop preempt "+id.String()) {
			t.Errorf("hold=%t of a running job: %v", hold, err)
		}
	}
	if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil {
		t.Fatal(err)
	}
	b.untilState(id, engine.Cancelled)
	if _, err := b.d.Hold(t.Context(), b.caller(), id, true, ""); codeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "requeue") {
		t.Errorf("hold of an ended job: %v", err)
	}
	// What is already so needs no change: twice is as good as once, and leaves no second line.
	w := b.submit(spec(engine.Medium, "run"))
	for range 2 {
		for _, hold := range []bool{true, true, false, false} {
			if _, err := b.d.Hold(t.Context(), b.caller(), w, hold, ""); err != nil && codeOf(err) != api.CodeConflict {
				t.Fatal(err)
			}
		}
	}
}

func TestCancelledJobIsNotHeldAnyMore(t *testing.T) {
	b := fullBox(t)
	id := b.heldBy(root)
	if j, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil || j.Held || j.State != engine.Cancelled {
		t.Errorf("%+v, %v", j, err)
	}
}

func TestRequeue(t *testing.T) {
	b := newBox(t, 1)
	s := light("exit", "3")
	s.Env, s.SecretEnv, s.Output = map[string]string{"TOKEN": "s3cret"}, []string{"TOKEN"}, "/tmp/out-%j"
	old := b.submit(s)
	b.untilState(old, engine.Failed)
	r, err := b.d.Requeue(t.Context(), b.caller(), old, "the disk was full")
	if err != nil || r.Job.ID != old+1 {
		t.Fatalf("%+v, %v", r.Job, err)
	}
	b.untilState(r.Job.ID, engine.Failed)
	if env := b.agent.env(b.container(r.Job.ID, 1)); env["TOKEN"] != "s3cret" {
		t.Errorf("the new job has the environment %v", env)
	}
	kinds, texts := b.story(old)
	if i := slices.Index(kinds, "requeued"); i < 0 || texts[i] != "submitted again by "+me().Name+": the disk was full, as job "+r.Job.ID.String() {
		t.Errorf("the old job's story is %q %q", kinds, texts)
	}
	if _, texts := b.story(r.Job.ID); texts[0] != "again by "+me().Name+": the disk was full, as job "+old.String()+" was" {
		t.Errorf("the new job's story begins %q", texts[0])
	}
	if j, err := b.d.Show(t.Context(), b.caller(), old); err != nil || j.State != engine.Failed || j.Attempt != 1 {
		t.Errorf("the old job became %+v, %v", j.Job, err)
	}
	running := b.runningJob()
	if r, err := b.d.Requeue(t.Context(), b.caller(), running, ""); err != nil || r.Job.ID != running || r.Job.StopReason != engine.StopPreempted {
		t.Errorf("requeue of a running job: %+v, %v", r.Job, err)
	}
	b.until(running, "running again", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
	held := b.heldByLight()
	if _, err := b.d.Requeue(t.Context(), b.caller(), held, ""); codeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "gputop release") {
		t.Errorf("requeue of a held job: %v", err)
	}
	if _, err := b.d.Requeue(t.Context(), b.caller(), 999, ""); codeOf(err) != api.CodeNotFound {
		t.Errorf("requeue of no job: %v", err)
	}
}

// heldByLight is a held job for more GPUs than are free.
func (b *box) heldByLight() engine.JobID {
	b.t.Helper()
	b.untilState(b.submit(spec(engine.Medium, "run")), engine.Running)
	return b.heldBy(b.caller())
}

func TestUpdate(t *testing.T) {
	b := fullBox(t)
	low := b.waiting()
	first := b.waiting()
	j, err := b.d.Update(t.Context(), b.caller(), first, api.UpdateRequest{Name: ref("mine"), Class: ref(engine.High), TimeLimit: ref(2 * time.Hour),
		GPUFraction: ref(engine.Fraction(0.5)), CPUs: ref(engine.CPUs(2)), Memory: ref(engine.GiB), Reason: "smaller"})
	if err != nil || j.Name != "mine" || j.Class != engine.High || j.TimeLimit != 2*time.Hour || j.Request != (engine.Request{GPUFraction: 0.5, CPUs: 2, Memory: engine.GiB}) {
		t.Fatalf("%+v, %v", j, err)
	}
	_, texts := b.story(first)
	want := "updated by " + me().Name + `: smaller: name from "t" to "mine", class from medium to high, time limit from 1h0m0s to 2h0m0s, ` +
		"GPUs from 1 to 0.5 of one, CPUs from its share to 2, memory from its share to 1GiB"
	if texts[len(texts)-1] != want {
		t.Errorf("the story says %q\nwant           %q", texts[len(texts)-1], want)
	}
	b.until(first, "ahead", func(j api.Job) bool { return j.Position == 1 })
	b.restart()
	b.until(first, "as it was changed", func(j api.Job) bool { return j.Class == engine.High && j.Name == "mine" })
	if j, err := b.d.Update(t.Context(), b.caller(), low, api.UpdateRequest{GPUs: ref(0)}); err != nil || j.Request.WantsGPU() {
		t.Errorf("%+v, %v", j, err)
	}
	b.untilState(low, engine.Running) // it waits for no card any more
}

func TestUpdateRefuses(t *testing.T) {
	b := fullBox(t)
	w, r := b.waiting(), b.runningJob()
	b.boot.Add(int64(10 * time.Minute))
	for _, c := range []struct {
		name string
		id   engine.JobID
		u    api.UpdateRequest
		code api.ErrorCode
		want string
	}{
		{"nothing", w, api.UpdateRequest{Reason: "x"}, api.CodeInvalid, "nothing to change"},
		{"two ways", w, api.UpdateRequest{GPUs: ref(1), GPUMemory: ref(engine.GiB)}, api.CodeInvalid, "exclude each other"},
		{"more than the box has", w, api.UpdateRequest{GPUs: ref(2)}, api.CodeInvalid, "asks for 2 GPUs; this box has 1"},
		{"a wrong amount", w, api.UpdateRequest{GPUFraction: ref(engine.Fraction(1.5))}, api.CodeInvalid, "fraction 1.5"},
		{"a name with an escape", w, api.UpdateRequest{Name: ref("a\x1bb")}, api.CodeInvalid, "escape"},
		{"an endless limit", w, api.UpdateRequest{TimeLimit: ref(9000 * time.Hour * 24)}, api.CodeInvalid, "days allowed"},
		{"no limit", w, api.UpdateRequest{TimeLimit: ref(time.Duration(0))}, api.CodeInvalid, "cannot be nothing"},
		{"class of a running job", r, api.UpdateRequest{Class: ref(engine.Low)}, api.CodeConflict, "gputop preempt " + r.String()},
		{"GPUs of a running job", r, api.UpdateRequest{GPUs: ref(1)}, api.CodeConflict, "while it waits"},
		{"a limit that has passed", r, api.UpdateRequest{TimeLimit: ref(5 * time.Minute)}, api.CodeInvalid, "has run for 10m0s already"},
		{"no job", 999, api.UpdateRequest{GPUs: ref(1)}, api.CodeNotFound, "no job 999"},
	} {
		before, _ := b.d.Show(t.Context(), b.caller(), w)
		_, err := b.d.Update(t.Context(), b.caller(), c.id, c.u)
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s …%s…", c.name, err, c.code, c.want)
		}
		if after, err := b.d.Show(t.Context(), b.caller(), w); err != nil || after.Request != before.Request || len(after.Events) != len(before.Events) {
			t.Errorf("%s changed the job: %+v", c.name, after.Job)
		}
	}
	// Nothing new is no change, and no line in the story.
	if _, err := b.d.Update(t.Context(), b.caller(), w, api.UpdateRequest{GPUs: ref(1)}); err != nil {
		t.Error(err)
	}
	if n := len(b.trail(w)); n != 0 {
		t.Errorf("%d lines on the trail", n)
	}
}

func TestLoweredLimitOfARunningJobHolds(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	if _, err := b.d.Update(t.Context(), b.caller(), id, api.UpdateRequest{TimeLimit: ref(10 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	b.boot.Add(int64(11 * time.Minute))
	if j := b.untilState(id, engine.TimedOut); !strings.Contains(j.Message, "10m0s") {
		t.Errorf("message %q", j.Message)
	}
}

// A full disk changes nothing: neither the job nor the trail.
func TestChangeThatIsNotSavedIsNone(t *testing.T) {
	b := fullBox(t)
	id := b.waiting()
	b.store.Close()
	var e *api.Error
	if _, err := b.d.Hold(t.Context(), b.caller(), id, true, ""); !errors.As(err, &e) || e.Code != api.CodeUnavailable {
		t.Errorf("hold: %v", err)
	}
	_ = b.d.do(t.Context(), func() {
		if b.d.state.jobs[id].job.Held {
			t.Error("a hold that is not on disk is the state")
		}
	})
}
