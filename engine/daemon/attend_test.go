package daemon

import (
	"context"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func attendedJob() engine.Spec {
	s := light("run")
	s.Stdin, s.Tty, s.Attended = true, true, true
	return s
}

// attend is somebody there; leave returns when the daemon knows that they left.
func (b *box) attend(id engine.JobID) (leave func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.d.Attend(ctx, b.caller(), id)
	}()
	for here := 0; here == 0; {
		_ = b.d.do(b.t.Context(), func() { here = b.d.attendanceOf(id).here })
	}
	return func() { cancel(); <-done }
}

// later moves the clock of which limits are taken.
func (b *box) later(d time.Duration) { b.boot.Add(d.Nanoseconds()) }

func TestNobodyAttached(t *testing.T) {
	b := newBox(t, 0)
	id := b.submit(attendedJob())
	b.untilState(id, engine.Running)
	leave := b.attend(id)
	b.later(2 * attendPatience)
	b.d.do(t.Context(), b.d.endUnattended)
	if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State != engine.Running {
		t.Fatalf("with somebody there: %s, %v", d.State, err)
	}
	leave()
	b.later(attendPatience - time.Minute)
	b.d.do(t.Context(), b.d.endUnattended)
	b.restart() // who comes back has as long again
	b.later(attendPatience - time.Minute)
	if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State != engine.Running {
		t.Fatalf("soon after: %s, %v", d.State, err)
	}
	b.later(2 * time.Minute)
	if j := b.untilState(id, engine.Cancelled); !strings.Contains(j.Message, "nobody has been attached for 10 minutes") {
		t.Errorf("message %q", j.Message)
	}
}

func TestDetachedGoesOn(t *testing.T) {
	b := newBox(t, 0)
	id := b.submit(attendedJob())
	b.untilState(id, engine.Running)
	leave := b.attend(id)
	if _, err := b.d.Detach(t.Context(), mallory, id); codeOf(err) != api.CodeForbidden {
		t.Errorf("a stranger detaches: %v", err)
	}
	if _, err := b.d.Attend(t.Context(), root, id); codeOf(err) != api.CodeForbidden {
		t.Errorf("an admin attends: %v", err)
	}
	if _, err := b.d.Detach(t.Context(), b.caller(), id); err != nil {
		t.Fatal(err)
	}
	leave()
	b.later(2 * attendPatience)
	b.d.do(t.Context(), b.d.endUnattended)
	if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State != engine.Running {
		t.Errorf("after a detach: %s, %v", d.State, err)
	}
}
