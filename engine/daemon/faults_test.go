package daemon

import (
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// A card with an error of its hardware is drained until somebody gives it back, over restarts of the sampler and the
// daemon; one with an error of a program is not.
func TestAFaultyCardIsDrained(t *testing.T) {
	b := newBox(t, 1)
	report := func(code int, at time.Time) {
		f := func(s *engine.Sample) {
			x := engine.XID{Code: code, Time: at, Count: 1}
			if s.GPUs[0].XIDs = []engine.XID{x}; !x.Application() {
				s.GPUs[0].Health, s.GPUs[0].HealthDetail, s.GPUs[0].FaultXID = engine.HealthFault, "Xid", code
			}
		}
		b.alter.Store(&f)
	}
	report(31, b.now())
	first := b.submit(spec(engine.Medium, "exit", "0"))
	b.untilState(first, engine.Succeeded)
	report(48, b.now())
	drained := func() []api.Reservation {
		list, err := b.d.Reserved(t.Context(), b.caller())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for len(drained()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if r := drained()[0]; !r.Drain || !r.To.IsZero() || r.By.Name != "gputop" || !strings.Contains(r.Reason, "Xid 48") {
		t.Errorf("drained: %+v", r)
	}
	// The sampler starts again, and knows nothing of it; so does the daemon.
	b.alter.Store(nil)
	b.restart()
	waits := b.submit(spec(engine.Medium, "run"))
	b.until(waits, "waiting for the drained card", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.DeviceDraining })
	if n := len(drained()); n != 1 {
		t.Errorf("%d drains", n)
	}
	// With the error still reported, undrain gives the card back; the next error takes it again.
	report(48, b.now())
	for len(drained()) != 1 {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(50 * time.Millisecond)
	if _, err := b.d.Undrain(t.Context(), root, api.UndrainRequest{Reason: "seated anew"}); err != nil {
		t.Fatal(err)
	}
	b.untilState(waits, engine.Running)
	if g := b.d.GPUs(b.caller()).GPUs[0]; g.Health != engine.HealthOK || len(drained()) != 0 {
		t.Errorf("after undrain: %s, %d drains", g.Health, len(drained()))
	}
	report(48, b.now())
	for len(drained()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	trail, err := b.d.Audit(t.Context(), root, api.AuditQuery{})
	found := 0
	for _, e := range trail.Entries {
		if e.User.Name == "gputop" && strings.Contains(e.Reason, "Xid 48") {
			found++
		}
	}
	if err != nil || found != 2 {
		t.Errorf("%d drains on the trail, %v", found, err)
	}
}

// A job whose card fell off the bus ends with that reason, and runs elsewhere if it may run again.
func TestJobsOfALostCardEnd(t *testing.T) {
	b := newBox(t, 2)
	again := spec(engine.Medium, "run")
	again.Checkpoint = true
	lost, other := b.submit(again), b.submit(spec(engine.Medium, "run"))
	b.untilState(lost, engine.Running)
	b.untilState(other, engine.Running)
	gone := func(s *engine.Sample) {
		s.GPUs[0].Health, s.GPUs[0].MemoryUsed = engine.HealthLost, nil
	}
	b.alter.Store(&gone)
	time.Sleep(100 * time.Millisecond)
	if d, err := b.d.Show(t.Context(), b.caller(), lost); err != nil || d.State != engine.Running {
		t.Errorf("at once: %s, %v", d.State, err)
	}
	b.boot.Add(int64(11 * time.Second))
	j := b.until(lost, "back in the queue", func(j api.Job) bool { return j.State == engine.Pending })
	if want := "GPU 0 (" + cardName(0) + ") fell off the bus"; j.Message != want {
		t.Errorf("%q, want %q", j.Message, want)
	}
	b.agent.end(b.container(other, 1), 0)
	b.ahead.Store(int64(time.Minute))
	j = b.until(lost, "running on the other card", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
	if len(j.Grants) != 1 || string(j.Grants[0].Device) != cardName(1) {
		t.Errorf("it has %+v", j.Grants)
	}
}
