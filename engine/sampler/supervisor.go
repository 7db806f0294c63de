// Package sampler keeps one sampler process alive and passes its samples on. The process is the only one that loads
// NVML, whose calls can hang or kill it: this package must never import NVML, so that the daemon outlives both.
package sampler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"gputop/engine"
)

// MaxLine is the largest sample accepted, in bytes.
const MaxLine = 4 << 20

// Phase says what the sampler process is doing.
type Phase string

// The phases.
const (
	Starting   Phase = "starting"   // no sample of this process yet
	Running    Phase = "running"    // samples come
	Hung       Phase = "hung"       // none came in time; it was killed and a new one is due
	Restarting Phase = "restarting" // it ended by itself; a new one is due
	Stopped    Phase = "stopped"    // Run has returned or was not called
)

// State is how the sampler process stands.
type State struct {
	Phase Phase
	PID   int
	// LastSample is when the newest sample came; zero before the first.
	LastSample time.Time
	// Restarts counts the processes started after the first.
	Restarts int
	// Message is one sentence on what went wrong last; empty while samples come.
	Message string
}

// Options of a Supervisor. Only Command and OnSample are needed.
type Options struct {
	// Command is the sampler's argument vector; Env its environment, nil for ours.
	Command []string
	Env     []string
	// Deadline is how long a running process may go without a sample (default 5 s); StartDeadline how long its first may
	// take, for a driver without persistence mode wakes every card (default 30 s).
	Deadline      time.Duration
	StartDeadline time.Duration
	// Backoff is the wait before the first restart, doubled to MaxBackoff while no sample comes (default 500 ms to 10 s).
	Backoff    time.Duration
	MaxBackoff time.Duration
	// OnSample gets every sample, in order, and must not block for long.
	OnSample func(engine.Sample)
	// OnState gets every change of phase; may be nil. Both callbacks run on Run's goroutine.
	OnState func(State)
}

// killWait is how long a killed process is waited for: one that is stuck in the driver cannot die until that lets go.
const killWait = 2 * time.Second

// maxStuck is how many processes that cannot die are left behind before no new one is started.
const maxStuck = 3

// Supervisor runs the sampler process and replaces it when it hangs or dies.
type Supervisor struct {
	o     Options
	stuck chan struct{} // a place taken per process that cannot die

	mu    sync.Mutex
	state State
}

// New makes a supervisor; Run starts it.
func New(o Options) *Supervisor {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.Deadline, 5*time.Second)
	def(&o.StartDeadline, max(30*time.Second, o.Deadline))
	def(&o.Backoff, 500*time.Millisecond)
	def(&o.MaxBackoff, max(10*time.Second, o.Backoff))
	return &Supervisor{o: o, stuck: make(chan struct{}, maxStuck), state: State{Phase: Stopped}}
}

// State is how things stand now.
func (s *Supervisor) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Supervisor) change(phase Phase, fn func(*State)) {
	s.mu.Lock()
	was := s.state.Phase
	s.state.Phase = phase
	if fn != nil {
		fn(&s.state)
	}
	now := s.state
	s.mu.Unlock()
	if was != phase && s.o.OnState != nil {
		s.o.OnState(now)
	}
}

// errHung is how a process ends that was killed for giving no sample in time.
var errHung = errors.New("gave no sample in time")

// Run keeps a sampler process alive until ctx is done; it then kills it and returns nil. It returns an error only when
// there is no command.
func (s *Supervisor) Run(ctx context.Context) error {
	if len(s.o.Command) == 0 {
		return errors.New("no sampler command")
	}
	defer s.change(Stopped, func(st *State) { st.PID = 0 })
	backoff := s.o.Backoff
	for first := true; ; first = false {
		s.change(Starting, func(st *State) {
			if !first {
				st.Restarts++
			}
		})
		samples, err := s.child(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if samples > 0 {
			backoff = s.o.Backoff
		}
		phase := Restarting
		if errors.Is(err, errHung) {
			phase = Hung
		}
		s.change(phase, func(st *State) {
			st.PID = 0
			st.Message = fmt.Sprintf("the GPU sampler %s; starting another in %s", err, backoff)
		})
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, s.o.MaxBackoff)
	}
}

// child runs one process to its end, and returns how many samples it gave and how it ended.
func (s *Supervisor) child(ctx context.Context) (int, error) {
	select {
	case s.stuck <- struct{}{}:
	default:
		return 0, fmt.Errorf("is not started again: %d processes are stuck in the driver, which only a reset or a reboot frees", maxStuck)
	}
	p, err := start(s.o)
	if err != nil {
		<-s.stuck
		return 0, fmt.Errorf("cannot be started: %w", err)
	}
	s.change(Starting, func(st *State) { st.PID = p.cmd.Process.Pid })
	n, hung := s.follow(ctx, p)
	p.kill()
	select {
	case <-p.exited:
		<-s.stuck
	case <-time.After(killWait):
		// Left behind: the place in stuck is given back when it ends after all.
		go func() {
			<-p.exited
			<-s.stuck
		}()
	}
	p.close()
	return n, p.word(hung)
}

// follow passes samples on until the process ends, hangs, or ctx is done.
func (s *Supervisor) follow(ctx context.Context, p *process) (samples int, hung bool) {
	limit := time.NewTimer(s.o.StartDeadline)
	defer limit.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples, false
		case <-limit.C:
			return samples, true
		case sample, ok := <-p.samples:
			if !ok {
				return samples, false
			}
			samples++
			limit.Reset(s.o.Deadline)
			s.change(Running, func(st *State) { st.LastSample, st.Message = time.Now(), "" })
			s.o.OnSample(sample)
		}
	}
}
