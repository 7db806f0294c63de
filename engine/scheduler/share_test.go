package scheduler

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestShares(t *testing.T) {
	checkRows(t, []row{
		{"who had less goes first in a class, by weight; then age", `
			gpu 0 40
			share 1 usage=7200
			share 2 usage=3600
			share 3 usage=9000 weight=3
			share 4 usage=3600
			held 9 0=40w high of=9
			job 1 medium gpus=1 of=1 age=9h
			job 2 medium gpus=1 of=2 age=1h
			job 3 medium gpus=1 of=3
			job 4 medium gpus=1 of=4 age=2h
			job 5 low gpus=1 of=5
			job 6 high gpus=1 of=1
			job 7 medium gpus=1 of=7`, `
			6 WaitingForDevice 1/0 devices
			7 WaitingForDevice 1/0 devices
			3 WaitingForDevice 1/0 devices
			4 WaitingForDevice 1/0 devices
			2 WaitingForDevice 1/0 devices
			1 WaitingForDevice 1/0 devices
			5 WaitingForDevice 1/0 devices`},
		{"what somebody holds counts", `
			gpu 0 40
			gpu 1 40
			share 1 usage=100
			held 9 0=40w of=2
			job 1 medium gpus=1 of=1
			job 2 medium gpus=1 of=2 age=1h`, `
			1 start 1=40GiB*
			2 WaitingForDevice 1/0 devices`},
		{"and what starts counts at once: nobody fills the box alone", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			gpu 3 40
			share 1 usage=0
			share 2 usage=10
			job 1 medium gpus=1 of=1
			job 2 medium gpus=1 of=1
			job 3 medium gpus=1 of=1
			job 4 medium gpus=1 of=1
			job 5 medium gpus=1 of=2
			job 6 medium gpus=1 of=2`, `
			1 start 0=40GiB*
			5 start 1=40GiB*
			2 start 2=40GiB*
			6 start 3=40GiB*
			3 WaitingForDevice 1/0 devices
			4 WaitingForDevice 1/0 devices`},
	})
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*max(1, math.Abs(a), math.Abs(b)) }

func TestUsage(t *testing.T) {
	week := 7 * 24 * time.Hour
	at := func(d time.Duration) time.Time { return epoch.Add(d) }
	u := Usage{1000, epoch}
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"after a half-life", u.AsOf(at(week), week), 500},
		{"after two", u.AsOf(at(2*week), week), 250},
		{"a clock set back", u.AsOf(at(-week), week), 1000},
		{"no half-life", u.AsOf(at(9*week), 0), 1000},
		{"nobody", Usage{}.AsOf(epoch, week), 0},
		{"a short use", Usage{}.Charge(2, epoch, at(time.Minute), week).GPUSeconds, 120 * (1 - math.Ln2/7/24/60/2)},
		{"for ever", Usage{}.Charge(1, epoch, at(100*week), week).GPUSeconds, week.Seconds() / math.Ln2},
		{"nothing", u.Charge(0, epoch, at(week), week).GPUSeconds, 1000},
		{"backwards", u.Charge(1, at(week), epoch, week).GPUSeconds, 1000},
		{"no half-life, 2 GPUs for an hour", u.Charge(2, epoch, at(time.Hour), 0).GPUSeconds, 8200},
	} {
		if math.Abs(c.got-c.want) > 1e-3*max(1, c.want) {
			t.Errorf("%s: %g, want %g", c.what, c.got, c.want)
		}
	}
}

// A use counts the same in one piece and in two, in whichever order they are charged.
func TestUsageInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 40*24*3600).Draw(t, name)) * time.Second
		}
		half := time.Duration(rapid.IntRange(0, 30).Draw(t, "half-life")) * 24 * time.Hour
		from := epoch.Add(span("from"))
		mid := from.Add(span("first"))
		to := mid.Add(span("second"))
		u := Usage{1000, epoch}
		whole := u.Charge(1.5, from, to, half)
		pieces := u.Charge(1.5, from, mid, half).Charge(1.5, mid, to, half)
		swapped := u.Charge(1.5, mid, to, half).Charge(1.5, from, mid, half)
		end := to.Add(time.Hour)
		if a, b, c := whole.AsOf(end, half), pieces.AsOf(end, half), swapped.AsOf(end, half); !near(a, b) || !near(a, c) {
			t.Fatalf("in one %g, in two %g, the later first %g", a, b, c)
		}
	})
}

// Who used about as much came first by their age, not by a second of use.
func TestAboutAsMuchIsTheSame(t *testing.T) {
	checkRowsUnder(t, DefaultPolicy(), []row{
		{"to a minute", `
			gpu 0 40
			share 7 usage=59
			share 8 usage=1
			job 1 medium gpus=1 of=7 age=1h
			job 2 medium gpus=1 of=8`, `
			1 start 0=40GiB*
			2 WaitingForDevice 1/0 devices`},
		{"beyond it, who used less", `
			gpu 0 40
			share 7 usage=61
			share 8 usage=1
			job 1 medium gpus=1 of=7 age=1h
			job 2 medium gpus=1 of=8`, `
			2 start 0=40GiB*
			1 WaitingForDevice 1/0 devices`},
	})
}
