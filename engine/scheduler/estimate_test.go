package scheduler

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

func showEstimates(p Plan) string {
	var out []string
	for _, id := range p.Order {
		if at, ok := p.Estimates[id]; ok {
			out = append(out, fmt.Sprintf("%d at %s", id, at.Sub(epoch)))
		}
	}
	return strings.Join(out, ", ")
}

func TestEstimates(t *testing.T) {
	for _, c := range []struct{ name, box, want string }{
		{"one after the other", `
			gpu 0 40
			held 9 0=40w high end=2h
			job 1 medium gpus=1 limit=1h
			job 2 medium gpus=1 limit=1h
			job 3 medium gpus=1 limit=1h`, "1 at 2h0m0s, 2 at 3h0m0s, 3 at 4h0m0s"},
		{"a short one passes, a long one does not", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w high end=1h
			held 9 1=40w high end=3h
			job 1 medium gpus=2 limit=1h
			job 2 medium gpus=1 limit=5h
			job 3 medium gpus=1 limit=1h`, "1 at 3h0m0s, 2 at 4h0m0s, 3 at 1h0m0s"},
		{"nobody knows when what has no end ends", `
			gpu 0 40
			held 9 0=40w high
			job 1 medium gpus=1`, ""},
		{"not who is held or over quota, and who starts now has no need of one", `
			gpu 0 40
			gpu 1 40
			account 0 jobs=0
			held 9 0=40w high end=1h
			job 1 high gpus=1 limit=1h
			job 2 medium gpus=1 limit=1h wait=Held
			job 3 medium gpus=1 acc=0
			job 4 medium gpus=1`, "4 at 1h0m0s"},
		{"a preemptor when its victims are gone", `
			gpu 0 40
			held 9 0=40w low ran=10m end=9h
			job 1 high gpus=1 limit=1h
			job 2 low gpus=1`, "1 at 30s, 2 at 1h0m30s"},
	} {
		if got := showEstimates(Compute(box(t, c.box), DefaultPolicy(), epoch)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Only the first so many have one; it is never in the past, and for the first that waits it is what its reason says.
func TestEstimatesAreOfTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.policy.Estimates = rapid.IntRange(0, 5).Draw(t, "estimates")
		p := Compute(w.Snapshot, w.policy, w.now)
		waits := slices.DeleteFunc(slices.Clone(p.Order), func(id engine.JobID) bool { _, ok := p.Reasons[id]; return !ok })
		estimated := 0
		for i, id := range waits {
			at, ok := p.Estimates[id]
			if !ok {
				continue
			}
			if estimated++; at.Before(epoch) {
				t.Fatalf("job %d at %s", id, at.Sub(epoch))
			}
			if why := p.Reasons[id]; i == 0 && why.Code == engine.WaitingForDevice && !why.Until.IsZero() && at.After(why.Until.Add(time.Second)) {
				t.Fatalf("job %d at %s, its reason says %s", id, at.Sub(epoch), why.Until.Sub(epoch))
			}
		}
		if estimated > w.policy.Estimates+len(p.Preempt) {
			t.Fatalf("%d estimates, %d asked for", estimated, w.policy.Estimates)
		}
	})
}

// With a second reservation the whole box is kept for who needs it, though a smaller one ahead of it waits too.
func TestReservations(t *testing.T) {
	s := box(t, `
		gpu 0 40
		gpu 1 40
		held 8 0=30 high end=1h
		held 9 0=10 high end=3h
		job 1 critical mem=41 wait=Held
		job 2 high mem=40 limit=1h
		job 3 high gpus=2 limit=1h
		job 4 low gpus=1 limit=9h`)
	s.Devices[1].Usable = 20 * engine.GiB
	for n, want := range map[int]string{
		1: "4 start 1=20GiB*",
		2: "4 BlockedByPriority behind 3 until 3h0m0s",
	} {
		p := DefaultPolicy()
		p.Reservations = n
		if got := show(Compute(s, p, epoch)); !strings.Contains(got, want) {
			t.Errorf("%d reservations:\n%swant %s", n, got, want)
		}
	}
}
