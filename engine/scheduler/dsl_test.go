package scheduler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gputop/engine"
)

// epoch is "now" in every table.
var epoch = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// box reads a snapshot, one thing a line; amounts of memory are in GiB:
//
//	host 16 64                  cores and memory; without it the host is not limited
//	gpu 0 40 [foreign=2] [busy] [away] [mig] [model=NVIDIA-A100] [heat=60] [near=1:40,2:10]
//	account 0 [gpus=2] [jobs=3] [cpus=4] [ram=8]
//	window 0 course from=1h to=3h for=7,8     on card 0; for nobody it is a drain
//	share 7 usage=3600 [weight=2]             of the person 7; without such a line there are no shares
//	held 1 0=40w,1=10 [low] [ran=2h] [for=7] [checkpoints] [every=10m] [preempted=2] [of=7] [end=2h] [stopping] [releasing] [actual=0:12] [cpus=4] [mem=8] [acc=0,1]
//	job 7 medium gpus=1|mem=10|frac=0.5 [model=a100] [limit=1h] [age=3h] [cpus=2] [ram=4] [wait=Held] [after=1h] [of=7] [acc=0,1] [promised]
func box(t testing.TB, text string) Snapshot {
	t.Helper()
	s := Snapshot{DevicesKnown: true}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		opt := map[string]string{}
		for _, o := range f[1:] {
			k, v, _ := strings.Cut(o, "=")
			opt[k] = v
		}
		switch f[0] {
		case "host":
			s.HostCPUs, s.HostMemory = engine.CPUs(num(t, f[1])), gib(t, f[2])
		case "unknown":
			s.DevicesKnown = false
		case "gpu":
			s.Devices = append(s.Devices, gpuLine(t, f, opt))
		case "share":
			if s.Shares == nil {
				s.Shares = map[uint32]Share{}
			}
			s.Shares[uint32(num(t, f[1]))] = Share{Usage: num(t, opt["usage"]), Weight: num(t, opt["weight"])}
		case "account":
			s.Accounts = append(s.Accounts, accountLine(t, f, opt))
		case "window":
			i := slices.IndexFunc(s.Devices, func(d Device) bool { return d.ID == device(f[1]) })
			s.Devices[i].Windows = append(s.Devices[i].Windows, windowLine(t, f, opt))
		case "held":
			s.Held = append(s.Held, heldLine(t, s, f, opt))
		case "job":
			s.Pending = append(s.Pending, jobLine(t, f, opt))
		default:
			t.Fatalf("line %q", line)
		}
	}
	return s
}

func gpuLine(t testing.TB, f []string, opt map[string]string) Device {
	d := Device{ID: device(f[1]), Index: int(num(t, f[1])), Usable: gib(t, f[2]), Foreign: gib(t, opt["foreign"]), Model: opt["model"], Temperature: int(num(t, opt["heat"]))}
	for pair := range strings.SplitSeq(opt["near"], ",") {
		if index, v, ok := strings.Cut(pair, ":"); ok {
			if d.Near == nil {
				d.Near = map[engine.DeviceID]int{}
			}
			d.Near[device(index)] = int(num(t, v))
		}
	}
	if _, ok := opt["busy"]; ok {
		d.ForeignBusy = true
	}
	if _, ok := opt["away"]; ok {
		d.Unavailable = engine.DeviceNotAnswering
	}
	if _, ok := opt["mig"]; ok {
		d.Unavailable = engine.BlockedBySize
	}
	return d
}

func accountLine(t testing.TB, f []string, opt map[string]string) Account {
	a := Account{Name: "account " + f[1]}
	for key, v := range opt {
		switch key {
		case "gpus":
			a.Quota.GPUs = ref(num(t, v))
		case "jobs":
			a.Quota.Jobs = ref(int(num(t, v)))
		case "cpus":
			a.Quota.CPUs = ref(engine.CPUs(num(t, v)))
		case "ram":
			a.Quota.Memory = ref(gib(t, v))
		}
	}
	return a
}

func windowLine(t testing.TB, f []string, opt map[string]string) Window {
	w := Window{Name: f[2], From: epoch.Add(dur(t, opt["from"])), For: map[uint32]bool{}}
	if v, ok := opt["to"]; ok {
		w.To = epoch.Add(dur(t, v))
	}
	for _, who := range ints(t, opt["for"]) {
		w.For[uint32(who)] = true
	}
	w.Drain = len(w.For) == 0
	return w
}

func ref[T any](v T) *T { return &v }

func ints(t testing.TB, s string) (out []int) {
	t.Helper()
	if s == "" {
		return nil
	}
	for f := range strings.SplitSeq(s, ",") {
		out = append(out, int(num(t, f)))
	}
	return out
}

func heldLine(t testing.TB, s Snapshot, f []string, opt map[string]string) Held {
	h := Held{Job: engine.JobID(num(t, f[1])), Actual: map[engine.DeviceID]engine.Bytes{}}
	h.Allocation = engine.Allocation{State: engine.Active, CPUs: engine.CPUs(num(t, opt["cpus"])), Memory: gib(t, opt["mem"])}
	if !strings.HasPrefix(f[2], "-") {
		for g := range strings.SplitSeq(f[2], ",") {
			index, amount, _ := strings.Cut(g, "=")
			size, whole := strings.CutSuffix(amount, "w")
			h.Allocation.Grants = append(h.Allocation.Grants,
				engine.Grant{Device: device(index), Memory: gib(t, size), Whole: whole, Fraction: 1})
		}
	}
	if v, ok := opt["end"]; ok {
		h.End = epoch.Add(dur(t, v))
	}
	if _, ok := opt["releasing"]; ok {
		h.Allocation.State = engine.Releasing
	}
	for _, c := range engine.Classes {
		if _, ok := opt[c.String()]; ok {
			h.Class = c
		}
	}
	if v, ok := opt["ran"]; ok {
		h.Started = epoch.Add(-dur(t, v))
	}
	_, h.Checkpoints = opt["checkpoints"]
	h.CheckpointEvery, h.Preemptions = dur(t, opt["every"]), int(num(t, opt["preempted"]))
	h.For, h.Owner = engine.JobID(num(t, opt["for"])), uint32(num(t, opt["of"]))
	_, h.Stopping = opt["stopping"]
	h.Accounts = ints(t, opt["acc"])
	if index, amount, ok := strings.Cut(opt["actual"], ":"); ok {
		h.Actual[device(index)] = gib(t, amount)
	}
	return h
}

func jobLine(t testing.TB, f []string, opt map[string]string) Pending {
	class, err := engine.ParseClass(f[2])
	if err != nil {
		t.Fatal(err)
	}
	j := Pending{Job: engine.JobID(num(t, f[1])), Class: class, Queued: epoch.Add(-dur(t, opt["age"])),
		TimeLimit: dur(t, opt["limit"]), Wait: engine.ReasonCode(opt["wait"])}
	j.Request = engine.Request{GPUs: int(num(t, opt["gpus"])), GPUMemory: gib(t, opt["mem"]),
		GPUFraction: engine.Fraction(num(t, opt["frac"])), CPUs: engine.CPUs(num(t, opt["cpus"])), Memory: gib(t, opt["ram"]), GPUModel: opt["model"]}
	j.Owner, j.Accounts = uint32(num(t, opt["of"])), ints(t, opt["acc"])
	_, j.Promised = opt["promised"]
	if v, ok := opt["after"]; ok {
		j.NotBefore = epoch.Add(dur(t, v))
	}
	return j
}

func device(index string) engine.DeviceID { return engine.DeviceID("GPU-" + index) }

func num(t testing.TB, s string) float64 {
	t.Helper()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func gib(t testing.TB, s string) engine.Bytes { return engine.Bytes(num(t, s) * float64(engine.GiB)) }

func dur(t testing.TB, s string) time.Duration {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// show writes a plan down, a line a job in queue order:
//
//	7 start 0=40GiB* 1=40GiB* cpus=4 mem=8GiB     * whole
//	8 WaitingForDevice 2/1 devices until 2h0m0s
//	9 BlockedByPriority behind 8 until 2h0m0s
//
// with who is stopped for whom before all.
func show(p Plan) string {
	starts := map[engine.JobID]engine.Allocation{}
	for _, s := range p.Start {
		starts[s.Job] = s.Allocation
	}
	var b strings.Builder
	for _, v := range p.Preempt {
		fmt.Fprintf(&b, "stop %d for %d\n", v.Victim, v.For)
	}
	for _, id := range p.Order {
		if a, ok := starts[id]; ok {
			fmt.Fprintf(&b, "%d start%s\n", id, showAllocation(a))
			continue
		}
		fmt.Fprintf(&b, "%d %s\n", id, showReason(p.Reasons[id]))
	}
	return b.String()
}

func showAllocation(a engine.Allocation) string {
	var b strings.Builder
	for _, g := range a.Grants {
		fmt.Fprintf(&b, " %s=%s", strings.TrimPrefix(string(g.Device), "GPU-"), g.Memory)
		if g.Whole {
			b.WriteString("*")
		}
	}
	if a.CPUs > 0 {
		fmt.Fprintf(&b, " cpus=%g", float64(a.CPUs))
	}
	if a.Memory > 0 {
		fmt.Fprintf(&b, " mem=%s", a.Memory)
	}
	return b.String()
}

func showReason(r engine.Reason) string {
	var b strings.Builder
	b.WriteString(string(r.Code))
	switch r.Unit {
	case "":
	case engine.UnitBytes:
		fmt.Fprintf(&b, " %s/%s", engine.Bytes(r.Needed), engine.Bytes(r.Free))
	default:
		fmt.Fprintf(&b, " %d/%d %s", r.Needed, r.Free, r.Unit)
	}
	if r.Job != 0 {
		fmt.Fprintf(&b, " behind %d", r.Job)
	}
	if !r.Until.IsZero() {
		fmt.Fprintf(&b, " until %s", r.Until.Sub(epoch))
	}
	if r.Detail != "" {
		fmt.Fprintf(&b, " (%s)", r.Detail)
	}
	return b.String()
}

// lines trims an indented block so that tables can be indented.
func lines(s string) string {
	var out []string
	for l := range strings.Lines(s) {
		if l = strings.TrimSpace(l); l != "" {
			out = append(out, l)
		}
	}
	return strings.Join(out, "\n") + "\n"
}

type row struct{ name, box, want string }

func checkRows(t *testing.T, rows []row) {
	t.Helper()
	checkRowsUnder(t, DefaultPolicy(), rows)
}

func checkRowsUnder(t *testing.T, p Policy, rows []row) {
	t.Helper()
	names := []string{}
	for _, r := range rows {
		if slices.Contains(names, r.name) {
			t.Fatalf("two rows are named %q", r.name)
		}
		names = append(names, r.name)
		t.Run(r.name, func(t *testing.T) {
			got := show(Compute(box(t, r.box), p, epoch))
			if want := lines(r.want); got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}
