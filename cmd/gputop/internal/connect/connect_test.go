package connect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gputop/engine/api"
)

// The test's own program plays the daemon: how is in FAKE_DAEMON.
func TestMain(m *testing.M) {
	if os.Getenv("FAKE_DAEMON") != "" {
		os.Exit(fakeDaemon(os.Getenv("FAKE_DAEMON"), os.Args[1:]))
	}
	os.Exit(m.Run())
}

func fakeDaemon(how string, args []string) int {
	dir := args[3] // serve --personal --state-dir DIR
	if how == "fails" {
		fmt.Fprintln(os.Stderr, "level=INFO msg=starting\ngputopd: /home is on NFS: SQLite does not work there")
		return 1
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil || syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		fmt.Fprintln(os.Stderr, "gputopd: another daemon has the lock")
		return 1
	}
	cwd, _ := os.Getwd()
	sid, _, _ := syscall.RawSyscall(syscall.SYS_GETSID, 0, 0, 0)
	fmt.Printf("started %q in %s, session leader %t\n", args, cwd, int(sid) == os.Getpid())
	l, err := api.ListenUnix(filepath.Join(dir, "gputop.sock"), 0o600)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Ends with the test: when its directory goes.
	for {
		_ = l.(*net.UnixListener).SetDeadline(time.Now().Add(100 * time.Millisecond))
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
		if _, err := os.Stat(dir); err != nil {
			return 0
		}
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// options are those of an ordinary user on a box without a system install.
func options(t *testing.T, how string, env map[string]string) Options {
	t.Helper()
	t.Setenv("FAKE_DAEMON", how)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if env == nil {
		env = map[string]string{"HOME": shortDir(t)}
	}
	return Options{Getenv: func(k string) string { return env[k] }, UID: 1000, Daemon: self, Marks: []string{"/nonexistent/s"}}
}

var ctx = context.Background()

func TestStartsPersonalDaemonOnce(t *testing.T) {
	home := shortDir(t)
	o := options(t, "works", map[string]string{"HOME": home, "GPUTOP_SIMULATE": "t4:2"})
	var wg sync.WaitGroup
	for range 5 { // racing starters all find the one that got the lock
		wg.Go(func() {
			c, err := Open(ctx, o)
			if err != nil || c.Socket != home+"/.local/state/gputop/gputop.sock" {
				t.Errorf("got %+v, %v", c, err)
			}
		})
	}
	wg.Wait()
	dir := home + "/.local/state/gputop"
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("state directory: %v, %v", st, err)
	}
	b, err := os.ReadFile(dir + "/daemon.log")
	want := fmt.Sprintf(`started ["serve" "--personal" "--state-dir" %q "--simulate" "t4:2"] in /, session leader true`, dir)
	if err != nil || strings.Count(string(b), "started ") != 1 || !strings.Contains(string(b), want) {
		t.Errorf("log %s, %v\nwant once: %s", b, err, want)
	}
}

func TestNoDaemon(t *testing.T) {
	dir := shortDir(t)
	mark := dir + "/config.yaml"
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		how  string
		env  map[string]string
		do   func(*Options)
		want string
	}{
		{"fails", "fails", nil, nil, "the daemon did not start: /home is on NFS: SQLite does not work there\nMore in "},
		{"system install down", "works", nil, func(o *Options) { o.Marks = []string{dir + "/s", mark} },
			"no gputop daemon on " + dir + "/s: it does not exist; gputop is installed for this machine (" + mark + "); look at: systemctl status gputop"},
		{"socket given", "works", nil, func(o *Options) { o.Socket = dir + "/s" }, "no gputop daemon on " + dir + "/s: it does not exist; is its daemon running?"},
		{"socket in environment", "works", map[string]string{"GPUTOP_SOCKET": dir + "/e"}, nil, "no gputop daemon on " + dir + "/e"},
		{"root", "works", nil, func(o *Options) { o.UID = 0 }, "root runs no personal daemon, because a container never runs as root\nStart the shared one"},
		{"long path", "works", map[string]string{"GPUTOP_STATE_DIR": "/" + strings.Repeat("x", 100)}, nil, "Linux allows 107"},
		{"no home", "works", map[string]string{}, nil, "set HOME or GPUTOP_STATE_DIR"},
		{"not writable", "works", map[string]string{"GPUTOP_STATE_DIR": "/proc/x"}, nil, "set GPUTOP_STATE_DIR to one you may write"},
		{"only looks", "works", nil, func(o *Options) { o.NoStart = true }, "it starts with the first job"},
		{"no program", "works", nil, func(o *Options) { o.Daemon = "/nonexistent/gputopd" }, "the daemon can't be started"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := options(t, c.how, c.env)
			if c.do != nil {
				c.do(&o)
			}
			_, err := Open(ctx, o)
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, api.ErrUnreachable) {
				t.Errorf("got %v, want …%s…", err, c.want)
			}
		})
	}
}

func TestSystemInstallIsUsed(t *testing.T) {
	path := shortDir(t) + "/s"
	l, err := api.ListenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := options(t, "fails", nil)
	o.Marks = []string{path}
	if c, err := Open(ctx, o); err != nil || c.Socket != path {
		t.Errorf("got %+v, %v", c, err)
	}
}
