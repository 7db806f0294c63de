package scheduler

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

// TestMain has rapid try more than its default, and leave no files behind; the command line still wins.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "1000", "rapid.nofailfile": "true"} {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func drawDevices(t *rapid.T) []Device {
	var out []Device
	for i := range rapid.IntRange(1, 5).Draw(t, "devices") {
		out = append(out, Device{ID: device(fmt.Sprint(i)), Index: i, Model: rapid.SampledFrom([]string{"A", "A", "B"}).Draw(t, "model"),
			Usable:      rapid.SampledFrom([]engine.Bytes{16, 40, 40, 80}).Draw(t, "usable") * engine.GiB,
			Foreign:     rapid.SampledFrom([]engine.Bytes{0, 0, 0, 100, 5000}).Draw(t, "foreign") * engine.MiB,
			ForeignBusy: rapid.IntRange(0, 9).Draw(t, "busy") == 9,
			Unavailable: rapid.SampledFrom([]engine.ReasonCode{"", "", "", "", "", engine.DeviceNotAnswering,
				engine.BlockedBySize}).Draw(t, "unavailable")})
	}
	return out
}

func drawRequest(t *rapid.T) (r engine.Request) {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
	case 1, 2:
		r.GPUs = rapid.IntRange(1, 4).Draw(t, "gpus")
	case 3:
		r.GPUMemory = rapid.SampledFrom([]engine.Bytes{1, 7, 15, 30, 60}).Draw(t, "mem") * engine.GiB
	case 4:
		r.GPUFraction = rapid.SampledFrom([]engine.Fraction{0.1, 0.25, 1. / 3, 0.5, 1}).Draw(t, "frac")
	}
	if r.WantsGPU() {
		r.GPUModel = rapid.SampledFrom([]string{"", "", "", "a", "b"}).Draw(t, "of model")
	}
	r.CPUs = rapid.SampledFrom([]engine.CPUs{0, 0, 0.1, 1, 4, 12}).Draw(t, "cpus")
	r.Memory = rapid.SampledFrom([]engine.Bytes{0, 0, 1, 8, 30}).Draw(t, "ram") * engine.GiB
	return r
}

// drawWorld is a random box with work on it and a queue of jobs that all can run there one day.
func drawWorld(t *rapid.T) *world {
	w := newWorld(DefaultPolicy())
	w.DevicesKnown = true
	w.Devices = drawDevices(t)
	w.HostCPUs = rapid.SampledFrom([]engine.CPUs{0, 2, 16, 64}).Draw(t, "host cpus")
	w.HostMemory = rapid.SampledFrom([]engine.Bytes{0, 4, 64, 256}).Draw(t, "host memory") * engine.GiB
	bare := newCapacity(w.Snapshot, w.policy)
	id := engine.JobID(100)
	for range rapid.IntRange(0, 6).Draw(t, "held") {
		w.hold(t, id)
		id++
	}
	for range rapid.IntRange(0, 12).Draw(t, "pending") {
		j := Pending{Job: id, Class: rapid.SampledFrom(engine.Classes).Draw(t, "class"), Request: drawRequest(t),
			Queued: epoch.Add(-time.Duration(rapid.IntRange(0, 50).Draw(t, "age")) * time.Hour)}
		j.TimeLimit = time.Duration(rapid.IntRange(0, 5).Draw(t, "limit")) * time.Hour
		id++
		bare.visit = visitOf(0, j.Request, time.Time{}, time.Time{})
		if bare.room(j.Request) {
			w.lasts[j.Job] = drawLast(t, j.TimeLimit)
			w.Pending = append(w.Pending, j)
		}
	}
	return w
}

// drawLast is how long a job really runs: at most its limit.
func drawLast(t *rapid.T, limit time.Duration) time.Duration {
	most := 6 * time.Hour
	if limit > 0 {
		most = limit
	}
	return time.Duration(rapid.IntRange(1, 4).Draw(t, "quarters")) * most / 4
}

// hold puts a random job that fits on the box.
func (w *world) hold(t *rapid.T, id engine.JobID) {
	a, _, ok := Fits(w.Snapshot, drawRequest(t), w.policy)
	if !ok {
		return
	}
	limit := time.Duration(rapid.IntRange(0, 5).Draw(t, "left")) * time.Hour
	h := Held{Job: id, Allocation: a, Stopping: rapid.IntRange(0, 9).Draw(t, "stopping") == 9,
		Class: rapid.SampledFrom(engine.Classes).Draw(t, "held class"), Preemptions: rapid.IntRange(0, 7).Draw(t, "preemptions"),
		Started:     epoch.Add(-time.Duration(rapid.IntRange(0, 90).Draw(t, "ran")) * time.Minute),
		Checkpoints: rapid.IntRange(0, 2).Draw(t, "checkpoints") == 2}
	if limit > 0 {
		h.End = epoch.Add(limit)
	}
	if len(a.Grants) > 0 && !a.Grants[0].Whole && rapid.IntRange(0, 4).Draw(t, "over") == 4 {
		h.Actual = map[engine.DeviceID]engine.Bytes{a.Grants[0].Device: a.Grants[0].Memory + engine.GiB}
	}
	w.ends[id] = epoch.Add(drawLast(t, limit))
	if h.Stopping {
		w.ends[id] = epoch.Add(time.Minute)
	}
	w.Held = append(w.Held, h)
}

// otherModel says which card of a start is not of the model that the job wants.
func otherModel(s Snapshot, st Start) string {
	for _, j := range s.Pending {
		for _, g := range st.Allocation.Grants {
			i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.ID == g.Device })
			if want := j.Request.GPUModel; j.Job == st.Job && want != "" && !strings.EqualFold(want, s.Devices[i].Model) {
				return fmt.Sprintf("%s is a %s, job %s wants a %s", g.Device, s.Devices[i].Model, j.Job, want)
			}
		}
	}
	return ""
}

// oversubscribed adds a box up by itself, not with the scheduler's own sums, and says what is given twice by a plan.
func oversubscribed(s Snapshot, p Plan) string {
	type sums struct {
		taken         engine.Bytes
		grants, whole int
	}
	at := map[engine.DeviceID]*sums{}
	for _, d := range s.Devices {
		at[d.ID] = &sums{taken: d.Foreign}
	}
	var cpus float64
	var memory engine.Bytes
	put := func(a engine.Allocation, actual map[engine.DeviceID]engine.Bytes) {
		cpus += float64(a.CPUs)
		memory += a.Memory
		for _, g := range a.Grants {
			at[g.Device].taken += max(g.Memory, actual[g.Device])
			at[g.Device].grants++
			if g.Whole {
				at[g.Device].whole++
			}
		}
	}
	for _, h := range s.Held {
		put(h.Allocation, h.Actual)
	}
	before := map[engine.DeviceID]engine.Bytes{}
	for id, x := range at {
		before[id] = x.taken
	}
	for _, st := range p.Start {
		put(st.Allocation, nil)
		if bad := otherModel(s, st); bad != "" {
			return bad
		}
	}
	for _, d := range s.Devices {
		x := at[d.ID]
		if x.whole > 1 || x.whole == 1 && x.grants > 1 {
			return fmt.Sprintf("%s: whole, and %d grants", d.ID, x.grants)
		}
		if x.taken == before[d.ID] {
			continue
		}
		if d.Unavailable != "" || d.ForeignBusy {
			return fmt.Sprintf("%s: cannot be used", d.ID)
		}
		if x.whole == 0 && x.taken > d.Usable {
			return fmt.Sprintf("%s: %s of %s", d.ID, x.taken, d.Usable)
		}
		if x.whole == 1 && d.Foreign > DefaultPolicy().ForeignThreshold {
			return fmt.Sprintf("%s: whole, with a stranger on it", d.ID)
		}
	}
	if s.HostCPUs > 0 && cpus > float64(s.HostCPUs)+1e-6 {
		return fmt.Sprintf("host: %g of %g cores", cpus, float64(s.HostCPUs))
	}
	if s.HostMemory > 0 && memory > s.HostMemory {
		return fmt.Sprintf("host: %s of %s", memory, s.HostMemory)
	}
	return ""
}

func TestNeverOversubscribed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.check = func(s Snapshot, p Plan, _ time.Time) {
			if what := oversubscribed(s, p); what != "" {
				t.Fatalf("%s\n%s", what, show(p))
			}
		}
		for w.plan(); w.step(); w.plan() {
		}
	})
}

// Every start gives what was asked for, every pending job is in the plan exactly once, and one that is said to wait for
// a device or the host does not fit.
func TestPlanIsComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		p := Compute(w.Snapshot, w.policy, w.now)
		if len(p.Order) != len(w.Pending) || len(p.Start)+len(p.Reasons) != len(w.Pending) {
			t.Fatalf("%d pending, %d in order, %d starts, %d reasons", len(w.Pending), len(p.Order), len(p.Start), len(p.Reasons))
		}
		after := clone(w.Snapshot)
		for _, st := range p.Start {
			r := request(w.Snapshot, st.Job)
			if len(st.Allocation.Grants) != max(r.GPUs, boolInt(r.IsShare())) || st.Allocation.Memory < r.Memory ||
				st.Allocation.CPUs < r.CPUs {
				t.Fatalf("job %d: %+v for %+v", st.Job, st.Allocation, r)
			}
			if !StillFits(after, Pending{}, st.Allocation, w.policy, w.now) {
				t.Fatalf("job %d: the plan's own allocation does not fit", st.Job)
			}
			after.Held = append(after.Held, Held{Job: st.Job, Allocation: st.Allocation})
		}
		for id, why := range p.Reasons {
			if _, _, fits := Fits(after, request(w.Snapshot, id), w.policy); fits && why.Code != engine.BlockedByPriority && why.Code != engine.WaitingForPreempted {
				t.Fatalf("job %d fits, but: %s", id, showReason(why))
			}
		}
	})
}

func request(s Snapshot, id engine.JobID) engine.Request {
	return s.Pending[slices.IndexFunc(s.Pending, func(j Pending) bool { return j.Job == id })].Request
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSameInputSamePlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		first := Compute(w.Snapshot, w.policy, w.now)
		s := clone(w.Snapshot)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		r.Shuffle(len(s.Devices), reflect.Swapper(s.Devices))
		r.Shuffle(len(s.Held), reflect.Swapper(s.Held))
		r.Shuffle(len(s.Pending), reflect.Swapper(s.Pending))
		if again := Compute(s, w.policy, w.now); !reflect.DeepEqual(first, again) {
			t.Fatalf("first\n%sin another order\n%s", show(first), show(again))
		}
	})
}

func TestSnapshotIsNotChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		before := clone(w.Snapshot)
		p := Compute(w.Snapshot, w.policy, w.now)
		for i := range p.Start { // nor does the plan share memory with it
			for g := range p.Start[i].Allocation.Grants {
				p.Start[i].Allocation.Grants[g].Memory = -1
			}
		}
		if !reflect.DeepEqual(before, w.Snapshot) {
			t.Fatalf("before %+v\nafter %+v", before, w.Snapshot)
		}
	})
}

// A job ahead in the queue never waits while one behind it that asks for the same starts.
func TestNoneOfTheSameSizePasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		for i := range w.Pending { // few kinds, so that there are many of the same
			k := rapid.IntRange(0, min(i, 2)).Draw(t, "kind")
			w.Pending[i].Request, w.Pending[i].TimeLimit = w.Pending[k].Request, w.Pending[k].TimeLimit
		}
		p := Compute(w.Snapshot, w.policy, w.now)
		waits := map[size]engine.JobID{}
		for _, id := range p.Order {
			j := w.Pending[slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == id })]
			s := size{request: j.Request, limit: j.TimeLimit}
			if _, wait := p.Reasons[id]; wait {
				waits[s] = id
			} else if waits[s] != 0 {
				t.Fatalf("job %d starts and %d waits\n%s", id, waits[s], show(p))
			}
		}
	})
}

// The first job that waits starts no later than it was first told; where nobody could tell, it starts just when it
// would have with no other job in the queue.
func TestBackfillNeverDelaysTheHead(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.policy.AgeingStep = nil // ageing may put another job in front
		p := w.plan()
		i := slices.IndexFunc(p.Order, func(id engine.JobID) bool { _, waits := p.Reasons[id]; return waits })
		if i < 0 {
			return
		}
		seen++
		head := p.Order[i]
		alone := w.without(head, p)
		promised := p.Reasons[head].Until
		for w.began[head].IsZero() && w.step() {
			p = w.plan()
			if u := p.Reasons[head].Until; !u.IsZero() && (promised.IsZero() || u.Before(promised)) {
				promised = u
			}
		}
		for alone.began[head].IsZero() && alone.step() {
			alone.plan()
		}
		if promised.IsZero() {
			promised = alone.began[head]
		}
		if began := w.began[head]; began.IsZero() || began.After(promised) {
			t.Fatalf("job %d began at %s, promised %s", head, began.Sub(epoch), promised.Sub(epoch))
		}
	})
	if seen < 10 {
		t.Errorf("only %d boxes had a job waiting", seen)
	}
}

// without is a copy of the world with one job pending, and running only what was ahead of it.
func (w *world) without(head engine.JobID, p Plan) *world {
	o := *w
	o.Snapshot = clone(w.Snapshot)
	o.began = map[engine.JobID]time.Time{}
	o.Pending = slices.DeleteFunc(o.Pending, func(j Pending) bool { return j.Job != head })
	at := slices.Index(p.Order, head)
	o.Held = slices.DeleteFunc(o.Held, func(h Held) bool { return slices.Index(p.Order, h.Job) > at })
	o.policy.By, o.again = 0, time.Time{}
	o.requeue, o.asked, o.stopped = map[engine.JobID]Held{}, map[engine.JobID]Pending{}, map[engine.JobID]int{}
	o.ends = map[engine.JobID]time.Time{}
	for k, v := range w.ends {
		o.ends[k] = v
	}
	return &o
}

func TestEverythingRunsInTheEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		w.arrivals, w.Pending = w.Pending, nil
		for i := range w.arrivals {
			w.arrivals[i].Queued = epoch.Add(time.Duration(i) * 30 * time.Minute)
		}
		for w.plan(); w.step(); w.plan() {
		}
		if len(w.Pending) > 0 {
			t.Fatalf("the box is empty and %d jobs wait\n%s", len(w.Pending), show(Compute(w.Snapshot, w.policy, w.now)))
		}
	})
}

// A job that needs the whole box gets it within the longest wait of its class and a job's length, whatever stream of
// small high jobs, of people who had less of the machine, comes meanwhile.
func TestNobodyWaitsWithoutBound(t *testing.T) {
	for class, want := range map[engine.Class]time.Duration{engine.Low: 13 * 24 * time.Hour, engine.Medium: 11 * 24 * time.Hour,
		engine.High: 24 * time.Hour} {
		w := newWorld(DefaultPolicy())
		if got, ok := w.policy.LongestWait(class); !ok || got != want {
			t.Errorf("%s: the longest wait is %s, %v, want %s", class, got, ok, want)
		}
		w.Snapshot = box(t, "gpu 0 40\ngpu 1 40\nshare 1 usage=1e9\njob 1 "+class.String()+" gpus=2 limit=1h of=1")
		w.lasts[1] = time.Hour
		for i := range int(want/(15*time.Minute)) + 100 {
			j := Pending{Job: engine.JobID(i + 2), Class: engine.High, Request: engine.Request{GPUs: 1}, TimeLimit: time.Hour,
				Queued: epoch.Add(time.Duration(i) * 15 * time.Minute), Owner: uint32(2 + i%5)}
			w.lasts[j.Job] = time.Hour
			w.arrivals = append(w.arrivals, j)
			if i%100 == 99 { // or the queue would only grow
				w.arrivals = w.arrivals[:len(w.arrivals)-50]
			}
		}
		for w.plan(); w.began[1].IsZero() && w.step(); w.plan() {
		}
		if got := w.began[1].Sub(epoch); got < want-24*time.Hour || got > want+2*time.Hour {
			t.Errorf("%s: began after %s, want about %s", class, got, want)
		}
	}
}
