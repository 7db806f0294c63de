// Package runner is the agent: the process that runs as the user and is the only one that talks to that user's Podman.
// It does what the engine asks over one link, watches the containers it knows and keeps their output. It must never run
// as root, never decide what runs where, and never report a container as exited because Podman did not answer.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

// ErrAlreadyRunning is returned by Run when another agent of this user serves the same state directory. Leave it be.
var ErrAlreadyRunning = errors.New("another agent of this user is running")

// DefaultIdleExit is how long an agent without work stays.
const DefaultIdleExit = 10 * time.Minute

// lockWait is how long a new agent waits for an old one that is just ending.
const lockWait = 2 * time.Second

// Options say how an agent runs.
type Options struct {
	// EngineSocket is the engine's Unix socket.
	EngineSocket string
	// StateDir is the user's own directory for logs, checkpoints and sockets; made with mode 0700 when missing.
	StateDir string
	// Log gets what a person debugging wants to know; nil drops it.
	Log *slog.Logger
	// IdleExit is how long to stay with no containers and no word from the engine; 0 is DefaultIdleExit.
	IdleExit time.Duration
	// Version is told to the engine.
	Version string
}

// Agent serves one engine with one user's Podman.
type Agent struct {
	o      Options
	user   account.Account
	podman *service
	host   hostFacts
	log    *slog.Logger
	// ctx ends when the agent ends; background work hangs on it and is waited for through work.
	ctx   context.Context
	work  sync.WaitGroup
	slots chan struct{} // parallel creates, inits and starts
	// makeWay is told when the engine wants another agent.
	makeWay chan struct{}

	mu         sync.Mutex
	link       *agentrpc.Conn
	lastActive time.Time
	calls      int
	busy       int               // calls that must not be cut off
	watched    map[string]*watch // by container name
	stopping   map[string]*stop  // by container id
	verdicts   map[string]agentrpc.Container
	runtime    *agentrpc.RuntimeInfo
}

// Run serves the engine until ctx ends or the agent has been idle for long enough; both are no error. Containers go on
// without it.
func Run(ctx context.Context, o Options) error {
	if os.Getuid() == 0 {
		return errors.New("the agent runs as an ordinary user, never as root: it would give root's Podman to jobs")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.IdleExit <= 0 {
		o.IdleExit = DefaultIdleExit
	}
	user, err := account.Current(ctx)
	if err != nil {
		return err
	}
	if o.StateDir, err = ownDir(o.StateDir, user.UID); err != nil {
		return err
	}
	unlock, err := lockDir(ctx, filepath.Join(o.StateDir, "agent.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := context.WithCancel(ctx)
	a, err := newAgent(ctx, o, user)
	if err != nil {
		cancel()
		return err
	}
	defer a.podman.wait()
	defer a.work.Wait()
	defer cancel()
	a.resumeCopies()
	a.work.Go(a.trimAll)
	a.work.Go(func() { a.exitWhenIdle(ctx, cancel) })
	a.serveEngine(ctx)
	return nil
}

func newAgent(ctx context.Context, o Options, user account.Account) (*Agent, error) {
	for _, d := range []string{"logs", "output", "checkpoints"} {
		if err := os.MkdirAll(filepath.Join(o.StateDir, d), 0o700); err != nil {
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	socket, err := socketPath(o.StateDir, user.UID)
	if err != nil {
		return nil, err
	}
	host := readHostFacts()
	podman := &service{ctx: ctx, user: user, socket: socket, output: filepath.Join(o.StateDir, "podman-service.log"), log: o.Log,
		preferRunc: host.hybridCgroup}
	return &Agent{
		o: o, user: user, log: o.Log, ctx: ctx, podman: podman, host: host,
		slots:      make(chan struct{}, parallelStarts),
		makeWay:    make(chan struct{}, 1),
		lastActive: time.Now(),
		watched:    map[string]*watch{},
		stopping:   map[string]*stop{},
		verdicts:   map[string]agentrpc.Container{},
	}, nil
}

// ownDir makes the directory and insists that nobody but the user can write to it.
func ownDir(dir string, uid uint32) (string, error) {
	if dir == "" || !filepath.IsAbs(dir) {
		return "", fmt.Errorf("state directory %q: want an absolute path", dir)
	}
	dir = filepath.Clean(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	if !account.Owned(dir, uid) {
		return "", fmt.Errorf("state directory %s does not belong to uid %d: name another one", dir, uid)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	return dir, nil
}

// lockDir takes the lock that one agent holds, waiting a moment for one that is ending.
func lockDir(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("agent lock: %w", err)
	}
	err = flock(ctx, f, lockWait)
	if errors.Is(err, unix.EWOULDBLOCK) {
		f.Close()
		return nil, fmt.Errorf("%w (lock %s)", ErrAlreadyRunning, path)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("agent lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}

// flock takes the lock or returns EWOULDBLOCK after limit.
func flock(ctx context.Context, f *os.File, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// pause waits, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// endPoll is how often an agent that is to make way looks whether it may.
const endPoll = 50 * time.Millisecond

// exitWhenIdle ends the agent once it has had no container, no call under way and no word from the engine for a while, or
// when the engine wants another one and nothing would be cut off.
func (a *Agent) exitWhenIdle(ctx context.Context, stop func()) {
	tick := time.NewTicker(max(a.o.IdleExit/10, 10*time.Millisecond))
	defer tick.Stop()
	wanted := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.makeWay:
			wanted = true
			tick.Reset(endPoll)
			continue // the engine's call is answered meanwhile
		case <-tick.C:
		}
		a.mu.Lock()
		free := a.busy == 0 && len(a.stopping) == 0
		idle := len(a.watched) == 0 && a.calls == 0 && time.Since(a.lastActive) >= a.o.IdleExit
		a.mu.Unlock()
		switch {
		case wanted && free:
			a.log.Info("agent makes way for a new one")
		case idle:
			a.log.Info("no work: agent ends", "idle", a.o.IdleExit)
		default:
			continue
		}
		stop()
		return
	}
}

// active notes that the agent is of use: a call came, or a container ended.
func (a *Agent) active(calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls += calls
	a.lastActive = time.Now()
}

// working counts a call that must not be cut off.
func (a *Agent) working(calls int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy += calls
}
