package tui

import (
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func TestPast(t *testing.T) {
	p := past{}
	at := time.Unix(6000, 0)
	see := func(after time.Duration, sm float64) {
		p.add(&api.GPUs{Time: at.Add(after), GPUs: []api.GPU{{GPU: engine.GPU{UUID: "a", SM: &sm}}}})
	}
	see(0, 0.5)
	see(time.Second, 1)
	see(7*time.Second, 0.25)
	see(19*time.Second, 1) // nothing was seen of a cell
	if got := engine.Bars(p.row("a", 6), 1000, engine.ASCIIBarSigns); got != "  +- #" {
		t.Errorf("%q", got)
	}
	if got := engine.Bars(p.row("b", 3), 1000, engine.BarSigns); got != "   " {
		t.Errorf("of a card that was never seen: %q", got)
	}
	for i := range 10_000 {
		see(time.Duration(i)*time.Minute, 1)
	}
	if n := len(p["a"].points); n > pastMost {
		t.Errorf("%d cells are kept", n)
	}
	see(0, 0.1) // the clock was set back: it begins anew
	if got := engine.Bars(p.row("a", 2), 1000, engine.BarSigns); got != " ▂" {
		t.Errorf("after the clock was set back: %q", got)
	}
	p.add(&api.GPUs{Time: at.Add(-time.Hour), Stale: true})
	p.add(&api.GPUs{Time: at.Add(time.Hour)})
	if len(p) != 0 {
		t.Error("a card that is gone is kept")
	}
}
