//go:build e2e

// Package e2e runs gputop's own binaries against real rootless Podman, real SQLite and real sockets, as ordinary
// accounts. Only the GPUs are simulated. It needs root, to make the accounts; each test has a daemon of its own.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// The accounts of the tests, made by scripts/test-account and kept for the next run.
const (
	alice = "gputop-test-a"
	bob   = "gputop-test-b"
	image = "localhost/gputop-demo:latest"
)

// bin is a directory that every account can read, with the binaries of this tree.
var bin string

func TestMain(m *testing.M) {
	if how := os.Getenv("GPUTOP_HOSTILE"); how != "" {
		if err := hostile(how, os.Getenv("GPUTOP_HOSTILE_SOCKET")); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(0)
	}
	if os.Getuid() != 0 {
		fmt.Fprintln(os.Stderr, "the end-to-end tests make accounts, and need root: sudo make test")
		os.Exit(1)
	}
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func setUp(m *testing.M) (int, error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return 1, err
	}
	for _, a := range []string{alice, bob} {
		c := exec.Command(filepath.Join(root, "scripts", "test-account"), a)
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Run(); err != nil {
			return 1, fmt.Errorf("make the account %s: %w", a, err)
		}
	}
	if bin, err = os.MkdirTemp("", "gputop-e2e-"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(bin)
	if err := os.Chmod(bin, 0o755); err != nil {
		return 1, err
	}
	// Programs are looked up with our own path, not with the account's.
	if err := os.Setenv("PATH", bin+":"+os.Getenv("PATH")); err != nil {
		return 1, err
	}
	for _, name := range []string{"gputop", "gputopd", "simload"} {
		b, err := os.ReadFile(filepath.Join(root, "bin", name))
		if err != nil {
			return 1, fmt.Errorf("%w; build first: make build", err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), b, 0o755); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// person is an account that uses gputop.
type person struct {
	t    *testing.T
	name string
	uid  int
	gid  int
	home string
	// env is what differs from a login: which daemon is spoken to.
	env []string
}

func newPerson(t *testing.T, name string, env ...string) *person {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &person{t: t, name: name, uid: uid, gid: gid, home: u.HomeDir, env: env}
}

// command is a program run as the person, in their home.
func (p *person) command(ctx context.Context, argv ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = p.home
	c.Env = append([]string{"HOME=" + p.home, "USER=" + p.name, "LOGNAME=" + p.name, "LANG=C.UTF-8", "TERM=xterm-256color",
		"PATH=" + bin + ":/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}, p.env...)
	if run := fmt.Sprintf("/run/user/%d", p.uid); exists(run) {
		c.Env = append(c.Env, "XDG_RUNTIME_DIR="+run)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.uid), Gid: uint32(p.gid)}}
	c.WaitDelay = 5 * time.Second
	return c
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// result is what a command left.
type result struct {
	out, err string
	code     int
}

func (p *person) try(argv ...string) result { return p.tryIn(p.home, argv...) }

func (p *person) tryIn(dir string, argv ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.t.Context()), 3*time.Minute)
	defer cancel()
	c := p.command(ctx, argv...)
	c.Dir = dir
	var out, errb bytes.Buffer
	c.Stdout, c.Stderr = &out, &errb
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatalf("%v: %v", argv, err)
	}
	return result{out.String(), errb.String(), c.ProcessState.ExitCode()}
}

// run is a command that must succeed.
func (p *person) run(argv ...string) string {
	p.t.Helper()
	r := p.try(argv...)
	if r.code != 0 {
		p.t.Fatalf("%s: %v: exit %d\n%s%s", p.name, argv, r.code, r.out, r.err)
	}
	return r.out
}

// gputop runs the client.
func (p *person) gputop(args ...string) string {
	p.t.Helper()
	return p.run(append([]string{"gputop"}, args...)...)
}

func (p *person) submit(args ...string) engine.JobID {
	p.t.Helper()
	return p.submitIn(p.home, args...)
}

func (p *person) submitIn(dir string, args ...string) engine.JobID {
	p.t.Helper()
	r := p.tryIn(dir, append([]string{"gputop", "submit", "--json"}, args...)...)
	if r.code != 0 {
		p.t.Fatalf("submit %v: exit %d\n%s%s", args, r.code, r.out, r.err)
	}
	var resp struct{ Job api.Job }
	if err := json.Unmarshal([]byte(r.out), &resp); err != nil || resp.Job.ID == 0 {
		p.t.Fatalf("submit %v: %v: %s", args, err, r.out)
	}
	return resp.Job.ID
}

func (p *person) show(id engine.JobID) api.JobDetail {
	p.t.Helper()
	var resp struct{ Job api.JobDetail }
	out := p.gputop("show", id.String(), "--json")
	if err := json.Unmarshal([]byte(out), &resp); err != nil {
		p.t.Fatalf("show: %v: %s", err, out)
	}
	return resp.Job
}

func (p *person) list() []api.Job {
	p.t.Helper()
	var resp struct{ Jobs []api.Job }
	out := p.gputop("ls", "--json")
	if err := json.Unmarshal([]byte(out), &resp); err != nil {
		p.t.Fatalf("ls: %v: %s", err, out)
	}
	return resp.Jobs
}

// until waits for a job to be what f wants.
func (p *person) until(id engine.JobID, what string, f func(api.JobDetail) bool) api.JobDetail {
	p.t.Helper()
	var d api.JobDetail
	p.eventually(fmt.Sprintf("job %s is %s", id, what), func() (bool, string) {
		d = p.show(id)
		b, _ := json.MarshalIndent(d, "", " ")
		return f(d), string(b)
	})
	return d
}

func (p *person) untilState(id engine.JobID, s engine.JobState) api.JobDetail {
	p.t.Helper()
	return p.until(id, string(s), func(d api.JobDetail) bool {
		if d.State.Final() && d.State != s {
			p.t.Fatalf("job %s is %s, want %s: %s", id, d.State, s, d.Message)
		}
		return d.State == s
	})
}

// released waits until no attempt of a job holds anything.
func (p *person) released(id engine.JobID) api.JobDetail {
	p.t.Helper()
	return p.until(id, "released", func(d api.JobDetail) bool {
		for _, a := range d.Attempts {
			if a.Allocation.Holds() {
				return false
			}
		}
		return true
	})
}

// eventually polls what has no event to wait for: the state of other processes.
func (p *person) eventually(what string, f func() (bool, string)) {
	p.t.Helper()
	deadline := time.Now().Add(90 * time.Second)
	for {
		ok, seen := f()
		if ok {
			return
		}
		if time.Now().After(deadline) {
			p.t.Fatalf("never: %s; last seen:\n%s", what, seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// logs is all the output of a job.
func (p *person) logs(id engine.JobID) string { return p.gputop("logs", id.String()) }

// dir makes a directory of the person's.
func (p *person) dir(name string) string {
	p.t.Helper()
	d := filepath.Join(p.home, "e2e-"+strings.ReplaceAll(p.t.Name(), "/", "-"), name)
	if err := os.MkdirAll(d, 0o755); err != nil {
		p.t.Fatal(err)
	}
	for q := d; q != p.home; q = filepath.Dir(q) {
		if err := os.Chown(q, p.uid, p.gid); err != nil {
			p.t.Fatal(err)
		}
	}
	p.t.Cleanup(func() { os.RemoveAll(filepath.Join(p.home, "e2e-"+strings.ReplaceAll(p.t.Name(), "/", "-"))) })
	return d
}

// personal gives a person a personal daemon of their own, which the first command starts.
func personal(t *testing.T, name, simulate string) *person {
	p := newPerson(t, name)
	state := p.dir("state")
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"GPUTOP_STATE_DIR=" + state, "GPUTOP_SIMULATE=" + simulate}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, state)
		}
		endAll(p, state)
	})
	return p
}

func (p *person) state() string { return strings.TrimPrefix(p.env[0], "GPUTOP_STATE_DIR=") }

func showLogs(t *testing.T, state string) {
	for _, f := range []string{"daemon.log", "agent/agent.log"} {
		if b, err := os.ReadFile(filepath.Join(state, f)); err == nil {
			t.Logf("%s:\n%s", f, b)
		}
	}
}

// endAll ends a test's daemon, agents and containers.
func endAll(p *person, state string) {
	for _, pid := range processes(state) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_ = p.command(ctx, "podman", "rm", "-fa", "-t", "0").Run()
}

// processes lists the processes of gputop whose command line has a word.
func processes(words ...string) []int {
	var pids []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		b, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		line := strings.ReplaceAll(string(b), "\x00", " ")
		if err != nil || !strings.Contains(line, "gputopd ") {
			continue
		}
		all := true
		for _, w := range words {
			all = all && strings.Contains(line, w)
		}
		if all {
			pids = append(pids, pid)
		}
	}
	return pids
}
