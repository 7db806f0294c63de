package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// listenNotify is the socket of a service manager; its messages come in the order they were sent.
func listenNotify(t *testing.T, name string) <-chan string {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 256)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			select {
			case got <- string(buf[:n]):
			case <-t.Context().Done():
				return
			}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return got
}

func TestManagerHearsReadyLifeAndStop(t *testing.T) {
	for _, c := range []struct{ kind, name string }{
		{"path", filepath.Join(t.TempDir(), "notify")},
		{"abstract", "@gputop-test-" + strconv.Itoa(os.Getpid())},
	} {
		t.Run(c.kind, func(t *testing.T) {
			got := listenNotify(t, c.name)
			t.Setenv("NOTIFY_SOCKET", c.name)
			t.Setenv("WATCHDOG_USEC", "3000")
			t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
			m, err := managerOf()
			if err != nil || m.within != 3*time.Millisecond {
				t.Fatalf("got %+v, %v", m, err)
			}
			if os.Getenv("NOTIFY_SOCKET") != "" || os.Getenv("WATCHDOG_USEC") != "" {
				t.Error("the environment still names the manager: children would speak for this process")
			}
			turns := make(chan error)
			alive := func(ctx context.Context) error {
				select {
				case err := <-turns:
					return err
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- m.keep(ctx, slog.New(slog.DiscardHandler), alive) }()
			select {
			case s := <-got:
				t.Fatalf("%q before the loop turned once", s)
			case turns <- nil:
			}
			for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1"} {
				if want != "READY=1" {
					turns <- nil
				}
				if s := <-got; s != want {
					t.Fatalf("got %q, want %q", s, want)
				}
			}
			// The loop does not turn: nothing is said until it does.
			turns <- errors.New("no turn")
			cancel()
			if s := <-got; s != "STOPPING=1" {
				t.Errorf("got %q, want STOPPING=1", s)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWatchdogOfAnotherProcessIsNotOurs(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "1000000")
	t.Setenv("WATCHDOG_PID", "1")
	if m, err := managerOf(); err != nil || m.within != 0 {
		t.Errorf("got %+v, %v", m, err)
	}
	for _, bad := range []string{"0", "-1", "soon"} {
		t.Setenv("WATCHDOG_USEC", bad)
		t.Setenv("WATCHDOG_PID", "")
		if m, err := managerOf(); err == nil {
			t.Errorf("WATCHDOG_USEC=%s: got %+v", bad, m)
		}
	}
}

func TestWithoutAManagerNothingIsSaid(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	m, err := managerOf()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.notify("READY=1"); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.keep(ctx, slog.New(slog.DiscardHandler), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}
