package scheduler

import (
	"testing"
	"time"

	"gputop/engine"
)

// preempting is the balanced policy of a site that lets medium jobs give way too.
func preempting() Policy {
	p := DefaultPolicy()
	p.Of = []engine.Class{engine.Low, engine.Medium}
	return p
}

func TestPreempt(t *testing.T) {
	checkRowsUnder(t, preempting(), []row{
		{"who loses least", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=40m end=20h
			held 9 1=40w medium ran=30m end=20h
			job 1 high gpus=1`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"of the same loss the lower class", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w medium ran=30m end=20h
			held 9 1=40w low ran=30m end=20h
			job 1 critical gpus=1`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"who saves its work loses nothing, however long it ran", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w medium ran=19h end=20h checkpoints
			held 9 1=40w low ran=6m end=20h
			job 1 high gpus=1`, `
			stop 8 for 1
			1 WaitingForPreempted behind 8 until 30s`},
		{"or no more than since it last saved it", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=19h end=20h checkpoints every=10m
			held 9 1=40w low ran=9m end=20h
			job 1 high gpus=1`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"nobody who need not go: a share that frees too little stays", `
			gpu 0 40
			held 7 0=5 low ran=6m end=20h
			held 8 0=20 low ran=10m end=20h
			held 9 0=15 low ran=40m end=20h
			job 1 high mem=20`, `
			stop 8 for 1
			1 WaitingForPreempted behind 8 until 30s`},
		{"the card that is cheapest to clear, not the cheapest jobs", `
			gpu 0 40
			gpu 1 40
			held 6 0=20 low ran=10m end=20h
			held 7 0=20 low ran=1h end=20h
			held 8 1=20 low ran=20m end=20h
			held 9 1=20 low ran=20m end=20h
			job 1 high gpus=1`, `
			stop 8 for 1
			stop 9 for 1
			1 WaitingForPreempted behind 8 until 30s`},
		{"a set takes free cards first", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			held 8 0=40w low ran=20m end=20h
			held 9 2=40w low ran=10m end=20h
			job 1 high gpus=2`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"never of the same class, nor one that does not give way", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w high ran=20m end=20h
			held 9 1=40w critical ran=20m end=20h
			job 1 high gpus=1
			job 2 critical mem=50`, `
			2 BlockedBySize 50GiB/40GiB
			1 WaitingForDevice 1/0 devices until 20h0m0s`},
		{"medium and low stop nobody; nor does age", `
			gpu 0 40
			held 9 0=40w low ran=20m end=20h
			job 1 medium gpus=1 age=9999h`, `
			1 WaitingForDevice 1/0 devices until 20h0m0s`},
		{"not who has just begun, was stopped often enough, or is on its way out", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			held 6 0=40w low ran=4m end=20h
			held 7 1=40w low ran=1h preempted=6 end=20h
			held 8 2=40w low ran=1h stopping for=99 end=20h
			job 1 high gpus=3`, `
			1 WaitingForDevice 3/0 devices until 20h0m0s`},
		{"not while the wait is short", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=20m end=4m
			held 9 1=40w low ran=20m end=20h
			job 1 high gpus=1`, `
			1 WaitingForDevice 1/0 devices until 4m0s`},
		{"a short wait is reason enough where nothing is lost", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=20m end=4m
			held 9 1=40w low ran=20m end=20h checkpoints
			job 1 high gpus=1`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"but not a very short one", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=20m end=1m
			held 9 1=40w low ran=20m end=20h checkpoints
			job 1 high gpus=1`, `
			1 WaitingForDevice 1/0 devices until 1m0s`},
		{"what was waited counts", `
			gpu 0 40
			held 8 0=40w low ran=20m end=4m
			job 1 high gpus=1 age=2m`, `
			stop 8 for 1
			1 WaitingForPreempted behind 8 until 30s`},
		{"no more is thrown away than the wait is worth", `
			gpu 0 40
			held 8 0=40w low ran=3h end=1h
			job 1 high gpus=1`, `
			1 WaitingForDevice 1/0 devices until 1h0m0s`},
		{"nor by all victims together", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w low ran=1h end=5m30s
			held 9 1=40w low ran=1h end=5m30s
			job 1 high gpus=2`, `
			1 WaitingForDevice 2/0 devices until 5m30s`},
		{"what a preemptor will hold counts for those behind it", `
			host 16 64
			gpu 0 40
			gpu 1 40
			held 8 0=40w cpus=4 high ran=20m end=1h
			held 9 1=40w cpus=6 low ran=20m end=1h
			job 1 medium gpus=1 cpus=8 ram=1 limit=1h age=300h
			job 2 high gpus=1 cpus=6 ram=1 limit=5h
			job 3 low cpus=3 ram=1 limit=9h`, `
			stop 9 for 2
			1 WaitingForDevice 1/0 devices until 1h0m0s
			2 WaitingForPreempted behind 9 until 30s
			3 BlockedByPriority behind 1 until 1h0m0s`},
		{"who is over quota stops nobody", `
			gpu 0 40
			gpu 1 40
			account 0 gpus=1
			held 8 0=40w high ran=20m end=20h acc=0
			held 9 1=40w low ran=20m end=20h
			job 1 high gpus=1 acc=0`, `
			1 OverQuota 1000/0 milli-gpus (account 0)`},
		{"nor does stopping one's own job count as room in the quota", `
			gpu 0 40
			account 0 gpus=1
			held 9 0=40w low ran=20m end=20h acc=0
			job 1 high gpus=1 acc=0`, `
			1 OverQuota 1000/0 milli-gpus (account 0)`},
		{"not for a card that is promised to others", `
			gpu 0 40
			gpu 1 40
			window 0 course from=1h to=4h for=7
			held 8 0=40w low ran=10m end=20h
			held 9 1=40w low ran=20m end=20h
			job 1 high gpus=1 limit=2h of=5`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"the host part of a job is a reason too", `
			host 16 64
			gpu 0 40
			gpu 1 40
			held 8 0=40w cpus=10 mem=10 low ran=20m end=20h
			held 9 - cpus=4 mem=4 low ran=10m end=20h
			job 1 high gpus=1 cpus=6 ram=4`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
		{"one who could pass the first that waits may not delay it", `
			gpu 0 40
			gpu 1 40
			held 8 0=40w high ran=20m end=1h
			held 9 1=40w low ran=20m end=1h
			job 1 critical gpus=2
			job 2 high gpus=1 limit=30m
			job 3 high gpus=1 limit=5h`, `
			stop 9 for 2
			1 WaitingForDevice 2/0 devices until 1h0m0s
			2 WaitingForPreempted behind 9 until 30s
			3 WaitingForDevice 1/0 devices`},
	})
}

func TestVictimsPlaceIsKept(t *testing.T) {
	checkRowsUnder(t, preempting(), []row{
		{"while they are on their way out, and of the rest of the card others may have", `
			gpu 0 40
			held 8 0=20 low ran=20m stopping for=2
			held 9 0=10 low ran=20m end=20h
			job 1 critical mem=11
			job 2 high mem=20
			job 3 low mem=10`, `
			stop 9 for 1
			2 WaitingForPreempted behind 8 until 30s
			1 WaitingForPreempted behind 9 until 30s
			3 BlockedByPriority behind 2`},
		{"when they are gone", `
			gpu 0 40
			job 1 critical gpus=1
			job 2 high gpus=1 promised`, `
			2 start 0=40GiB*
			1 WaitingForDevice 1/0 devices`},
		{"and no preemptor takes what another's victims left", `
			host 16 64
			gpu 0 40
			gpu 1 40
			held 9 - cpus=8 mem=1 high
			job 1 high gpus=1 ram=1 promised
			job 2 high gpus=1 cpus=4 ram=1 promised`, `
			1 start 0=40GiB* cpus=1 mem=1GiB
			2 start 1=40GiB* cpus=4 mem=1GiB`},
		{"when some are gone nobody takes their place", `
			gpu 0 40
			gpu 1 40
			held 9 1=40w low ran=20m stopping for=2
			job 1 critical gpus=1 limit=1m
			job 2 high gpus=2 promised`, `
			2 WaitingForPreempted behind 9 until 30s
			1 BlockedByPriority behind 2`},
		{"of a job that waits no more it is nobody's", `
			gpu 0 40
			gpu 1 40
			held 9 0=40w low ran=20m stopping for=77
			job 1 low gpus=1 limit=1h`, `
			1 start 1=40GiB*`},
	})
}

func TestPreemptionsPerHour(t *testing.T) {
	p := preempting()
	p.PerHour = 2
	s := box(t, `
		gpu 0 40
		gpu 1 40
		held 8 0=40w low ran=20m end=20h
		held 9 1=40w low ran=20m end=20h
		job 1 high gpus=1
		job 2 high gpus=1`)
	for _, c := range []struct {
		ago  []time.Duration
		want int
	}{{nil, 2}, {[]time.Duration{59 * time.Minute}, 1}, {[]time.Duration{time.Hour, 2 * time.Hour}, 2}, {[]time.Duration{0, time.Minute}, 0}} {
		s.Preempted = nil
		for _, ago := range c.ago {
			s.Preempted = append(s.Preempted, epoch.Add(-ago))
		}
		if got := Compute(s, p, epoch).Preempt; len(got) != c.want {
			t.Errorf("after %v: %v, want %d", c.ago, got, c.want)
		}
	}
}

// The next plan is asked for when the wait comes due, so that a preemptor needs no other event.
func TestAgain(t *testing.T) {
	p := preempting()
	p.Patience = 4 * time.Minute
	s := box(t, `
		gpu 0 40
		held 9 0=40w low ran=20m end=20h
		job 1 high gpus=1 age=1m`)
	plan := Compute(s, p, epoch)
	if want := epoch.Add(3 * time.Minute); len(plan.Preempt) != 0 || !plan.Again.Equal(want) {
		t.Errorf("stops %v, again at %s, want none and %s", plan.Preempt, plan.Again, want)
	}
	if plan = Compute(s, p, plan.Again); len(plan.Preempt) != 1 {
		t.Errorf("at that time it stops %v", plan.Preempt)
	}
}
