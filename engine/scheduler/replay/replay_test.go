package replay

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

func options(name string) Options {
	p, _ := scheduler.NamedPolicy(name)
	p.Of = []engine.Class{engine.Low, engine.Medium}
	return Options{GPUs: 8, Memory: 40 * engine.GiB, Policy: p, Limits: LimitsTrue, Start: StartLatency}
}

func play(t *testing.T, jobs []Job, o Options) Result {
	t.Helper()
	r, err := Play(jobs, o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func workload(t *testing.T, load float64) []Job {
	t.Helper()
	jobs, err := Standard(Generate(1000, 7), 0, load, 8)
	if err != nil {
		t.Fatal(err)
	}
	for i := range jobs {
		if jobs[i].Class == engine.High { // none of which keeps the others waiting with a box full of them
			jobs[i].GPUs = 1
		}
	}
	return jobs
}

// Each by hand: a start takes 5 s, a victim 30 s, what it did is done again.
func TestPlay(t *testing.T) {
	job := func(at, lasts time.Duration, gpus int, c engine.Class) Job {
		return Job{Arrival: at, Duration: lasts, GPUs: gpus, Fraction: 1, Class: c}
	}
	jobs := []Job{job(0, time.Hour, 8, engine.Low), job(20*time.Minute, 10*time.Minute, 1, engine.High)}
	o := options(scheduler.Urgent)
	o.Policy.Patience = 0
	r := play(t, jobs, o)
	// It ran for 20 min less 5 s; the high one starts 35 s after it came, ends 10 min later; then all over again.
	want := Result{Classes: []ClassResult{{engine.High, 1, 35, 35, 35, 35},
		{engine.Low, 1, 1200 + 35 + 600 + 5, 1840, 1840, 1840}},
		Makespan: 1200 + 35 + 600 + 5 + 3600, WastedGPUSeconds: 1195 * 8, Preemptions: 1, Jain: 1}
	work := 8.0*3600 + 600
	want.UsefulUtilisation, want.Waste = work/(8*want.Makespan), want.WastedGPUSeconds/work
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
	o.Checkpoint = true
	if r = play(t, jobs, o); r.WastedGPUSeconds != 0 || r.Makespan != want.Makespan-1195 {
		t.Errorf("with checkpoints: %+v", r)
	}
	o.Policy.By = 0
	if r = play(t, jobs, o); r.Preemptions != 0 || r.Makespan != 5+3600+5+600 {
		t.Errorf("without preemption: %+v", r)
	}
	if _, err := Play([]Job{job(0, time.Hour, 9, engine.Low)}, o); err == nil || !strings.Contains(err.Error(), "job 1 of the workload asks for 9 GPUs") {
		t.Errorf("a job too large: %v", err)
	}
}

// On a workload of the standard trace's family the policies do what their names say, and the same replay gives the
// same result.
func TestPoliciesOnAWorkload(t *testing.T) {
	jobs := workload(t, 0.9)
	none := options(scheduler.Balanced)
	none.Policy.By = 0
	ckpt := options(scheduler.Balanced)
	ckpt.Checkpoint = true
	rest, balanced, urgent, saved := play(t, jobs, none), play(t, jobs, options(scheduler.Balanced)), play(t, jobs, options(scheduler.Urgent)), play(t, jobs, ckpt)
	high := func(r Result) ClassResult { c, _ := r.Class(engine.High); return c }
	t.Logf("none %+v\nbalanced %+v\nurgent %+v\ncheckpoints %+v", rest, balanced, urgent, saved)
	switch {
	case max(high(balanced).Mean, high(urgent).Mean) > high(rest).Mean/2:
		t.Error("high jobs wait longer than they should")
	case high(urgent).P95 > 330 || high(saved).P95 > 120:
		t.Error("urgent and checkpoints do not keep high waits short")
	case balanced.Waste > 0.04 || urgent.Waste > 0.18 || saved.WastedGPUSeconds != 0 || rest.Preemptions != 0:
		t.Error("too much is thrown away")
	case min(rest.UsefulUtilisation, balanced.UsefulUtilisation, urgent.UsefulUtilisation) < 0.6:
		t.Error("the box is badly used")
	}
	if again := play(t, jobs, options(scheduler.Urgent)); !reflect.DeepEqual(again, urgent) {
		t.Errorf("again %+v", again)
	}
}

// Whatever is known of durations, everything runs.
func TestLimits(t *testing.T) {
	jobs := workload(t, 1.5)
	for _, l := range []Limits{LimitsTrue, LimitsLoose, LimitsMissing} {
		o := options(scheduler.Balanced)
		o.Limits, o.Seed = l, 3
		r := play(t, jobs, o)
		for i, limit := range l.of(jobs, 3) {
			switch d := jobs[i].Duration; {
			case limit < d, l == LimitsTrue && limit != d, l == LimitsLoose && limit > 5*d:
				t.Fatalf("%s: job %d runs for %s and has %s", l, i, d, limit)
			}
		}
		if len(r.Classes) != 3 || r.Makespan <= 0 {
			t.Errorf("%s: %+v", l, r)
		}
	}
}

func TestReadTrace(t *testing.T) {
	const head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
	rows, err := ReadTrace(strings.NewReader(head + `a,1,1,1,470,,BE,Running,100,400,150
b,1,1,0,0,,LS,Running,90,400,150
c,1,1,8,1000,,LS,Running,50,900000,60
d,1,1,1,1000,,LS,Pending,60,,
e,1,1,1,1000,,LS,Failed,60,61,60
`))
	want := []Row{{50 * time.Second, 24 * time.Hour, 8, 1, false}, {60 * time.Second, 30 * time.Second, 1, 1, false},
		{100 * time.Second, 250 * time.Second, 1, 0.47, true}}
	if err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("%+v, %v", rows, err)
	}
	for text, want := range map[string]string{
		"":                                      "the trace's head",
		"name,qos\n":                            "no column num_gpu",
		head + "a,1,1":                          "record on line 2",
		head + "a,1,1,x,1,,LS,R,1,2,1\n":        `line 2 of the trace: num_gpu is "x"`,
		head + "a,1,1,1,1001,,LS,R,1,2,1\n":     "line 2 of the trace: fraction 1.001",
		head + "a,1,1,1,1000,,LS,R,NaN,2,1\n":   "creation_time",
		head + "a,1,1,1,1000,,LS,R,1,1e300,1\n": "deletion_time",
	} {
		if _, err := ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestStandard(t *testing.T) {
	rows := Generate(200, 1)
	jobs, err := Standard(rows, 100, 0.9, 8)
	if err != nil || len(jobs) != 100 || jobs[0].Class != engine.High || jobs[10].Class != engine.High || jobs[13].User != 1 {
		t.Fatalf("%+v, %v", jobs, err)
	}
	work := 0.0
	for i := range jobs {
		work += jobs[i].work()
	}
	if got := work / 8 / jobs[99].Arrival.Seconds(); got < 0.899 || got > 0.901 {
		t.Errorf("offers a load of %g", got)
	}
	for _, bad := range []struct {
		rows []Row
		load float64
	}{{rows[:1], 1}, {rows, 0}, {[]Row{rows[0], rows[0]}, 1}} {
		if _, err := Standard(bad.rows, 0, bad.load, 8); err == nil {
			t.Errorf("%d jobs at %g are no error", len(bad.rows), bad.load)
		}
	}
}
