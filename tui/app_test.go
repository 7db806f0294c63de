package tui

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

func TestSubmitNeedsOnlyACommand(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("spython train.py --lr 0.1<enter>")
	got := r.client.Submitted()
	if len(got) != 1 {
		t.Fatalf("submitted %d jobs, want 1:\n%s", len(got), r.screen())
	}
	if c := strings.Join(got[0].Spec.Command, "|"); c != "python|train.py|--lr|0.1" {
		t.Errorf("command %q", c)
	}
	if got[0].Spec.Class != engine.Medium || got[0].Spec.TimeLimit != 24*time.Hour || got[0].Spec.Profile != "default" {
		t.Errorf("defaults not used: %+v", got[0].Spec)
	}
	r.has("job #100 train.py is queued")
	r.hasNot("Submit a job")
	// The selection goes to the new job, wherever it appears.
	r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{{ID: 100, Name: "train.py", Owner: "ana", Mine: true, State: engine.Running, Started: r.now}}}})
	if j := r.a.stack[0].(*overview).selected(); j == nil || j.ID != 100 {
		t.Errorf("selected %v, want job 100", j)
	}
}

func TestSubmitForm(t *testing.T) {
	for _, c := range []struct {
		name, keys string
		err        error
		want       string // on the screen
		submitted  int
	}{
		{"no command", "s<enter>", nil, "! write a command", 0},
		{"letters are text", "sqjk?", nil, "qjk?", 0},
		{"bad time", "sx<tab><tab><tab><tab><tab>z<enter>", nil, "! more than any card has", 0},
		{"class by arrows", "sx<tab><tab><tab><tab><left><enter>", nil, "is queued", 1},
		{"daemon refuses", "sx<enter>", &api.Error{Code: api.CodeInvalid, Message: "more GPUs than this machine has", Hint: "Ask for at most 2."},
			"! more GPUs than this machine has. Ask for at most 2.", 0},
		{"daemon gone", "sx<enter>", errors.New("dial: refused"), "! not submitted: dial: refused", 0},
		{"esc closes", "sx<esc>", nil, "Queue 3", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
			r.client.Err = c.err
			r.keys(c.keys)
			r.has(c.want)
			if n := len(r.client.Submitted()); n != c.submitted {
				t.Errorf("%d submitted, want %d", n, c.submitted)
			}
		})
	}
}

func TestSubmitFormTakesPastedText(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("s")
	r.send(tea.PasteMsg{Content: "python a.py\x1b[31m"})
	r.has("python a.py")
	if strings.Contains(r.painted(), "\x1b[31m") {
		t.Error("an escape sequence got through")
	}
}

func TestAmountFields(t *testing.T) {
	for in, want := range map[string][3]string{
		"2": {"2", "", ""}, "0": {"0", "", ""}, "": {"", "", ""}, "12GiB": {"", "12GiB", ""}, "1.5g": {"", "1.5g", ""},
		"25%": {"", "", "25%"}, "0.25": {"", "", "0.25"}, "-1": {"-1", "", ""}, "many": {"many", "", ""},
	} {
		g, m, f := amountFields(in)
		if got := [3]string{g, m, f}; got != want {
			t.Errorf("amountFields(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestStopAsksFirst(t *testing.T) {
	for _, c := range []struct {
		name, keys string
		want       []tuitest.Stop
	}{
		{"enter means no", "c<enter>", nil},
		{"esc means no", "c<esc>", nil},
		{"n means no", "cn", nil},
		{"other keys do nothing", "cxsp", nil},
		{"y means yes", "cy", []tuitest.Stop{{ID: 41, Why: engine.StopCancelled, Note: stopNote}}},
		{"enter on yes", "c<right><enter>", []tuitest.Stop{{ID: 41, Why: engine.StopCancelled, Note: stopNote}}},
		{"back to no", "c<right><left><enter>", nil},
		{"preempt", "py", []tuitest.Stop{{ID: 41, Why: engine.StopPreempted, Note: stopNote}}},
		{"from the detail screen", "<enter>cy", []tuitest.Stop{{ID: 41, Why: engine.StopCancelled, Note: stopNote}}},
		{"from the cards", "<shift+tab>py", []tuitest.Stop{{ID: 41, Why: engine.StopPreempted, Note: stopNote}}},
		{"not somebody else's", "jcy", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
			r.keys("<shift+tab>" + c.keys)
			if got := r.client.Stopped(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("stopped %v, want %v", got, c.want)
			}
		})
	}
}

func TestDialogNamesWhatIsLost(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("<shift+tab>p")
	for _, want := range []string{"Preempt job #41?", "train-llm of ana", "8h41m on GPU 0", "▸ No"} {
		r.has(want)
	}
}

func TestNoticeThatOpensByItselfIsDeafAtFirst(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("<shift+tab>c")
	j := *r.a.box.jobs[41]
	j.State = engine.Succeeded
	r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
	r.has("It succeeded while the question was open. Nothing was done.")
	r.keys("y<enter>")
	r.has("Job #41 has ended")
	r.now = r.now.Add(deafTime)
	r.keys("y<enter>")
	r.hasNot("Job #41 has ended")
	if got := r.client.Stopped(); len(got) != 0 {
		t.Errorf("stopped %v", got)
	}
}

func TestDisabledKeysSayWhy(t *testing.T) {
	for _, c := range []struct {
		name, keys, want string
		change           func(*Options)
		lost             bool
	}{
		{"read only", "s", "read-only mode", func(o *Options) { o.ReadOnly = true }, false},
		{"link lost", "s", "reconnecting", nil, true},
		{"other's job", "jc", "job #46 belongs to mei", nil, false},
		{"queued job has no logs", "l", "job #45 has not started yet", nil, false},
		{"queued job is not preempted", "p", "job #45 is not running", nil, false},
		{"ended job is not cancelled", "<tab>c", "job #40 has ended already", nil, false},
		{"several jobs on a card", "<tab><tab>jc", "several jobs are on this device", nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := c.change
			if change == nil {
				change = func(*Options) {}
			}
			r := newRig(t, tuitest.TwoCards(), 120, 30, change).connect()
			if c.lost {
				r.send(linkLostMsg{err: errors.New("gone")})
			}
			r.keys(c.keys)
			r.has(c.want)
		})
	}
}

func TestEscAlwaysGoesBack(t *testing.T) {
	for _, keys := range []string{"s", "?", "<enter>", "<shift+tab>l", "<enter>?", "<shift+tab><enter>l?"} {
		r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
		r.client.Output = "x\n"
		r.cancel() // Logs returns at once
		r.keys(keys)
		r.keys("<esc><esc><esc><esc>")
		if len(r.a.stack) != 1 {
			t.Errorf("after %q and esc: %d screens open", keys, len(r.a.stack))
		}
	}
}

func TestQuitSaysThatJobsGoOn(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("q")
	if !r.quit {
		t.Error("q did not quit")
	}
	if got, want := r.a.farewell(), "3 jobs of yours go on without this screen; gputop ls shows them."; got != want {
		t.Errorf("farewell %q, want %q", got, want)
	}
}

func TestStaleAndReconnect(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 120, 30).connect()
	r.has("live")
	r.now = r.now.Add(9 * time.Second)
	r.has("stale 9s")
	r.send(linkLostMsg{err: errors.New("gone")})
	r.has("reconnecting, 9s old")
	r.has("no answer from the daemon: gone")
	r.connect()
	r.has("● live")
	r.hasNot("as they were")
}

func TestHelpListsEveryKeyThatDoesSomething(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 60).connect()
	bs := r.a.keys()
	r.keys("?")
	for _, b := range bs {
		if b.help != "" {
			r.has(b.help)
		}
	}
	r.has("not now: job #45 is not running")
}

func TestDetailFollowsTheJob(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 100, 50).connect()
	r.keys("<shift+tab><enter>")
	r.has("gputop/lease=k3x9-41-1")
	j := *r.a.box.jobs[41]
	j.State, j.StopReason = engine.Stopping, engine.StopTimeLimit
	r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
	r.has("stopping (time-limit)")
	r.client.Err = &api.Error{Code: api.CodeNotFound, Message: "job 41 does not exist"}
	r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
	r.has("could not load job #41: job 41 does not exist")
}

func TestLogs(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.client.Output = "epoch 1\nloading 10%\rloading 99%\rdone\n\x1b[31mred\x1b[0m \x1b]0;title\x07进度\nno newline"
	r.keys("<shift+tab>")
	cmd := r.update(key("l"))
	var batch []tea.Cmd
	for _, c := range cmd().(tea.BatchMsg) {
		batch = append(batch, c)
	}
	answers := make(chan tea.Msg, len(batch))
	for _, c := range batch {
		go func() { answers <- c() }()
	}
	m := (<-answers).(logArrivedMsg) // the reading goes on until the screen closes
	r.update(m)
	for _, want := range []string{"epoch 1", "│ done", "red 进度", "no newline", "following"} {
		r.has(want)
	}
	if strings.Contains(r.painted(), "title") {
		t.Error("an escape sequence of the log got through")
	}
	r.keys("k")
	r.keys("<esc>")
	if _, ok := (<-answers).(logEndedMsg); !ok {
		t.Error("closing the screen did not end the reading")
	}
}

func TestSelectionStaysOnItsJob(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect()
	r.keys("j") // #46
	j := *r.a.box.jobs[45]
	j.State, j.Started = engine.Running, r.now
	r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
	if got := r.a.stack[0].(*overview).selected(); got.ID != 46 {
		t.Errorf("selected #%d, want #46", got.ID)
	}
	r.send(eventArrivedMsg{event: api.WatchEvent{Removed: []engine.JobID{46}}})
	if got := r.a.stack[0].(*overview).selected(); got.ID != 47 {
		t.Errorf("selected #%d, want #47", got.ID)
	}
}

func TestBoxKeepsOrder(t *testing.T) {
	b := &box{}
	at := func(id engine.JobID, pos int, s engine.JobState) api.Job {
		return api.Job{ID: id, Position: pos, State: s}
	}
	b.apply(api.WatchEvent{Snapshot: &api.Snapshot{Jobs: []api.Job{at(3, 2, engine.Pending), at(1, 0, engine.Running), at(2, 1, engine.Pending), at(9, 0, engine.Preparing)}}}, tuitest.Time)
	b.apply(api.WatchEvent{Jobs: []api.Job{at(4, 1, engine.Pending), at(2, 2, engine.Pending), at(3, 3, engine.Pending)}}, tuitest.Time)
	b.apply(api.WatchEvent{Jobs: []api.Job{at(1, 0, engine.Succeeded)}, Removed: []engine.JobID{77}}, tuitest.Time)
	ids := func(l list) (out []engine.JobID) {
		for _, j := range b.lists[l] {
			out = append(out, j.ID)
		}
		return out
	}
	if got, want := fmt.Sprint(ids(listRunning), ids(listQueue), ids(listEnded)), "[] [4 2 3 9] [1]"; got != want {
		t.Errorf("lists %s, want %s", got, want)
	}
}

func BenchmarkUpdateView(b *testing.B) {
	s := tuitest.Crowd(10000)
	r := newRig(b, s, 200, 60).connect()
	down := key("j")
	g := s.GPUs
	b.Run("key", func(b *testing.B) {
		for b.Loop() {
			r.a.Update(down)
			r.a.View()
		}
	})
	b.Run("sample", func(b *testing.B) {
		for b.Loop() {
			r.a.Update(eventArrivedMsg{event: api.WatchEvent{GPUs: &g}})
			r.a.View()
		}
	})
	b.Run("job", func(b *testing.B) {
		j := s.Jobs[len(s.Jobs)-1]
		for b.Loop() {
			r.a.Update(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
			r.a.View()
		}
	})
	b.Run("start", func(b *testing.B) {
		j := s.Jobs[len(s.Jobs)-1]
		for i := 0; b.Loop(); i++ {
			j.State = []engine.JobState{engine.Running, engine.Pending}[i%2]
			r.a.Update(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
			r.a.View()
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		for b.Loop() {
			r.a.Update(eventArrivedMsg{event: api.WatchEvent{Snapshot: &s}})
			r.a.View()
		}
	})
}

func TestBarNeverLeavesItsCells(t *testing.T) {
	s := newStyles(true, true)
	for _, c := range []struct {
		used, promised float64
		want           string
	}{
		{0, 0, ".........."}, {0.001, 0, "#........."}, {0.5, 0.25, "#####+++.."}, {1, 0, "##########"},
		{0.96, 0.2, "##########"}, {0.7, 0.9, "#######+++"}, {3, 1, "##########"}, {0.94, 0.02, "#########+"},
	} {
		r := row{s: s}
		r.bar(10, part{glyph: "."}, part{glyph: "#", share: c.used}, part{glyph: "+", share: c.promised})
		if got := r.b.String(); got != c.want || r.used != 10 {
			t.Errorf("bar of %v and %v: %q in %d cells, want %q", c.used, c.promised, got, r.used, c.want)
		}
	}
}
