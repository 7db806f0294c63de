package scheduler

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

func TestQuota(t *testing.T) {
	checkRows(t, []row{
		{"whole cards up to the quota; others pass", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			account 0 gpus=2
			held 9 0=40w acc=0
			job 1 high gpus=1 acc=0
			job 2 high gpus=1 acc=0
			job 3 low gpus=1`, `
			1 start 1=40GiB*
			2 OverQuota 1000/0 milli-gpus (account 0)
			3 start 2=40GiB*`},
		{"shares count by their part of the card they are on", `
			gpu 0 40
			gpu 1 80
			account 0 gpus=0.5
			held 9 1=80w
			job 1 medium mem=20 acc=0
			job 2 medium mem=1 acc=0`, `
			1 start 0=20GiB
			2 OverQuota 13/0 milli-gpus (account 0)`},
		{"a share that counts too much where there is room", `
			gpu 0 40
			gpu 1 80
			account 0 gpus=0.3
			held 9 1=80w
			job 1 medium mem=20 acc=0`, `
			1 OverQuota 500/300 milli-gpus (account 0)`},
		{"a person's and a group's; the first that is used up is named", `
			gpu 0 40
			gpu 1 40
			account 0 gpus=2
			account 1 jobs=1
			held 8 0=10 acc=1
			job 1 medium gpus=1 acc=0,1`, `
			1 OverQuota 1/0 jobs (account 1)`},
		{"host memory and processors", `
			host 16 64
			account 0 ram=8 cpus=2
			job 1 medium gpus=0 ram=6 cpus=1 acc=0
			job 2 medium gpus=0 ram=4 cpus=1 acc=0
			job 3 medium gpus=0 ram=1 cpus=1.5 acc=0
			job 4 medium gpus=0 ram=1 cpus=1 acc=0`, `
			1 start cpus=1 mem=6GiB
			2 OverQuota 4GiB/2GiB (account 0)
			3 OverQuota 2/1 cores (account 0)
			4 start cpus=1 mem=1GiB`},
		{"a default share of the host gives way to a quota", `
			host 16 64
			gpu 0 40
			account 0 ram=40
			job 1 medium gpus=1 acc=0`, `
			1 start 0=40GiB* cpus=1 mem=28GiB`},
		{"who is over quota keeps no place", `
			gpu 0 40
			gpu 1 40
			account 0 gpus=1
			held 9 0=40w end=1h acc=0
			job 1 critical gpus=1 acc=0
			job 2 low gpus=1`, `
			1 OverQuota 1000/0 milli-gpus (account 0)
			2 start 1=40GiB*`},
	})
}

func TestWindows(t *testing.T) {
	checkRows(t, []row{
		{"a job that ends before passes; one that does not waits", `
			gpu 0 40
			gpu 1 40
			window 0 course from=2h to=4h for=7
			window 1 course from=2h to=4h for=7
			job 1 medium gpus=1 limit=3h of=5
			job 2 medium gpus=1 of=5
			job 3 medium gpus=1 limit=2h of=5
			job 4 medium gpus=1 limit=9h of=7`, `
			1 BlockedByReservation until 4h0m0s (course)
			2 BlockedByReservation until 4h0m0s (course)
			3 start 0=40GiB*
			4 start 1=40GiB*`},
		{"in the window only its people", `
			gpu 0 40
			window 0 course from=-1h to=1h for=7
			job 1 high gpus=1 limit=1m of=5
			job 2 low mem=10 of=7`, `
			1 BlockedByReservation until 1h0m0s (course)
			2 start 0=10GiB`},
		{"a drain has no end and no people", `
			gpu 0 40
			gpu 1 40
			window 0 drained from=-1h
			job 1 medium gpus=2 limit=1h
			job 2 medium gpus=1 limit=1h`, `
			1 DeviceDraining (drained)
			2 start 1=40GiB*`},
		{"after the window all is as before", `
			gpu 0 40
			window 0 course from=-3h to=0h for=7
			job 1 medium gpus=1 of=5`, `
			1 start 0=40GiB*`},
		{"nobody waits behind who waits for a window", `
			gpu 0 40
			gpu 1 40
			window 0 course from=-1h to=1h for=7
			job 1 high gpus=2 of=5
			job 2 low gpus=1 of=5`, `
			1 BlockedByReservation until 1h0m0s (course)
			2 start 1=40GiB*`},
		{"who is let past does not shut the window's people out", `
			gpu 0 40
			gpu 1 40
			held 9 1=40w end=1h
			window 0 course from=30m to=4h for=7
			job 1 high gpus=2 limit=1h of=7
			job 2 low gpus=1 limit=2h of=5
			job 3 low gpus=1 limit=20m of=5`, `
			1 WaitingForDevice 2/1 devices until 1h0m0s
			2 BlockedByReservation until 4h0m0s (course)
			3 start 0=40GiB*`},
	})
}

// drawRules gives a world quotas and windows.
func drawRules(t *rapid.T, w *world) {
	for range rapid.IntRange(1, 3).Draw(t, "accounts") {
		var q engine.Quota
		if rapid.Bool().Draw(t, "gpus?") {
			q.GPUs = ref(rapid.SampledFrom([]float64{0, 0.5, 1, 2, 3.25}).Draw(t, "quota gpus"))
		}
		if rapid.Bool().Draw(t, "jobs?") {
			q.Jobs = ref(rapid.IntRange(0, 4).Draw(t, "quota jobs"))
		}
		if rapid.Bool().Draw(t, "ram?") {
			q.Memory = ref(engine.Bytes(rapid.IntRange(0, 64).Draw(t, "quota ram")) * engine.GiB)
		}
		if rapid.Bool().Draw(t, "cpus?") {
			q.CPUs = ref(engine.CPUs(rapid.IntRange(0, 32).Draw(t, "quota cpus")))
		}
		w.Accounts = append(w.Accounts, Account{Name: "a", Quota: q})
	}
	of := func(name string) []int {
		return rapid.SliceOfNDistinct(rapid.IntRange(0, len(w.Accounts)-1), 0, len(w.Accounts), rapid.ID).Draw(t, name)
	}
	for i := range w.Held {
		w.Held[i].Accounts = of("held of")
	}
	for i := range w.Pending {
		w.Pending[i].Accounts = of("pending of")
		w.Pending[i].Owner = uint32(rapid.IntRange(0, 2).Draw(t, "owner"))
	}
	for i := range w.Devices {
		for range rapid.IntRange(0, 2).Draw(t, "windows") {
			win := Window{Name: "w", From: epoch.Add(time.Duration(rapid.IntRange(-3, 5).Draw(t, "from")) * time.Hour), For: map[uint32]bool{}}
			if rapid.Bool().Draw(t, "ends") {
				win.To = win.From.Add(time.Duration(rapid.IntRange(1, 4).Draw(t, "lasts")) * time.Hour)
			}
			win.For[uint32(rapid.IntRange(0, 3).Draw(t, "for"))] = true
			w.Devices[i].Windows = append(w.Devices[i].Windows, win)
		}
	}
}

// counted adds up by itself, not with the scheduler's own sums, what an account holds.
func counted(held []Held, account int) (gpus, jobs, cpus, memory float64) {
	for _, h := range held {
		if !slices.Contains(h.Accounts, account) {
			continue
		}
		jobs++
		cpus += float64(h.Allocation.CPUs)
		memory += float64(h.Allocation.Memory)
		for _, g := range h.Allocation.Grants {
			gpus += float64(g.Fraction)
		}
	}
	return gpus, jobs, cpus, memory
}

func within[T int | float64 | engine.CPUs | engine.Bytes](was, is float64, quota *T) bool {
	return quota == nil || is <= was || is <= float64(*quota)+0.005
}

// No plan takes an account above its quota, nor puts a job on a card that is promised to others in its time.
func TestPlanKeepsToQuotasAndWindows(t *testing.T) {
	refused := 0
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		drawRules(t, w)
		p := Compute(w.Snapshot, w.policy, w.now)
		after := clone(w.Snapshot)
		for _, st := range p.Start {
			j := w.Pending[slices.IndexFunc(w.Pending, func(j Pending) bool { return j.Job == st.Job })]
			if !StillFits(after, j, st.Allocation, w.policy, w.now) {
				t.Fatalf("job %d: the plan's own allocation does not fit", st.Job)
			}
			after.Held = append(after.Held, Held{Job: st.Job, Allocation: st.Allocation, Accounts: j.Accounts})
			for _, g := range st.Allocation.Grants {
				d := w.Devices[slices.IndexFunc(w.Devices, func(d Device) bool { return d.ID == g.Device })]
				for _, win := range d.Windows {
					over := !win.To.IsZero() && !win.To.After(epoch)
					before := j.TimeLimit > 0 && !epoch.Add(j.TimeLimit).After(win.From)
					if !win.For[j.Owner] && !over && !before {
						t.Fatalf("job %d of %d for %s on a card promised from %s", j.Job, j.Owner, j.TimeLimit, win.From.Sub(epoch))
					}
				}
			}
		}
		for i, a := range w.Accounts {
			g0, j0, c0, m0 := counted(w.Held, i)
			g, j, c, m := counted(after.Held, i)
			if !within(g0, g, a.Quota.GPUs) || !within(j0, j, a.Quota.Jobs) || !within(c0, c, a.Quota.CPUs) || !within(m0, m, a.Quota.Memory) {
				t.Fatalf("quota %s: %g GPUs, %g jobs, %g CPUs, %g bytes\n%s", a.Quota, g, j, c, m, show(p))
			}
		}
		for _, why := range p.Reasons {
			if why.Code == engine.OverQuota {
				refused++
			}
		}
	})
	if refused < 100 {
		t.Errorf("only %d jobs met a quota", refused)
	}
}

// A job that waits for its quota changes nothing for the others.
func TestOverQuotaIsInNobodysWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWorld(t)
		drawRules(t, w)
		p := Compute(w.Snapshot, w.policy, w.now)
		s := clone(w.Snapshot)
		s.Pending = slices.DeleteFunc(s.Pending, func(j Pending) bool { return p.Reasons[j.Job].Code == engine.OverQuota })
		if got, want := showStarts(Compute(s, w.policy, w.now)), showStarts(p); got != want {
			t.Fatalf("without them\n%swith\n%s", got, show(p))
		}
	})
}

func showStarts(p Plan) string { return show(Plan{Order: ids(p.Start), Start: p.Start}) }

func ids(list []Start) (out []engine.JobID) {
	for _, s := range list {
		out = append(out, s.Job)
	}
	return out
}

func TestWithinQuota(t *testing.T) {
	s := box(t, "gpu 0 40\ngpu 1 80")
	a := Account{Name: "alice", Quota: engine.Quota{GPUs: ref(1.5), Memory: ref(8 * engine.GiB), CPUs: ref(engine.CPUs(2))}}
	for _, c := range []struct {
		r    engine.Request
		want string
	}{
		{engine.Request{GPUs: 1}, ""},
		{engine.Request{GPUMemory: 80 * engine.GiB}, ""},
		{engine.Request{GPUs: 2}, "asks for 2 GPUs; the quota of alice is 1.5 GPUs at once"},
		{engine.Request{Memory: 9 * engine.GiB}, "asks for 9GiB; the quota of alice is 8GiB at once"},
		{engine.Request{CPUs: 2.5}, "asks for 3 CPU cores; the quota of alice is 2 CPU cores at once"},
	} {
		err := WithinQuota(s, a, c.r)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.r, got, c.want)
		}
	}
}
