package daemon

import (
	"os"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// What an attempt used is seen while it runs, over a restart, and after its end; by those who may look into the job.
func TestCurveOfAnAttempt(t *testing.T) {
	b := newBox(t, 1)
	busy := func(s *engine.Sample) {
		s.GPUs[0].SM = ref(0.4)
		s.GPUs[0].Processes = []engine.GPUProcess{{PID: os.Getpid(), Memory: ref(7 * engine.GiB)}}
	}
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.alter.Store(&busy) // before, the process would be a stranger's
	curve := func(c api.Caller) *engine.Curve {
		d, err := b.d.Show(t.Context(), c, id)
		if err != nil {
			t.Fatal(err)
		}
		return d.Attempts[0].Curve
	}
	used := func(c *engine.Curve) bool {
		if c == nil {
			return false
		}
		mem, sm := c.Peak()
		return mem != nil && *mem == 7*engine.GiB && sm != nil && *sm > 0.39 && *sm < 0.41
	}
	for !used(curve(b.caller())) {
		time.Sleep(10 * time.Millisecond)
	}
	if c := curve(mallory); c != nil {
		t.Errorf("a stranger sees %+v", c)
	}
	// It is stored now and then.
	b.boot.Add(curveSave.Nanoseconds())
	stored := func() *engine.Curve {
		_, attempts, _, err := b.store.Job(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return attempts[0].Curve
	}
	for !used(stored()) {
		time.Sleep(20 * time.Millisecond)
	}
	idle := func(s *engine.Sample) { s.GPUs[0].SM = ref(0.4) }
	b.alter.Store(&idle)
	b.restart()
	b.until(id, "adopted", func(j api.Job) bool { return j.State == engine.Running })
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
	if c := stored(); !used(c) {
		t.Errorf("after a restart and its end: %+v", c)
	}
	light := b.submit(light("exit", "0"))
	b.untilState(light, engine.Succeeded)
	if d, err := b.d.Show(t.Context(), b.caller(), light); err != nil || d.Attempts[0].Curve != nil {
		t.Errorf("a job without a GPU: %+v, %v", d.Attempts, err)
	}
}
