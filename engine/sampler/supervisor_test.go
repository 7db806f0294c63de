package sampler

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gputop/engine"
)

// childEnv makes the test binary a sampler process that behaves as the value says.
const childEnv = "GPUTOP_TEST_SAMPLER"

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		child(how)
	}
	goleak.VerifyTestMain(m)
}

// child is a sampler process. Behaviours named PATH?A:B are A while the file at PATH is not there, which they make, and
// B from then on.
func child(how string) {
	if path, ab, ok := strings.Cut(how, "?"); ok {
		a, b, _ := strings.Cut(ab, ":")
		how = b
		if _, err := os.Stat(path); err != nil {
			how = a
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				os.Exit(9)
			}
		}
	}
	out := json.NewEncoder(os.Stdout)
	switch how {
	case "well":
		_ = out.Encode(engine.Sample{Seq: 1})
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent goes
	case "hang":
		_ = out.Encode(engine.Sample{Seq: 7})
		fmt.Fprintln(os.Stderr, "asking card 3")
		_, _ = io.Copy(io.Discard, os.Stdin)
		time.Sleep(time.Hour)
	case "silent":
		time.Sleep(time.Hour)
	case "die":
		fmt.Fprint(os.Stderr, "first\nsymbol lookup error: undefined symbol: nvmlX")
		os.Exit(127)
	case "garbage":
		fmt.Println("nonsense")
		time.Sleep(time.Hour)
	case "huge":
		fmt.Println(strings.Repeat("x", MaxLine+1))
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// running is a supervisor at work.
type running struct {
	*Supervisor
	samples chan engine.Sample
	states  chan State
	stop    func()
}

func run(t *testing.T, how string, o Options) *running {
	t.Helper()
	r := &running{samples: make(chan engine.Sample, 100), states: make(chan State, 100)}
	o.Command = []string{"/proc/self/exe"}
	o.Env = append(os.Environ(), childEnv+"="+how)
	o.OnSample = func(s engine.Sample) { r.samples <- s }
	o.OnState = func(s State) { r.states <- s }
	if o.Backoff == 0 {
		o.Backoff = time.Millisecond
	}
	r.Supervisor = New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if s := r.State(); s.Phase != Stopped || s.PID != 0 {
			t.Errorf("after the end: %+v", s)
		}
	}
	return r
}

// until waits for a phase and returns the state that came with it.
func (r *running) until(p Phase) State {
	for {
		if s := <-r.states; s.Phase == p {
			return s
		}
	}
}

func TestReplaced(t *testing.T) {
	for _, c := range []struct {
		how   string
		phase Phase
		want  string // of the message, before "; starting another"
	}{
		{"hang", Hung, "the GPU sampler gave no sample in time, saying: asking card 3"},
		{"silent", Hung, "the GPU sampler gave no sample in time"},
		{"die", Restarting, "the GPU sampler ended (exit status 127), saying: symbol lookup error: undefined symbol: nvmlX"},
		{"garbage", Restarting, "the GPU sampler wrote something that is no sample: invalid character 'o' in literal null (expecting 'u')"},
		{"huge", Restarting, "the GPU sampler wrote a sample larger than 4194304 bytes"},
	} {
		t.Run(c.how, func(t *testing.T) {
			marker := filepath.Join(t.TempDir(), "marker")
			r := run(t, marker+"?"+c.how+":well", Options{Deadline: 300 * time.Millisecond, StartDeadline: 500 * time.Millisecond})
			defer r.stop()
			bad := r.until(c.phase)
			if got, _, _ := strings.Cut(bad.Message, "; starting another"); got != c.want {
				t.Errorf("\n got %s\nwant %s", got, c.want)
			}
			good := r.until(Running)
			if good.Message != "" || good.Restarts < 1 || good.LastSample.IsZero() || good.PID == bad.PID {
				t.Errorf("replaced by: %+v", good)
			}
			for (<-r.samples).Seq != 1 {
			}
		})
	}
}

func TestKilled(t *testing.T) {
	r := run(t, "well", Options{Deadline: time.Minute})
	defer r.stop()
	first := r.until(Running)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if s := r.until(Restarting); !strings.HasPrefix(s.Message, "the GPU sampler ended (signal: killed)") {
		t.Errorf("message %q", s.Message)
	}
	if second := r.until(Running); second.PID == first.PID || second.Restarts != 1 {
		t.Errorf("from %+v to %+v", first, second)
	}
}

func TestStopEndsTheProcess(t *testing.T) {
	r := run(t, "well", Options{})
	pid := r.until(Running).PID
	r.stop()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d after the end: %v", pid, err)
	}
}

func TestCannotStart(t *testing.T) {
	states := make(chan State, 100)
	s := New(Options{Command: []string{"/none/gputopd"}, Backoff: time.Hour, OnState: func(s State) { states <- s }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for st := range states {
		if st.Phase == Restarting {
			if !strings.HasPrefix(st.Message, "the GPU sampler cannot be started: fork/exec /none/gputopd: no such file") {
				t.Errorf("message %q", st.Message)
			}
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := New(Options{}).Run(t.Context()); err == nil {
		t.Error("no command is no error")
	}
}
