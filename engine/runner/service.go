package runner

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"

	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

const (
	// maxSocketPath is what fits into a Unix socket address, in bytes.
	maxSocketPath = 107
	// serviceIdle is how many seconds Podman's service outlives its last client: long enough for the next agent.
	serviceIdle = "300"
	// serviceStart bounds how long the service may take to listen, in a cold store on a slow disk.
	serviceStart = 60 * time.Second
	// lockedTries is how often a call is repeated when Podman's database is busy.
	lockedTries = 6
)

// service is the user's own Podman service, started when it does not answer. It outlives the agent, and containers
// outlive it.
type service struct {
	ctx    context.Context
	user   account.Account
	socket string
	output string
	log    *slog.Logger
	// preferRunc is set where crun, the usual default, refuses the machine's cgroups.
	preferRunc bool

	mu       sync.Mutex // serialises starting
	conn     context.Context
	children sync.WaitGroup
}

// socketPath finds a directory of the user's where the socket's path fits.
func socketPath(stateDir string, uid uint32) (string, error) {
	candidates := []string{stateDir}
	if d := account.RuntimeDir(uid); d != "" {
		candidates = append(candidates, filepath.Join(d, "gputop"))
	}
	// Two agents of one user with long state directories must not share a socket.
	h := fnv.New32a()
	h.Write([]byte(stateDir))
	candidates = append(candidates, fmt.Sprintf("/tmp/gputop-%d-%08x", uid, h.Sum32()))
	for _, d := range candidates {
		p := filepath.Join(d, "podman.sock")
		if len(p) > maxSocketPath {
			continue
		}
		if _, err := ownDir(d, uid); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no place for Podman's socket: tried %s; a path may have %d bytes and the directory must be yours; name a shorter state directory",
		strings.Join(candidates, ", "), maxSocketPath)
}

// answers says whether something listens. A plain dial: the bindings sleep on a dead socket.
func (s *service) answers() bool {
	c, err := net.DialTimeout("unix", s.socket, 2*time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// connect returns the bindings' connection, starting the service when it does not answer.
func (s *service) connect(ctx context.Context) (context.Context, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		s.endOutdated(ctx)
	}
	if s.answers() && s.conn != nil {
		return s.conn, nil
	}
	if s.conn != nil {
		if c, err := bindings.GetClient(s.conn); err == nil {
			c.Client.CloseIdleConnections()
		}
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	if s.conn != nil {
		return s.conn, nil
	}
	conn, err := bindings.NewConnection(s.ctx, "unix://"+s.socket)
	if err != nil {
		return nil, fmt.Errorf("connect to Podman at %s: %w", s.socket, err)
	}
	c, err := bindings.GetClient(conn)
	if err != nil {
		return nil, err
	}
	c.Client.Transport = onceTransport{c.Client.Transport}
	s.conn = conn
	return conn, nil
}

// start runs Podman's service unless one listens by now, and waits until it does.
func (s *service) start(ctx context.Context) error {
	lock, err := os.OpenFile(s.socket+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("podman service: %w", err)
	}
	defer lock.Close()
	if err := flock(ctx, lock, serviceStart); err != nil {
		return fmt.Errorf("podman service: wait for another start: %w", err)
	}
	if s.answers() {
		return nil
	}
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("podman service: stale socket: %w", err)
	}
	exited, err := s.spawn()
	if err != nil {
		return fmt.Errorf("podman service: %w", err)
	}
	s.log.Info("started the Podman service", "socket", s.socket)
	for deadline := time.Now().Add(serviceStart); time.Now().Before(deadline); {
		select {
		case <-exited:
			return fmt.Errorf("podman service ended at once: %s", lastLine(s.output))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
		if s.answers() {
			return nil
		}
	}
	return fmt.Errorf("podman service does not listen on %s after %s: %s", s.socket, serviceStart, lastLine(s.output))
}

// spawn starts the service in a session of its own, so that it outlives the agent and its terminal.
func (s *service) spawn() (<-chan struct{}, error) {
	out, err := os.OpenFile(s.output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	args := []string{"system", "service", "--time", serviceIdle, "unix://" + s.socket}
	if _, err := lookPath("runc"); err == nil && s.preferRunc {
		args = append([]string{"--runtime", "runc"}, args...)
	}
	cmd := s.command(args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	s.children.Go(func() {
		defer close(exited)
		waited := make(chan struct{})
		go func() { _ = cmd.Wait(); close(waited) }()
		select {
		case <-waited:
		case <-s.ctx.Done(): // it goes on alone; this process ends
		}
	})
	return exited, nil
}

// command is Podman's program with the user's environment, in a directory that cannot vanish.
func (s *service) command(args ...string) *exec.Cmd {
	cmd := exec.Command("podman", args...)
	if p, err := lookPath("podman"); err == nil {
		cmd = exec.Command(p, args...)
	}
	cmd.Env, cmd.Dir = account.PodmanEnv(s.user), "/"
	return cmd
}

// lookPath finds a program on the account's path, not on the one this process happens to have.
func lookPath(name string) (string, error) {
	for _, d := range filepath.SplitList(account.Path) {
		p := filepath.Join(d, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, exec.ErrNotFound)
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

func (s *service) wait() { s.children.Wait() }

// call makes one request to Podman, again while its database is busy, and sorts its error.
func (s *service) call(ctx context.Context, what string, f func(context.Context) error) error {
	conn, err := s.connect(ctx)
	if err != nil {
		return &agentrpc.Error{Code: agentrpc.CodeUnavailable, Message: what + ": " + err.Error()}
	}
	wait := 50 * time.Millisecond
	for try := 1; ; try++ {
		err = s.once(ctx, conn, f)
		if !locked(err) || try == lockedTries {
			return fault(what, err)
		}
		if pause(ctx, wait) != nil {
			return fault(what, err)
		}
		wait *= 2
	}
}

func (s *service) once(ctx, conn context.Context, f func(context.Context) error) error {
	req, cancel := context.WithCancel(context.WithValue(conn, sentKey{}, new(atomic.Bool)))
	defer cancel()
	stop := context.AfterFunc(ctx, cancel)
	defer stop()
	err := f(req)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", ctx.Err(), err)
	}
	return err
}

type sentKey struct{}

var errSent = errors.New("podman did not answer; the request is not repeated")

// onceTransport sends what changes something at most once per call. The bindings post again when an answer gets lost,
// and a start posted twice runs a short job twice.
type onceTransport struct{ next http.RoundTripper }

func (t onceTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if sent, ok := r.Context().Value(sentKey{}).(*atomic.Bool); ok && r.Method != http.MethodGet && sent.Swap(true) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, errSent
	}
	return t.next.RoundTrip(r)
}

// CloseIdleConnections drops connections to a service that has gone.
func (t onceTransport) CloseIdleConnections() {
	if c, ok := t.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
