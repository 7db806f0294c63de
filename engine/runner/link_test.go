package runner

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containers/podman/v5/pkg/errorhandling"
	"go.uber.org/goleak"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

func testAgent(t *testing.T, socket string, idle time.Duration) (*Agent, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	a, err := newAgent(ctx, Options{EngineSocket: socket, StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler), IdleExit: idle, Version: "9.9"},
		account.Account{User: engine.User{UID: uint32(os.Getuid()), Name: "tester"}, Home: "/home/tester", Shell: "/bin/sh"})
	if err != nil {
		t.Fatal(err)
	}
	a.runtime = &agentrpc.RuntimeInfo{PodmanVersion: "5.4.2"}
	return a, cancel
}

func TestHelloAndReconnect(t *testing.T) {
	defer goleak.VerifyNone(t)
	socket := filepath.Join(t.TempDir(), "engine.sock")
	a, cancel := testAgent(t, socket, time.Hour)
	done := make(chan struct{})
	go func() { defer close(done); a.serveEngine(a.ctx) }()

	// The agent may be there first; the engine comes, goes and comes again.
	for range 2 {
		e := newFakeEngine(t, socket)
		l := e.link()
		want := agentrpc.Hello{Protocol: agentrpc.Protocol, Version: "9.9", PID: os.Getpid(), Runtime: agentrpc.RuntimeInfo{PodmanVersion: "5.4.2"}}
		if l.hello.Protocol != want.Protocol || l.hello.Version != want.Version || l.hello.PID != want.PID || l.hello.Runtime.PodmanVersion != "5.4.2" {
			t.Errorf("hello %+v, want %+v", l.hello, want)
		}
		err := l.Call(t.Context(), "fly", nil, nil)
		if agentrpc.CodeOf(err) != agentrpc.CodeInvalid || !strings.Contains(err.Error(), `"fly"`) {
			t.Errorf("unknown call: %v, want a refusal that names it", err)
		}
		err = l.Call(t.Context(), agentrpc.MethodForget, agentrpc.ForgetArgs{Job: -1}, nil)
		if agentrpc.CodeOf(err) != agentrpc.CodeInvalid {
			t.Errorf("forget job -1: %v, want a refusal", err)
		}
		l.Close()
		e.close()
	}
	cancel()
	receive(t, done, "end of the agent")
}

func TestIdleExit(t *testing.T) {
	for _, tc := range []struct {
		name string
		busy func(*Agent)
		ends bool
	}{
		{"nothing to do", func(*Agent) {}, true},
		{"a container runs", func(a *Agent) { a.watched["x"] = &watch{} }, false},
		{"a call is under way", func(a *Agent) { a.calls = 1 }, false},
		{"to make way, with a container", func(a *Agent) { a.watched["x"], a.makeWay = &watch{}, told() }, true},
		{"to make way, log read", func(a *Agent) { a.calls, a.makeWay = 1, told() }, true},
		{"to make way, a call under way", func(a *Agent) { a.calls, a.busy, a.makeWay = 1, 1, told() }, false},
		{"to make way, a container stopping", func(a *Agent) { a.stopping["x"], a.watched["x"], a.makeWay = &stop{}, &watch{}, told() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a, cancel := testAgent(t, "/nonexistent", 50*time.Millisecond)
			defer cancel()
			tc.busy(a)
			ctx, stop := context.WithTimeout(a.ctx, 300*time.Millisecond)
			defer stop()
			ended := false
			a.exitWhenIdle(ctx, func() { ended = true })
			if ended != tc.ends {
				t.Errorf("ended %v, want %v", ended, tc.ends)
			}
		})
	}
}

func told() chan struct{} {
	ch := make(chan struct{}, 1)
	ch <- struct{}{}
	return ch
}

func TestOneAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.lock")
	unlock, err := lockDir(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(t.Context(), path); !errors.Is(err, ErrAlreadyRunning) {
		t.Errorf("second agent: %v, want ErrAlreadyRunning", err)
	}
	time.AfterFunc(100*time.Millisecond, unlock)
	again, err := lockDir(t.Context(), path)
	if err != nil {
		t.Fatalf("while the old one ends: %v", err)
	}
	again()
}

func TestSocketPath(t *testing.T) {
	uid := uint32(os.Getuid())
	short := t.TempDir()
	if got, err := socketPath(short, uid); err != nil || got != filepath.Join(short, "podman.sock") {
		t.Errorf("short directory: %q, %v", got, err)
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	got, err := socketPath(long, uid)
	if err != nil || len(got) > maxSocketPath {
		t.Fatalf("long directory: %q (%d bytes), %v", got, len(got), err)
	}
	defer os.RemoveAll(filepath.Dir(got))
	if other, _ := socketPath(long+"y", uid); other == got {
		t.Errorf("two state directories share the socket %s", got)
	} else {
		defer os.RemoveAll(filepath.Dir(other))
	}
}

type countingTransport struct{ n int }

func (c *countingTransport) RoundTrip(*http.Request) (*http.Response, error) {
	c.n++
	return nil, errors.New("lost")
}

// The bindings post again when an answer gets lost; a start must not be posted twice.
func TestSentOnce(t *testing.T) {
	for method, want := range map[string]int{"POST": 1, "DELETE": 1, "GET": 3} {
		c := &countingTransport{}
		s := &service{}
		err := s.once(t.Context(), t.Context(), func(ctx context.Context) (err error) {
			for range 3 {
				req, _ := http.NewRequestWithContext(ctx, method, "http://d/", nil)
				_, err = onceTransport{c}.RoundTrip(req)
			}
			return err
		})
		if c.n != want || err == nil || agentrpc.CodeOf(fault("x", err)) != agentrpc.CodeUnavailable {
			t.Errorf("%s was sent %d times, want %d (%v)", method, c.n, want, err)
		}
	}
}

func TestFaultCodes(t *testing.T) {
	answer := func(status int, text string) error {
		return &errorhandling.ErrorModel{Message: text, ResponseCode: status}
	}
	for _, tc := range []struct {
		err  error
		want agentrpc.Code
	}{
		{answer(404, "no container with name or ID"), agentrpc.CodeNotFound},
		{answer(500, "no such container"), agentrpc.CodeNotFound},
		{answer(500, `the container name "x" is already in use by y`), agentrpc.CodeConflict},
		{answer(400, "bad parameter"), agentrpc.CodeInvalid},
		{answer(500, "unresolvable CDI devices nvidia.com/gpu=0"), agentrpc.CodeFailed},
		{context.DeadlineExceeded, agentrpc.CodeUnavailable},
		{errors.New("EOF"), agentrpc.CodeUnavailable},
	} {
		if got := agentrpc.CodeOf(fault("do it", tc.err)); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
}
