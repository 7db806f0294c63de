package tui

import (
	"errors"
	"fmt"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/exp/golden"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

var boxes = []struct {
	name string
	make func() api.Snapshot
}{
	{"two-cards", tuitest.TwoCards},
	{"eight-cards", func() api.Snapshot { return tuitest.Many(8, 0, true) }},
	{"mig", func() api.Snapshot { return tuitest.Many(2, 3, true) }},
	{"mig-full", func() api.Snapshot { return tuitest.Many(8, 7, true) }},
	{"odd", tuitest.Odd},
	{"no-cards", tuitest.NoCards},
}

func TestOverviewGolden(t *testing.T) {
	for _, b := range boxes {
		for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}} {
			t.Run(fmt.Sprintf("%s-%dx%d", b.name, size[0], size[1]), func(t *testing.T) {
				r := newRig(t, b.make(), size[0], size[1]).connect()
				r.holds(size[0], size[1])
				golden.RequireEqual(t, r.screen())
			})
		}
	}
}

func TestScreenGolden(t *testing.T) {
	for _, c := range []struct {
		name string
		w, h int
		do   func(*rig)
	}{
		{"too-small", 40, 10, func(r *rig) {}},
		{"floor", 60, 15, func(r *rig) {}},
		{"connecting", 80, 24, func(r *rig) { r.a.box = box{} }},
		{"link-lost", 80, 24, func(r *rig) {
			r.now = r.now.Add(75 * time.Second)
			r.send(linkLostMsg{err: errors.New("dial unix /run/gputop/gputop.sock: connection refused")})
		}},
		{"detail", 100, 48, func(r *rig) { r.keys("<shift+tab><enter>") }},
		{"detail-of-others", 80, 24, func(r *rig) { r.keys("j<enter>") }},
		{"submit", 80, 24, func(r *rig) { r.keys("s") }},
		{"submit-errors", 80, 24, func(r *rig) { r.keys("spython train.py<tab><tab><tab><tab><tab><end>x<enter>") }},
		{"cancel", 80, 24, func(r *rig) { r.keys("<shift+tab>c") }},
		{"preempt", 120, 40, func(r *rig) { r.keys("<shift+tab>p") }},
		{"preempt-with-reason", 80, 24, func(r *rig) {
			r.a.box.info.Admin = true
			r.keys("<shift+tab>jpa demo for visitors at five")
		}},
		{"held", 80, 24, func(r *rig) {
			j := *r.a.box.jobs[45]
			j.Held, j.Reason = true, &engine.Reason{Code: engine.ReasonHeld, Detail: "by root"}
			r.send(eventArrivedMsg{event: api.WatchEvent{Jobs: []api.Job{j}}})
		}},
		{"help", 80, 44, func(r *rig) { r.keys("j?") }},
		{"refused", 80, 24, func(r *rig) { r.keys("jc") }},
		{"gpus", 120, 30, func(r *rig) { r.keys("<shift+tab><shift+tab>j") }},
		{"processes", 100, 24, func(r *rig) { r.keys("o") }},
		{"ended", 80, 24, func(r *rig) { r.keys("<tab>j") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, tuitest.TwoCards(), c.w, c.h).connect()
			c.do(r)
			r.holds(c.w, c.h)
			golden.RequireEqual(t, r.screen())
		})
	}
}

func TestASCIIGolden(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24, func(o *Options) { o.ASCII = true }).connect()
	first := r.screen()
	for _, keys := range []string{"", "s<tab>", "<esc>?", "<esc><enter>", "<esc><shift+tab>c", "<esc>l"} {
		r.cancel() // Logs returns at once
		r.keys(keys)
		if s := r.screen(); !printableASCII(replaceNewlines(s)) {
			t.Errorf("after %q ASCII mode drew other characters:\n%s", keys, s)
		}
	}
	golden.RequireEqual(t, first)
}

func replaceNewlines(s string) string {
	b := []byte(s)
	for i := range b {
		if b[i] == '\n' {
			b[i] = ' '
		}
	}
	return string(b)
}

// Every size from one cell up, with every number of cards and MIG devices, each screen in turn.
func TestSizes(t *testing.T) {
	for _, n := range []int{1, 4, 8} {
		for _, k := range []int{0, 3, 7} {
			r := newRig(t, tuitest.Many(n, k, true), 80, 24).connect()
			for _, keys := range []string{"", "<tab><tab>", "G", "?", "<esc>s", "<esc><tab>c", "<esc><enter>", "<esc>o"} {
				r.keys(keys)
				for w := 1; w <= 250; w += 1 + w/7 {
					for h := 1; h <= 80; h += 1 + h/5 {
						r.update(tea.WindowSizeMsg{Width: w, Height: h})
						r.holds(w, h)
					}
				}
			}
		}
	}
	s := tuitest.Many(8, 3, true)
	s.Info.Mode, s.Jobs = "monitor", nil
	alone := newRig(t, s, 80, 24).connect()
	for w := 1; w <= 250; w += 1 + w/7 {
		for h := 1; h <= 80; h += 1 + h/5 {
			alone.update(tea.WindowSizeMsg{Width: w, Height: h})
			alone.holds(w, h)
		}
	}
	r := newRig(t, tuitest.TwoCards(), 0, 0).connect()
	r.holds(80, 24)
	r.has("train-llm")
	r.a.getenv = func(name string) string { return map[string]string{"COLUMNS": "100", "LINES": "30"}[name] }
	r.update(tea.WindowSizeMsg{})
	if r.a.width != 100 || r.a.height != 30 {
		t.Errorf("size from the environment: %dx%d, want 100x30", r.a.width, r.a.height)
	}
}

// Without a daemon there are cards and processes, and nothing to press that would change anything.
func TestMonitorGolden(t *testing.T) {
	s := tuitest.TwoCards()
	s.Info.Mode, s.Jobs = "monitor", nil
	s.GPUs.GPUs[1].Processes[1].Job = 0
	s.GPUs.GPUs[1].Processes[1].Command = "python train.py \x1b[31m"
	r := newRig(t, s, 100, 24, func(o *Options) { o.ReadOnly = true }).connect()
	golden.RequireEqual(t, r.painted())
	r.keys("j")
	r.has("GPU 1 NVIDIA A100")
	r.hasNot("submit")
	r.keys("o")
	r.has("Processes 2")
}
