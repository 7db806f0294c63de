package scheduler

import (
	"testing"
	"time"

	"gputop/engine"
)

func TestExplain(t *testing.T) {
	p := DefaultPolicy()
	for _, c := range []struct {
		name, box string
		want      engine.Preempting
		spared    map[engine.JobID]engine.Spared
	}{
		{"what is stopped for it", `
			gpu 0 40
			held 9 0=40w low ran=1h end=20h checkpoints
			job 1 high gpus=1 age=10m`, engine.PreemptsNow, nil},
		{"and while that is going", `
			gpu 0 40
			held 9 0=40w low ran=1h end=20h checkpoints stopping for=1
			job 1 high gpus=1 age=10m`, engine.PreemptsNow, nil},
		{"a class that stops nobody", `
			gpu 0 40
			held 9 0=40w low ran=1h end=20h
			job 1 medium gpus=1 age=10m`, engine.PreemptsNotItsClass, nil},
		{"not before it has waited", `
			gpu 0 40
			held 9 0=40w low ran=1h end=4m
			job 1 high gpus=1 limit=1h`, engine.PreemptsNotDue, map[engine.JobID]engine.Spared{9: ""}},
		{"nobody would do", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			gpu 3 40
			gpu 4 40
			held 4 0=40w medium ran=1h end=20h
			held 5 1=40w high ran=1h end=20h
			held 6 2=40w low ran=1m end=20h
			held 7 3=40w low ran=1h end=20h preempted=6
			held 8 4=40w low ran=100h end=20h
			held 9 - cpus=1 low ran=1h end=20h
			job 1 high gpus=1 age=10m`, engine.PreemptsNobody,
			map[engine.JobID]engine.Spared{4: engine.SparedSite, 5: engine.SparedClass, 6: engine.SparedYoung, 7: engine.SparedProtected, 8: engine.SparedLoss}},
		{"over its quota", `
			gpu 0 40
			account 0 gpus=0
			held 9 0=40w low ran=1h end=20h
			job 1 high gpus=1 age=10m acc=0`, engine.PreemptsNotReady, nil},
	} {
		s := box(t, c.box)
		e, ok := Explain(s, p, epoch, 1)
		if !ok || e.Preempts != c.want || e.Position != 1 || e.Of != 1 {
			t.Errorf("%s: %+v, want %s", c.name, e, c.want)
		}
		got := map[engine.JobID]engine.Spared{}
		for _, r := range e.Running {
			got[r.Job] = r.Spared
			if r.Spared == engine.SparedYoung && r.Until.Sub(epoch) != 4*time.Minute {
				t.Errorf("%s: young until %s", c.name, r.Until)
			}
		}
		if len(got) != len(c.spared) {
			t.Errorf("%s: %v, want %v", c.name, got, c.spared)
		}
		for job, want := range c.spared {
			if got[job] != want {
				t.Errorf("%s: job %s is spared for %q, want %q", c.name, job, got[job], want)
			}
		}
	}
	p.By = 0
	if e, _ := Explain(box(t, "gpu 0 40\nheld 9 0=40w low ran=1h\njob 1 high gpus=1 age=1h"), p, epoch, 1); e.Preempts != engine.PreemptsNever {
		t.Errorf("with preemption off: %+v", e)
	}
	if _, ok := Explain(box(t, "gpu 0 40"), p, epoch, 1); ok {
		t.Error("a job that is not there")
	}
}
