package daemon

import (
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func TestRefusalsAreCounted(t *testing.T) {
	var r refusals
	now := time.Unix(1_000_000, 0)
	wrote := 0
	for range 1000 {
		if ok, _ := r.take(7, now); ok {
			wrote++
		}
	}
	if wrote != refusalBurst {
		t.Errorf("%d of 1000 at once are written down", wrote)
	}
	if ok, _ := r.take(8, now); !ok {
		t.Error("another user's is not written down")
	}
	if ok, n := r.take(7, now.Add(time.Second)); !ok || n != 1000-refusalBurst {
		t.Errorf("a second later: %v, %d before", ok, n)
	}
	if ok, _ := r.take(7, now.Add(-time.Hour)); ok {
		t.Error("a clock set back gives more")
	}
}

// Somebody who asks for what is not theirs all day does not fill the trail, and is still told each time.
func TestRefusalsDoNotFillTheTrail(t *testing.T) {
	b := fullBox(t)
	id := b.waiting()
	for range refusalBurst + 50 {
		if _, err := b.d.Stop(t.Context(), mallory, id, engine.StopCancelled, ""); codeOf(err) != api.CodeForbidden {
			t.Fatal(err)
		}
	}
	if got := len(b.trail(id)); got < refusalBurst || got > refusalBurst+10 {
		t.Errorf("%d lines on the trail", got)
	}
	b.d.refusals.of[mallory.UID].left = 1
	_, _ = b.d.Stop(t.Context(), mallory, id, engine.StopCancelled, "")
	if e := b.trail(id)[0]; !strings.Contains(e.Text, "others before it were not written down") {
		t.Errorf("the last line: %+v", e)
	}
}
