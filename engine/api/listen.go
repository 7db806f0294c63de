package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// MaxSocketPath is the longest path of a Unix socket on Linux, in bytes.
const MaxSocketPath = 107

// ErrInUse means that a daemon already answers on the socket: use it, or stop it first.
var ErrInUse = errors.New("a daemon already listens")

// CheckSocketPath says whether a socket can have this path.
func CheckSocketPath(path string) error {
	if len(path) > MaxSocketPath {
		return fmt.Errorf("the socket path %s has %d bytes; Linux allows %d: choose a shorter directory with GPUTOP_STATE_DIR", path, len(path), MaxSocketPath)
	}
	return nil
}

// ListenUnix listens on a socket at path. A socket that somebody answers is left alone (ErrInUse); a dead one is
// removed if it is ours; anything else at path is an error. The caller holds the lock of the directory, so nobody else
// does the same at the same time.
func ListenUnix(path string, mode os.FileMode) (net.Listener, error) {
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	if err := clearSocket(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return l, nil
}

func clearSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return errors.New("something that is no socket is there already; move it away")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
		return ErrInUse
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Geteuid() {
		return errors.New("a dead socket of another user is there; its owner or root has to remove it")
	}
	return os.Remove(path)
}

// ActivatedListener is the socket that systemd opened for this process, or nil where it was not started so.
func ActivatedListener() (net.Listener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	fds := os.Getenv("LISTEN_FDS")
	for _, name := range []string{"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"} {
		os.Unsetenv(name) // children must not take the socket for theirs
	}
	if fds != "1" {
		return nil, fmt.Errorf("systemd handed over %s sockets; the socket unit must have one", fds)
	}
	const first = 3
	syscall.CloseOnExec(first)
	f := os.NewFile(first, "systemd socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket from systemd: %w", err)
	}
	if l.Addr().Network() != "unix" {
		l.Close()
		return nil, fmt.Errorf("the socket from systemd is %s; the socket unit must name a path", l.Addr().Network())
	}
	return l, nil
}
