package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

// asAdmin is a box seen by an admin.
func asAdmin() api.Snapshot {
	s := tuitest.TwoCards()
	s.Info.Admin = true
	return s
}

func TestChangeKeys(t *testing.T) {
	held := func() api.Snapshot {
		s := tuitest.TwoCards()
		for i := range s.Jobs {
			s.Jobs[i].Held = s.Jobs[i].ID == 45
		}
		return s
	}
	for _, c := range []struct {
		name, keys string
		box        func() api.Snapshot
		want       string // the calls
		says       string
	}{
		{"hold", "h", tuitest.TwoCards, "hold 45", "job #45 is held"},
		{"release", "h", held, "release 45", "job #45 is released and has its old place"},
		{"class down", "-", tuitest.TwoCards, "update 45 to medium", "job #45 has class medium now"},
		{"class up is for admins", "+", tuitest.TwoCards, "", "class critical is for admins"},
		{"class up by an admin", "+", asAdmin, "update 45 to critical", "job #45 has class critical now"},
		{"class up of somebody else's by an admin", "j=", asAdmin, "update 46 to high", ""},
		{"there is no lower class", "jj-", asAdmin, "", "job #47 is low already"},
		{"not somebody else's", "jh", tuitest.TwoCards, "", "job #46 belongs to mei"},
		{"not of a running job", "<shift+tab>h", tuitest.TwoCards, "", "job #41 is running; only a waiting job can be held"},
		{"not the class of a running job", "<shift+tab>-", tuitest.TwoCards, "", "the class is changed while it waits"},
		{"an ended job again", "<tab>r", tuitest.TwoCards, "requeue 40", "job #40 is queued again, as job #100"},
		{"a waiting job is queued", "r", tuitest.TwoCards, "", "job #45 is in the queue already"},
		{"an admin runs nothing for others", "<tab>jjr", asAdmin, "", "job #38 belongs to bo, who alone can run it again"},
		{"from the detail screen", "<enter>h", tuitest.TwoCards, "hold 45", "job #45 is held"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.box(), 120, 40).connect()
			r.keys(c.keys)
			if got := strings.Join(r.client.Changes(), ", "); got != c.want {
				t.Errorf("asked for %q, want %q", got, c.want)
			}
			r.has(c.says)
		})
	}
}

func TestRequeueOfARunningJobAsks(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("<shift+tab>r")
	r.has("Preempt job #41?")
	r.keys("y")
	if got, want := fmt.Sprint(r.client.Stopped()), fmt.Sprint([]tuitest.Stop{{ID: 41, Why: engine.StopPreempted, Note: stopNote}}); got != want {
		t.Errorf("stopped %s, want %s", got, want)
	}
}

func TestRefusedChangeSaysWhy(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 120, 30).connect()
	r.client.Err = &api.Error{Code: api.CodeForbidden, Message: "job 45 was held by root; only an admin may release it"}
	r.keys("h")
	r.has("could not hold job #45: job 45 was held by root")
}

// An admin who preempts somebody else's job says why; letters are the reason and no keys.
func TestAdminGivesAReason(t *testing.T) {
	for _, c := range []struct{ name, keys, want string }{
		{"letters do not answer", "y", "[]"},
		{"no reason, no yes", "<tab><enter>", "[]"},
		{"spaces are no reason", "<space> <tab><enter>", "[]"},
		{"no by default", "demo<enter>", "[]"},
		{"esc", "demo<esc>", "[]"},
		{"with a reason", "demo at 5x<backspace><tab><enter>", "[{43 preempted demo at 5}]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, asAdmin(), 80, 24).connect()
			r.keys("<shift+tab>jp")
			r.has("Say why: its owner reads it.")
			r.keys(c.keys)
			if got := fmt.Sprint(r.client.Stopped()); got != c.want {
				t.Errorf("stopped %s, want %s", got, c.want)
			}
		})
	}
	r := newRig(t, asAdmin(), 80, 24).connect()
	r.keys("<shift+tab>jp")
	r.send(tea.PasteMsg{Content: "pas\x1b[31mted\n"})
	r.has("Reason: pasted")
	r.keys("<tab><enter>")
	if got := r.client.Stopped(); len(got) != 1 || strings.ContainsAny(got[0].Note, "\x1b\n") {
		t.Errorf("stopped %q", got)
	}
	// One's own job needs none, and a cancel neither.
	r = newRig(t, asAdmin(), 80, 24).connect()
	r.keys("<shift+tab>py")
	r.keys("jcy")
	if got := r.client.Stopped(); len(got) != 2 {
		t.Errorf("stopped %v", got)
	}
}
