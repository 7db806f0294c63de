package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// NoticeKind is what a notice tells of.
type NoticeKind string

// The kinds of notices.
const (
	NoticeStarted   NoticeKind = "started"
	NoticeEnded     NoticeKind = "ended"
	NoticePreempted NoticeKind = "preempted"
	NoticeWaiting   NoticeKind = "waiting" // for long
	NoticeMemory    NoticeKind = "memory"  // host or GPU memory is nearly used up
	NoticeIdle      NoticeKind = "idle"    // a whole GPU does nothing
	NoticeReclaimed NoticeKind = "reclaimed"
	// NoticeOutside is about no job: a process of theirs uses a card outside the queue.
	NoticeOutside NoticeKind = "outside"
	// NoticeMore stands for notices that were not sent one by one: there were too many.
	NoticeMore NoticeKind = "more"
)

// Words that stand for lists of kinds.
const (
	NotifyAll  = "all"
	NotifyNone = "none"
)

// NoticeKinds lists the kinds that a job may ask for.
var NoticeKinds = []NoticeKind{NoticeStarted, NoticeEnded, NoticePreempted, NoticeWaiting, NoticeMemory, NoticeIdle, NoticeReclaimed}

// mailedKinds are mailed for a job that does not say.
var mailedKinds = []NoticeKind{NoticeEnded, NoticePreempted, NoticeWaiting, NoticeReclaimed}

// ParseNotify reads a list such as "ended,preempted", or all, or none.
func ParseNotify(s string) ([]string, error) {
	var out []string
	for _, w := range strings.Split(s, ",") {
		w = strings.TrimSpace(w)
		if !slices.Contains(out, w) {
			out = append(out, w)
		}
	}
	return out, CheckNotify(out)
}

// CheckNotify reports a word that is no kind of notice. An empty list is the default.
func CheckNotify(words []string) error {
	for _, w := range words {
		switch {
		case w == NotifyAll, w == NotifyNone:
			if len(words) > 1 {
				return fmt.Errorf("%s stands alone", w)
			}
		case !slices.Contains(NoticeKinds, NoticeKind(w)):
			names := make([]string, len(NoticeKinds))
			for i, k := range NoticeKinds {
				names[i] = string(k)
			}
			return fmt.Errorf("%q: want %s, all or none", w, strings.Join(names, ", "))
		}
	}
	return nil
}

// Tells says whether the owner of a job sees notices of a kind, and Mails whether they are mailed where mail is on. A
// job that does not say is told of everything, and mailed what is worth a mail.
func (s *Spec) Tells(k NoticeKind) bool {
	switch {
	case len(s.Notify) == 0, s.Notify[0] == NotifyAll:
		return true
	}
	return slices.Contains(s.Notify, string(k))
}

// Mails is Tells for mail.
func (s *Spec) Mails(k NoticeKind) bool {
	if len(s.Notify) == 0 {
		return slices.Contains(mailedKinds, k)
	}
	return s.Tells(k)
}

// Notice is one thing that the owner of a job is told.
type Notice struct {
	// ID grows by one; 0 before it is stored.
	ID    int64      `json:"id"`
	Time  time.Time  `json:"time"`
	Kind  NoticeKind `json:"kind"`
	Job   JobID      `json:"job"`
	Name  string     `json:"name"`
	Owner User       `json:"owner"`
	// Attempt is 0 for a job that never ran.
	Attempt int `json:"attempt,omitempty"`
	// Text says what happened, in words that anybody may read; Detail adds what is its owner's alone.
	Text   string `json:"text"`
	Detail string `json:"detail,omitempty"`
	// Key tells notices of one kind about one job apart: one that is stored already is not told again.
	Key string `json:"key,omitempty"`
}

// Sentence is text and detail together.
func (n Notice) Sentence() string {
	if n.Detail == "" {
		return n.Text
	}
	return n.Text + ": " + n.Detail
}
