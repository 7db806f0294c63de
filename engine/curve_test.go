package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestCurve(t *testing.T) {
	at := time.Unix(1000, 0)
	sm := func(v float64) *float64 { return &v }
	var c Curve
	c.Add(at, 10, sm(0.5))
	c.Add(at.Add(500*time.Millisecond), 30, sm(1))
	c.Add(at.Add(3*time.Second), 20, nil) // nothing was seen for two seconds
	c.Add(at.Add(time.Second), 99, sm(0)) // the clock was set back
	if got := Bars(c.Memory, 30, BarSigns); got != "█  ▆" || c.SM[0] != 750 || c.SM[3] != Unknown {
		t.Errorf("%q, %v", got, c.SM)
	}
	mem, mean := c.Peak()
	if *mem != 30 || *mean != 0.75 {
		t.Errorf("peak %v, mean %v", *mem, *mean)
	}
	if m, s := new(Curve).Peak(); m != nil || s != nil {
		t.Error("an empty curve has a peak")
	}
	if got := Thin([]int{1, 9, 2, 3, 4, 5, 6}, 3); got[0] != 9 || got[2] != 6 {
		t.Errorf("thinned: %v", got)
	}
}

// However long an attempt runs and however its samples come, the curve is bounded, its points cover the time, and its peak
// is the largest that was seen.
func TestCurveIsBoundedAndTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c Curve
		at, start := time.Unix(0, 0), time.Unix(0, 0)
		var most Bytes
		for range rapid.IntRange(1, 600).Draw(t, "samples") {
			m := Bytes(rapid.IntRange(0, 1000).Draw(t, "memory"))
			most = max(most, m)
			var sm *float64
			if rapid.Bool().Draw(t, "sm") {
				v := rapid.Float64Range(0, 1).Draw(t, "share")
				sm = &v
			}
			c.Add(at, m, sm)
			at = at.Add(time.Duration(rapid.IntRange(200, 90_000).Draw(t, "gap")) * time.Millisecond)
		}
		if len(c.Memory) > CurvePoints || len(c.Memory) != len(c.SM) {
			t.Fatalf("%d points, %d of SM", len(c.Memory), len(c.SM))
		}
		if peak, _ := c.Peak(); *peak != most {
			t.Fatalf("peak %d, the largest was %d", *peak, most)
		}
		for _, v := range c.SM {
			if v < Unknown || v > 1000 {
				t.Fatalf("SM %d", v)
			}
		}
		if !c.Start.Equal(start) || time.Duration(len(c.Memory))*c.Step > 2*at.Sub(start)+2*c.Step {
			t.Fatalf("%d points of %s from %s for %s", len(c.Memory), c.Step, c.Start, at.Sub(start))
		}
	})
}
