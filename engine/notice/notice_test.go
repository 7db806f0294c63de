package notice

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gputop/engine"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

func ref[T any](v T) *T { return &v }

func job(s engine.JobState) engine.Job {
	return engine.Job{ID: 7, Spec: engine.Spec{Name: "train", TimeLimit: 90 * time.Minute}, State: s, Attempts: 2}
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		was, is engine.JobState
		change  func(*engine.Job)
		want    string
	}{
		{engine.Pending, engine.Preparing, nil, ""},
		{engine.Pending, engine.Starting, nil, ""},
		{engine.Starting, engine.Running, nil, "started/2: started"},
		{engine.Running, engine.Running, nil, ""},
		{engine.Running, engine.Stopping, nil, ""},
		{engine.Running, engine.Succeeded, nil, "ended/: succeeded"},
		{engine.Running, engine.Failed, func(j *engine.Job) { j.ExitCode, j.Message = ref(3), "the program exited with code 3" }, "ended/: failed with exit code 3"},
		{engine.Running, engine.Failed, func(j *engine.Job) { j.ExitCode, j.Message = ref(137), "out of memory: much" }, "ended/: failed with exit code 137: out of memory: much"},
		{engine.Starting, engine.Failed, func(j *engine.Job) { j.Message = "no such image" }, "ended/: failed: no such image"},
		{engine.Stopping, engine.TimedOut, func(j *engine.Job) { j.Message = "stopped at its time limit of 1h30m0s" }, "ended/: stopped at its time limit of 1h30m"},
		{engine.Running, engine.Lost, func(j *engine.Job) { j.Message = "the machine was restarted" }, "ended/: lost: the machine was restarted"},
		{engine.Pending, engine.Cancelled, func(j *engine.Job) { j.Message = "cancelled by root" }, "ended/: cancelled: cancelled by root"},
		{engine.Stopping, engine.Pending, func(j *engine.Job) { j.Preemptions, j.Message = 1, "preempted by bob: demo" }, "preempted/2: stopped and put back in the queue: preempted by bob: demo"},
		{engine.Running, engine.Pending, func(j *engine.Job) { j.Failures, j.Message = 1, "retry 1 of 2" }, ""},
		{engine.Succeeded, engine.Failed, nil, ""},
	} {
		was, is := job(c.was), job(c.is)
		if c.change != nil {
			c.change(&is)
		}
		got := ""
		if n, ok := Changed(&was, &is, start); ok {
			got = fmt.Sprintf("%s/%s: %s", n.Kind, n.Key, n.Sentence())
			if n.Job != 7 || n.Name != "train" || n.Attempt != 2 || !n.Time.Equal(start) {
				t.Errorf("%s to %s: %+v", c.was, c.is, n)
			}
		}
		if got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.was, c.is, got, c.want)
		}
	}
}

// looks feeds one look a step, and gives what was told, with the step it was told at.
func looks(p Policy, step time.Duration, n int, at func(i int) Look) string {
	u, j := &Use{}, job(engine.Running)
	var out []string
	for i := range n {
		l := at(i)
		if l.Time.IsZero() {
			l.Time = start.Add(time.Duration(i) * step)
		}
		list, reclaim := u.See(&j, p, l)
		for _, x := range list {
			out = append(out, fmt.Sprintf("%d %s", i, x.Text))
		}
		if reclaim {
			return strings.Join(append(out, fmt.Sprintf("%d reclaim", i)), "; ")
		}
	}
	return strings.Join(out, "; ")
}

func TestGPUMemoryOverTime(t *testing.T) {
	p := DefaultPolicy()
	used := func(f func(i int) *engine.Bytes) func(int) Look {
		return func(i int) Look { return Look{GPU: f(i), GPULimit: 10 * engine.GiB} }
	}
	high, low := ref(9*engine.GiB+engine.MiB), ref(9*engine.GiB)
	for name, c := range map[string]struct {
		at   func(int) Look
		want string
	}{
		"high":            {used(func(int) *engine.Bytes { return high }), "10 uses 9GiB of its 10GiB of GPU memory, for 5m"},
		"exactly 90 %":    {used(func(int) *engine.Bytes { return low }), ""},
		"not known":       {used(func(int) *engine.Bytes { return nil }), ""},
		"a dip":           {used(func(i int) *engine.Bytes { return map[bool]*engine.Bytes{true: low, false: high}[i == 9] }), "20 uses 9GiB of its 10GiB of GPU memory, for 5m"},
		"unknown once":    {used(func(i int) *engine.Bytes { return map[bool]*engine.Bytes{true: nil, false: high}[i == 9] }), "20 uses 9GiB of its 10GiB of GPU memory, for 5m"},
		"nothing granted": {func(int) Look { return Look{GPU: high} }, ""},
		"a break in the samples": {func(i int) Look {
			l := Look{Time: start.Add(time.Duration(i) * 30 * time.Second), GPU: high, GPULimit: 10 * engine.GiB}
			if i >= 9 {
				l.Time = l.Time.Add(2 * time.Minute)
			}
			return l
		}, "19 uses 9GiB of its 10GiB of GPU memory, for 5m"},
	} {
		if got := looks(p, 30*time.Second, 60, c.at); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestIdleGPUs(t *testing.T) {
	zero, some := ref(0.0), ref(0.01)
	cards := func(f func(i, card int) *float64, n int) func(int) Look {
		return func(i int) (l Look) {
			for c := range n {
				l.Whole = append(l.Whole, Card{ID: engine.DeviceID(fmt.Sprint("GPU-", c)), Index: c, SM: f(i, c)})
			}
			return l
		}
	}
	reclaiming := DefaultPolicy()
	reclaiming.ReclaimAfter = 30 * time.Minute
	never := DefaultPolicy()
	never.IdleAfter = 0
	for name, c := range map[string]struct {
		p    Policy
		at   func(int) Look
		want string
	}{
		"idle":            {DefaultPolicy(), cards(func(int, int) *float64 { return zero }, 1), "60 GPU 0 has done nothing for 1h"},
		"a dash is not 0": {DefaultPolicy(), cards(func(int, int) *float64 { return nil }, 1), ""},
		"a dash within":   {DefaultPolicy(), cards(func(i, _ int) *float64 { return map[bool]*float64{true: nil, false: zero}[i == 59] }, 1), "120 GPU 0 has done nothing for 1h"},
		"busy":            {DefaultPolicy(), cards(func(int, int) *float64 { return some }, 1), ""},
		"a share":         {DefaultPolicy(), cards(func(int, int) *float64 { return zero }, 0), ""},
		"never told":      {never, cards(func(int, int) *float64 { return zero }, 1), ""},
		"one of two":      {reclaiming, cards(func(_, c int) *float64 { return []*float64{some, zero}[c] }, 2), "60 GPU 1 of its 2 has done nothing for 1h"},
		"all of two, and reclaimed": {reclaiming, cards(func(int, int) *float64 { return zero }, 2),
			"60 GPUs 0, 1 have done nothing for 1h; unless it works again it is stopped in 30m; 90 reclaim"},
		"the second one later": {reclaiming, cards(func(i, c int) *float64 { return map[bool]*float64{true: some, false: zero}[c == 1 && i < 10] }, 2),
			"60 GPU 0 of its 2 has done nothing for 1h; 70 GPUs 0, 1 have done nothing for 1h; unless it works again it is stopped in 30m; 100 reclaim"},
		"works again in time": {reclaiming, cards(func(i, _ int) *float64 { return map[bool]*float64{true: some, false: zero}[i == 89] }, 1),
			"60 GPU 0 has done nothing for 1h; unless it works again it is stopped in 30m; " +
				"150 GPU 0 has done nothing for 1h; unless it works again it is stopped in 30m; 180 reclaim"},
	} {
		if got := looks(c.p, time.Minute, 200, c.at); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, c.want)
		}
	}
}

func TestKeysTellSpellsApart(t *testing.T) {
	u, j, p := &Use{}, job(engine.Running), DefaultPolicy()
	keys := map[string]bool{}
	for i := range 300 {
		sm := 0.0
		if i%100 == 99 {
			sm = 1
		}
		list, _ := u.See(&j, p, Look{Time: start.Add(time.Duration(i) * time.Minute), Whole: []Card{{ID: "GPU-0", SM: &sm}}})
		for _, n := range list {
			keys[n.Key] = true
		}
	}
	if len(keys) != 3 {
		t.Errorf("three idle spells have the keys %v", keys)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{time.Hour: "1h", 30 * time.Minute: "30m", 90 * time.Minute: "1h30m", 20 * time.Second: "20s", 0: "0s", 24 * time.Hour: "24h"} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", time.Duration(d), got, want)
		}
	}
}

func TestQueueTakesTheLongestFirst(t *testing.T) {
	var q Queue
	for _, i := range []int{5, 1, 4, 2, 3} {
		q.Add(Wait{Job: engine.JobID(i), Since: start.Add(time.Duration(i) * time.Minute)})
	}
	if got := q.Take(start, 9); got != nil {
		t.Errorf("nothing is due, and %v came", got)
	}
	take := func(minutes, n int) (ids []engine.JobID) {
		for _, w := range q.Take(start.Add(time.Duration(minutes)*time.Minute), n) {
			ids = append(ids, w.Job)
		}
		return ids
	}
	if got := fmt.Sprint(take(4, 3), take(4, 3), q.Len()); got != "[1 2 3] [4] 1" {
		t.Errorf("got %s", got)
	}
}

// A look at the waits when nothing is due, which is nearly each of them.
func BenchmarkNothingDue(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var q Queue
			for i := range n {
				q.Add(Wait{Job: engine.JobID(i + 1), Since: start.Add(time.Duration(i) * time.Second)})
			}
			for b.Loop() {
				if q.Take(start.Add(-time.Second), 4096) != nil {
					b.Fatal("due")
				}
			}
		})
	}
}
