// Package connect finds the daemon that a user's gputop talks to, and starts a personal one where there is none and
// no system install. It must not decide anything about jobs, and must not start a second daemon beside a system install,
// also while that is down.
package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gputop/engine/api"
)

// SystemSocket is where the shared daemon of a machine listens.
const SystemSocket = "/run/gputop/gputop.sock"

// systemMarks are files of which one is there when gputop is installed for the whole machine.
var systemMarks = []string{
	SystemSocket, "/etc/gputop/config.yaml", "/etc/systemd/system/gputop.service", "/usr/lib/systemd/system/gputop.service",
	"/lib/systemd/system/gputop.service",
}

// startTime bounds how long a personal daemon may take to answer after its start.
const startTime = 10 * time.Second

// Error says why there is no daemon to talk to, and what to do. It unwraps to api.ErrUnreachable.
type Error struct{ Message string }

func (e *Error) Error() string { return e.Message }

// Unwrap is api.ErrUnreachable.
func (e *Error) Unwrap() error { return api.ErrUnreachable }

// Options say where to look. The zero value looks where a user's gputop does.
type Options struct {
	// Socket is used alone when set, in front of $GPUTOP_SOCKET.
	Socket string
	// Simulate is handed to a personal daemon that is started, in front of $GPUTOP_SIMULATE.
	Simulate string
	// Library is the path of the NVML library for a personal daemon that is started; empty for the system's.
	Library string
	// NoStart only looks.
	NoStart bool

	// What follows is for tests: the environment, the caller, the system's files and the daemon's program.
	Getenv func(string) string
	UID    int
	Marks  []string
	Daemon string
}

func (o Options) withDefaults() Options {
	if o.Getenv == nil {
		o.Getenv, o.UID, o.Marks = os.Getenv, os.Getuid(), systemMarks
	}
	if o.Socket == "" {
		o.Socket = o.Getenv("GPUTOP_SOCKET")
	}
	if o.Simulate == "" {
		o.Simulate = o.Getenv("GPUTOP_SIMULATE")
	}
	// A scenario's path is the caller's; the daemon runs elsewhere.
	if strings.HasSuffix(o.Simulate, ".yaml") || strings.HasSuffix(o.Simulate, ".yml") {
		if abs, err := filepath.Abs(o.Simulate); err == nil {
			o.Simulate = abs
		}
	}
	return o
}

// Open returns a client of a daemon that answers.
func Open(ctx context.Context, o Options) (*api.Client, error) {
	o = o.withDefaults()
	if o.Socket != "" {
		if err := answers(ctx, o.Socket); err != nil {
			return nil, unreachable(o.Socket, err, "is its daemon running?")
		}
		return &api.Client{Socket: o.Socket}, nil
	}
	if mark := o.systemInstall(); mark != "" {
		if err := answers(ctx, o.Marks[0]); err != nil {
			return nil, unreachable(o.Marks[0], err, "gputop is installed for this machine ("+mark+"); look at: systemctl status gputop")
		}
		return &api.Client{Socket: o.Marks[0]}, nil
	}
	return o.personal(ctx)
}

// systemInstall is the file that shows a system install, or "".
func (o Options) systemInstall() string {
	for _, m := range o.Marks {
		if _, err := os.Lstat(m); err == nil {
			return m
		}
	}
	return ""
}

func unreachable(socket string, err error, what string) error {
	why := "nobody answers"
	switch {
	case errors.Is(err, fs.ErrPermission):
		why = "you may not open it"
	case errors.Is(err, fs.ErrNotExist):
		why = "it does not exist"
	case !errors.Is(err, syscall.ECONNREFUSED):
		why = err.Error()
	}
	return &Error{fmt.Sprintf("no gputop daemon on %s: %s; %s", socket, why, what)}
}

// answers dials the socket and hangs up.
func answers(ctx context.Context, socket string) error {
	if err := api.CheckSocketPath(socket); err != nil {
		return err
	}
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return err
	}
	return c.Close()
}

// stateDir is the directory of a user's personal daemon.
func (o Options) stateDir() (string, error) {
	dir := o.Getenv("GPUTOP_STATE_DIR")
	if dir == "" {
		base := o.Getenv("XDG_STATE_HOME")
		if base == "" {
			home := o.Getenv("HOME")
			if home == "" {
				return "", errors.New("no directory for the daemon's state: set HOME or GPUTOP_STATE_DIR")
			}
			base = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(base, "gputop")
	}
	return filepath.Abs(dir)
}

// personal returns a client of the user's own daemon, started if need be.
func (o Options) personal(ctx context.Context) (*api.Client, error) {
	if o.UID == 0 {
		return nil, &Error{"root runs no personal daemon, because a container never runs as root\n" +
			"Start the shared one (systemctl start gputop, or gputopd serve --shared), or use an ordinary account."}
	}
	dir, err := o.stateDir()
	if err != nil {
		return nil, &Error{err.Error()}
	}
	socket := filepath.Join(dir, "gputop.sock")
	if err := api.CheckSocketPath(socket); err != nil {
		return nil, &Error{err.Error()}
	}
	err = answers(ctx, socket)
	if err == nil {
		return &api.Client{Socket: socket}, nil
	}
	if errors.Is(err, fs.ErrPermission) || ctx.Err() != nil {
		return nil, unreachable(socket, err, "whose directory is it?")
	}
	if o.NoStart {
		return nil, unreachable(socket, err, "it starts with the first job, or with gputop")
	}
	if err := o.start(ctx, dir, socket); err != nil {
		return nil, err
	}
	c := &api.Client{Socket: socket}
	settle(ctx, c)
	return c, nil
}

// settle lets a daemon that was just started see the cards, so that the first job is not refused for that. What is wrong
// with them is for the request that follows to say.
func settle(ctx context.Context, c *api.Client) {
	ctx, cancel := context.WithTimeout(ctx, startTime/2)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if g, err := c.GPUs(ctx); err != nil || !g.Time.IsZero() {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// start runs the daemon in a session of its own and waits until it answers. When several are started at once, the lock
// of the state directory leaves one, and all callers find that one.
func (o Options) start(ctx context.Context, dir, socket string) error {
	program, err := o.program()
	if err != nil {
		return &Error{err.Error()}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return &Error{fmt.Sprintf("the daemon's state directory can't be made: %v; set GPUTOP_STATE_DIR to one you may write", err)}
	}
	logPath := filepath.Join(dir, "daemon.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return &Error{fmt.Sprintf("the daemon's log can't be written: %v; set GPUTOP_STATE_DIR to a directory you may write", err)}
	}
	defer log.Close()
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return &Error{fmt.Sprintf("the daemon's log: %v", err)}
	}
	args := []string{"serve", "--personal", "--state-dir", dir}
	if o.Simulate != "" {
		args = append(args, "--simulate", o.Simulate)
	}
	if o.Library != "" {
		args = append(args, "--nvml-library", o.Library)
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return &Error{fmt.Sprintf("the daemon can't be started: %v", err)}
	}
	// It outlives this process; waiting only tells early that it failed.
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err := awaitSocket(ctx, socket, ended); err != nil {
		if last := lastLine(logPath, before); last != "" {
			return &Error{fmt.Sprintf("the daemon did not start: %s\nMore in %s", last, logPath)}
		}
		return &Error{fmt.Sprintf("the daemon did not start: %v; see %s", err, logPath)}
	}
	return nil
}

// awaitSocket polls until the socket answers. A daemon that ended may have lost a race: the winner gets a moment.
func awaitSocket(ctx context.Context, socket string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	var failed error
	var last <-chan time.Time
	for {
		if answers(ctx, socket) == nil {
			return nil
		}
		select {
		case <-tick.C:
		case err := <-ended:
			failed = fmt.Errorf("it ended: %v", err)
			last = time.After(2 * time.Second)
		case <-last:
			return failed
		case <-ctx.Done():
			if failed != nil {
				return failed
			}
			return fmt.Errorf("it does not answer: %w", ctx.Err())
		}
	}
}

// Program finds gputopd for this program's user.
func Program() (string, error) { return Options{}.program() }

// Simulated is which cards are to be simulated: what was asked for, else what the environment says.
func Simulated(asked string) string { return Options{Simulate: asked}.withDefaults().Simulate }

// program finds gputopd: beside this program, then on the PATH.
func (o Options) program() (string, error) {
	if o.Daemon != "" {
		return o.Daemon, nil
	}
	if self, err := os.Executable(); err == nil {
		if real, err := filepath.EvalSymlinks(self); err == nil {
			self = real
		}
		beside := filepath.Join(filepath.Dir(self), "gputopd")
		if st, err := os.Stat(beside); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return beside, nil
		}
	}
	path, err := exec.LookPath("gputopd")
	if err != nil {
		return "", errors.New("gputopd, the daemon, is neither beside gputop nor on the PATH: install both")
	}
	return path, nil
}

// lastLine is what the daemon said last after the given offset of its log.
func lastLine(path string, from int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 64 << 10
	if st, err := f.Stat(); err == nil && st.Size()-from > most {
		from = st.Size() - most
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.TrimPrefix(strings.TrimSpace(lines[len(lines)-1]), "gputopd: ")
}
