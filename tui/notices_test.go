package tui

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/charmbracelet/x/exp/golden"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

func told(id int64, ago time.Duration, k engine.NoticeKind, job int, name, text, detail string) engine.Notice {
	return engine.Notice{ID: id, Time: tuitest.Time.Add(-ago), Kind: k, Job: engine.JobID(job), Name: name, Owner: engine.User{UID: 1000, Name: "ana"}, Text: text, Detail: detail}
}

func someNotices() *api.Notices {
	return &api.Notices{Read: 2, Notices: []engine.Notice{
		told(4, time.Minute, engine.NoticeIdle, 41, "train-llm", "GPU 0 has done nothing for 1h; unless it works again it is stopped in 30m", ""),
		told(3, 7*time.Minute, engine.NoticePreempted, 44, "evil\x1b]0;t\x07\u202ename", "stopped and put back in the queue", "preempted by root: a demo for visitors"),
		told(2, 26*time.Hour, engine.NoticeEnded, 39, "sweep", "failed with exit code 3", ""),
		told(1, 27*time.Hour, engine.NoticeStarted, 39, "sweep", "started", ""),
	}}
}

func withNotices(t *testing.T, w, h int, change ...func(*Options)) *rig {
	r := newRig(t, tuitest.TwoCards(), w, h, change...)
	s := r.client.Snapshot()
	r.update(eventArrivedMsg{event: api.WatchEvent{Snapshot: &s, Notices: someNotices()}})
	return r
}

func TestNoticesGolden(t *testing.T) {
	for name, do := range map[string]func(*rig){"overview": func(*rig) {}, "list": func(r *rig) { r.keys("n") }} {
		for _, w := range []int{80, 120} {
			t.Run(fmt.Sprintf("%s-%d", name, w), func(t *testing.T) {
				r := withNotices(t, w, 24)
				do(r)
				r.holds(w, 24)
				golden.RequireEqual(t, r.screen())
			})
		}
	}
}

func TestNoticesAreReadOnceSeen(t *testing.T) {
	r := withNotices(t, 100, 24)
	r.has("2 notices")
	r.keys("n")
	r.hasNot("2 notices")
	if got := r.client.Changes(); !slices.Equal(got, []string{"read notices through 4"}) {
		t.Errorf("told the daemon %v", got)
	}
	// One that comes while the list is open is seen; one that is sent twice is there once.
	r.send(eventArrivedMsg{event: api.WatchEvent{Notices: &api.Notices{Notices: []engine.Notice{
		told(5, 0, engine.NoticeEnded, 41, "train-llm", "succeeded", ""), someNotices().Notices[0]}}}})
	r.has("succeeded")
	if got := r.client.Changes(); len(got) != 2 || len(r.a.box.inbox.list) != 5 {
		t.Errorf("told the daemon %v, shows %d", got, len(r.a.box.inbox.list))
	}
	r.keys("<esc>")
	r.hasNot("notice")
	r.send(eventArrivedMsg{event: api.WatchEvent{Notices: &api.Notices{Notices: []engine.Notice{told(6, 0, engine.NoticeStarted, 45, "next", "started", "")}}}})
	r.has("1 notice ")
	// Another screen of the same person reads it.
	r.send(eventArrivedMsg{event: api.WatchEvent{Notices: &api.Notices{Read: 6}}})
	r.hasNot("1 notice ")
}

func TestNoticesOfAnOlderDaemonAndReadOnly(t *testing.T) {
	r := newRig(t, tuitest.TwoCards(), 80, 24).connect() // an older daemon sends none
	r.keys("n")
	r.has("Nothing yet")
	read := withNotices(t, 80, 24, func(o *Options) { o.ReadOnly = true })
	read.keys("n")
	if got := read.client.Changes(); len(got) != 0 {
		t.Errorf("read-only, and told the daemon %v", got)
	}
}
