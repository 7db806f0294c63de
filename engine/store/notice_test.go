package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"gputop/engine"
)

var (
	noticeStart = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	ann         = engine.User{UID: 1, Name: "ann"}
)

func notice(n int, owner engine.User, kind engine.NoticeKind) *Notice {
	return &Notice{Notice: engine.Notice{Time: noticeStart.Add(time.Duration(n) * time.Second), Kind: kind, Job: engine.JobID(n),
		Owner: owner, Text: fmt.Sprint(n)}, Due: ByMail | ByCommand}
}

// told is what a user is told, newest first, as "JOB:ID".
func told(t *testing.T, s *Store, u engine.User) string {
	t.Helper()
	list, read, err := s.Notices(context.Background(), u, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprintf("%s:%d", n.Job, n.ID))
	}
	return fmt.Sprint(out, " read ", read)
}

func dueOf(t *testing.T, s *Store) string {
	t.Helper()
	list, err := s.DueNotices(context.Background(), ByMail|ByCommand, 100)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range list {
		out = append(out, fmt.Sprintf("%s:%d", n.Job, n.Due))
	}
	return fmt.Sprint(out)
}

func TestNoticesAreKeptOnceAndTakenOnce(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	reused := engine.User{UID: 1, Name: "somebody-else"}
	first, other, hidden, strange := notice(1, ann, engine.NoticeEnded), notice(2, ann, engine.NoticeStarted), notice(3, ann, engine.NoticeEnded), notice(4, reused, engine.NoticeEnded)
	hidden.Hidden, hidden.Due = true, ByCommand
	apply(t, s, AddNotice(first), AddNotice(other), AddNotice(hidden), AddNotice(strange))
	again := notice(1, ann, engine.NoticeEnded)
	apply(t, s, AddNotice(again))
	if first.Again || first.ID != 1 || !again.Again || again.ID != 0 {
		t.Errorf("first %+v, again %+v", first, again)
	}
	later := notice(1, ann, engine.NoticeEnded)
	later.Key = "2"
	apply(t, s, AddNotice(later))
	equal(t, "told", told(t, s, ann), "[1:6 2:2 1:1] read 0")
	equal(t, "told under a reused uid", told(t, s, reused), "[4:4] read 0")
	equal(t, "due", dueOf(t, s), "[1:3 2:3 3:2 4:3 1:3]")
	if err := s.TakeNotices(context.Background(), ByMail, 1, 3); err != nil {
		t.Fatal(err)
	}
	if err := s.TakeNotices(context.Background(), ByMail|ByCommand, 2); err != nil {
		t.Fatal(err)
	}
	if err := s.ReadNotices(context.Background(), ann, 2); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir, Options{})
	equal(t, "due after a restart", dueOf(t, s), "[1:2 3:2 4:3 1:3]")
	equal(t, "read after a restart", told(t, s, ann), "[1:6 2:2 1:1] read 2")
	for _, through := range []int64{1, 99} { // never back, and not what is still to come
		if err := s.ReadNotices(context.Background(), ann, through); err != nil {
			t.Fatal(err)
		}
		equal(t, fmt.Sprint("read through ", through), told(t, s, ann), map[int64]string{1: "[1:6 2:2 1:1] read 2", 99: "[1:6 2:2 1:1] read 6"}[through])
	}
}

func TestNoticesAreBounded(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	bea := engine.User{UID: 2, Name: "bea"}
	apply(t, s, AddNotice(notice(1, bea, engine.NoticeEnded)))
	for i := range noticesOfUser + 30 {
		apply(t, s, AddNotice(notice(i+2, ann, engine.NoticeEnded)))
	}
	list, _, err := s.Notices(t.Context(), ann, 1000)
	if err != nil || len(list) != noticesOfUser || list[0].Job != noticesOfUser+31 {
		t.Errorf("%d notices of ann, newest %s, %v", len(list), list[0].Job, err)
	}
	equal(t, "a flood takes nobody else's", told(t, s, bea), "[1:1] read 0")
	old := notice(1, bea, engine.NoticeStarted)
	for range noticeTrim { // somewhere among so many is the look for old ones
		old.Job++
		n := *old
		n.Time = noticeStart.Add(noticeAge + time.Hour)
		apply(t, s, AddNotice(&n))
	}
	list, _, err = s.Notices(t.Context(), ann, 1000)
	if err != nil || len(list) != 0 {
		t.Errorf("%d old notices left, %v", len(list), err)
	}
}

func TestWaitsToldIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	if at, err := s.WaitsTold(t.Context()); err != nil || !at.IsZero() {
		t.Errorf("before anything: %v, %v", at, err)
	}
	at := noticeStart.Add(123456789)
	apply(t, s, SetWaitsTold(noticeStart), AddNotice(notice(1, ann, engine.NoticeWaiting)), SetWaitsTold(at))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, dir, Options{}).WaitsTold(t.Context()); err != nil || !got.Equal(at) {
		t.Errorf("got %v, %v; want %v", got, err, at)
	}
}
