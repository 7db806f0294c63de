package daemon

import (
	"errors"
	"sync"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/host"
)

func TestMendedPodmanIsAskedAgain(t *testing.T) {
	b := newBox(t, 1)
	b.agent.runtime.Problem = &agentrpc.Problem{Code: "no-subuid", Message: "no subordinate ids", Fix: "usermod"}
	s := spec(engine.Medium, "exit", "0")
	s.Workdir = "/tmp"
	var e *api.Error
	if _, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s}); !errors.As(err, &e) || e.Code != api.CodeInvalid {
		t.Fatalf("a job that no Podman can run was answered %v", err)
	}
	b.agent.mu.Lock()
	b.agent.runtime.Problem = nil
	b.agent.mu.Unlock()
	b.untilState(b.submit(s), engine.Succeeded)
}

func TestNoAnswerAtPrepareIsNoFault(t *testing.T) {
	b := newBox(t, 1)
	b.agent.before = func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodPrepare {
			return &agentrpc.Error{Code: agentrpc.CodeUnavailable, Message: "podman of /home/alice does not answer"}
		}
		return nil
	}
	id := b.submit(spec(engine.Medium, "exit", "0"))
	j := b.until(id, "told why it waits", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.AgentUnavailable })
	if j.Reason.Detail == "" {
		t.Error("the owner is not told what the agent said")
	}
	if v := redact(j, api.Caller{User: engine.User{UID: 4, Name: "bob"}}); v.Reason.Detail != "" || j.Reason.Detail == "" {
		t.Errorf("somebody else reads %q; the owner's view now says %q", v.Reason.Detail, j.Reason.Detail)
	}
	kept, _, _, err := b.store.Job(t.Context(), id)
	if err != nil || kept.Faults != 0 || kept.State.Final() {
		t.Errorf("the job has %d faults and is %s (%v)", kept.Faults, kept.State, err)
	}
}

func TestATimeLimitDoesNotBecomeAPreemption(t *testing.T) {
	b := newBox(t, 1)
	var mu sync.Mutex
	deaf := true
	b.agent.before = func(m agentrpc.Method, _ *agentrpc.Conn) error {
		mu.Lock()
		defer mu.Unlock()
		if m == agentrpc.MethodStop && deaf {
			return &agentrpc.Error{Code: agentrpc.CodeUnavailable, Message: "no answer"}
		}
		return nil
	}
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.boot.Add(int64(2 * time.Hour))
	b.untilState(id, engine.Stopping)
	var e *api.Error
	if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopPreempted, ""); !errors.As(err, &e) || e.Code != api.CodeConflict {
		t.Errorf("preempting a job past its time limit was answered %v", err)
	}
	mu.Lock()
	deaf = false
	mu.Unlock()
	b.untilState(id, engine.TimedOut)
}

// locks plays the machine-wide locks of two daemons.
type locks struct {
	mu    sync.Mutex
	taken map[engine.DeviceID]int
	other bool // another daemon has them all
}

func (l *locks) lock(id engine.DeviceID) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.other {
		return nil, host.ErrLocked
	}
	l.taken[id]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken[id]--
	}, nil
}

func (l *locks) set(other bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.other, l.taken = other, map[engine.DeviceID]int{}
}

func (l *locks) held(id engine.DeviceID) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken[id]
}

func TestLockOfAHeldCardIsTakenAgainAfterARestart(t *testing.T) {
	b := newBox(t, 1)
	b.stop()
	l := &locks{taken: map[engine.DeviceID]int{}}
	b.lock = l.lock
	b.start()
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.stop()
	l.set(false) // the kernel drops them with the process
	b.start()
	b.until(id, "running, its card locked", func(j api.Job) bool { return j.State == engine.Running })
	b.sample()
	if n := l.held(engine.DeviceID(cardName(0))); n != 1 {
		t.Errorf("the card's lock was taken %d times by the new daemon", n)
	}
}

func TestACardLockedElsewhereIsAReasonToWait(t *testing.T) {
	b := newBox(t, 1)
	b.stop()
	l := &locks{taken: map[engine.DeviceID]int{}, other: true}
	b.lock = l.lock
	b.start()
	_ = b.d.do(t.Context(), func() { b.d.o.Mode = Personal })
	id := b.submit(spec(engine.Medium, "exit", "0"))
	b.until(id, "told why it waits", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	l.set(false)
	b.boot.Add(elsewhereFor.Nanoseconds())
	b.untilState(id, engine.Succeeded)
}
