//go:build e2e

package runner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

func TestE2ERuntime(t *testing.T) {
	b := newBench(t)
	r := b.hello.Runtime
	if r.Problem != nil || r.PodmanVersion == "" || r.OCIRuntime == "" || r.CgroupVersion == 0 || r.StorageDriver != "overlay" {
		t.Errorf("runtime %+v (problem %+v)", r, r.Problem)
	}
	t.Logf("runtime %+v", r)
	if b.image.Name != testImage || b.image.ID == "" || b.image.Digest == "" {
		t.Errorf("image %+v", b.image)
	}
	var none agentrpc.Image
	if err := b.Call(t.Context(), agentrpc.MethodResolveImage, agentrpc.ResolveImageArgs{Image: "docker.io/library/nowhere:9"}, &none); err != nil || none.Found {
		t.Errorf("unknown image: %+v, %v", none, err)
	}
	if err := b.Call(t.Context(), agentrpc.MethodInspect, agentrpc.Ref{Name: "gputop-none"}, nil); agentrpc.CodeOf(err) != agentrpc.CodeNotFound {
		t.Errorf("inspect of nothing: %v", err)
	}
	if err := b.Call(t.Context(), agentrpc.MethodRemove, agentrpc.Ref{Name: "gputop-none"}, nil); err != nil {
		t.Errorf("remove of nothing: %v", err)
	}
}

func TestE2EInside(t *testing.T) {
	b := newBench(t)
	sim := filepath.Join(b.dir, "sim0")
	if err := os.WriteFile(sim, []byte("SIMULATED"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := b.spec("sh", "-c", `id -u; cat /proc/self/uid_map; echo made > here; echo "$GPUTOP_CHECKPOINT_DIR"; touch "$GPUTOP_CHECKPOINT_DIR/kept"; cat /dev/nvidia0; echo; echo "$LEASE"; echo err >&2; echo -n open; exit 7`)
	s.Edits = &agentrpc.Edits{Env: []string{"LEASE=x"}, Mounts: []engine.Mount{{Source: sim, Target: "/dev/nvidia0"}}}
	s.Output, s.CPUs, s.Memory, s.ShmSize = "out.log", 1, 64<<20, 8<<20
	created := b.must(agentrpc.MethodCreate, s)
	if again := b.must(agentrpc.MethodCreate, s); again.ID != created.ID {
		t.Errorf("created again as %s, was %s", again.ID, created.ID)
	}
	other := s
	other.Attempt.Number = 2
	if err := b.Call(t.Context(), agentrpc.MethodCreate, other, nil); agentrpc.CodeOf(err) != agentrpc.CodeConflict {
		t.Errorf("a name that another attempt has: %v", err)
	}
	if b.hello.Runtime.CgroupVersion == 1 && len(created.Notes) < 2 {
		t.Errorf("notes %q, want both limits named", created.Notes)
	}
	b.must(agentrpc.MethodInit, agentrpc.Ref{Name: s.Name})
	b.must(agentrpc.MethodStart, agentrpc.Ref{Name: s.Name})
	end := receive(t, b.exited, "end")
	if end.ExitCode != 7 || end.State != "exited" && end.State != "stopped" || end.StartedAt.IsZero() || end.FinishedAt.IsZero() {
		t.Errorf("ended %+v", end)
	}
	got := b.output(s)
	uid := strconv.Itoa(os.Getuid())
	for _, want := range []string{"0\n", uid, filepath.Join(b.state, "checkpoints", s.Attempt.Job.String()) + "\n", "SIMULATED\n", "\nx\n", "err\n", "open"} {
		if !strings.Contains(got, want) {
			t.Errorf("output %q lacks %q", got, want)
		}
	}
	if f, err := os.ReadFile(filepath.Join(b.dir, "out.log")); err != nil || string(f) != got {
		t.Errorf("copy %q, want %q (%v)", f, got, err)
	}
	if !account.Owned(filepath.Join(b.state, "checkpoints", s.Attempt.Job.String()), uint32(os.Getuid())) {
		t.Error("no checkpoint directory of the user's")
	}
	if _, err := os.Stat(filepath.Join(b.dir, "here")); err != nil {
		t.Errorf("the working directory was not written: %v", err)
	}
	forget := agentrpc.ForgetArgs{Job: s.Attempt.Job}
	if err := b.Call(t.Context(), agentrpc.MethodForget, forget, nil); agentrpc.CodeOf(err) != agentrpc.CodeConflict || b.output(s) != got {
		t.Errorf("forget with a container: %v", err)
	}
	if c := b.must(agentrpc.MethodStart, agentrpc.Ref{Name: s.Name}); c.ExitCode != 7 || c.Running() {
		t.Errorf("started again: %+v", c)
	}
	for range 2 {
		if err := b.Call(t.Context(), agentrpc.MethodRemove, agentrpc.Ref{ID: end.ID}, nil); err != nil {
			t.Errorf("remove: %v", err)
		}
	}
	if b.output(s) != got {
		t.Error("the log went with the container")
	}
	if err := b.Call(t.Context(), agentrpc.MethodForget, agentrpc.ForgetArgs{Job: s.Attempt.Job}, nil); err != nil || b.output(s) != "" {
		t.Errorf("forget: %v", err)
	}
}

func TestE2EHostEnv(t *testing.T) {
	b := newBench(t)
	args := agentrpc.PrepareArgs{Job: 1, HostEnv: true, Workdir: b.dir}
	var img, again agentrpc.Image
	if err := b.Call(t.Context(), agentrpc.MethodPrepare, args, &img); err != nil {
		t.Fatal(err)
	}
	if err := b.Call(t.Context(), agentrpc.MethodPrepare, args, &again); err != nil || again != img {
		t.Fatalf("second time %+v, %v; first %+v", again, err, img)
	}
	if err := os.WriteFile(filepath.Join(b.dir, "proof"), []byte("proof\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = `echo "$HOME $(whoami) $PWD $E2E_CDI"; cat proof; touch /usr/gputop-x 2>/dev/null && echo usr-writable; touch /etc/gputop-x && echo etc-writable; perl -e 'print "perl\n"'`
	for _, tc := range []struct {
		name string
		cdi  []string
		env  string
		usr  string
	}{
		{"plain", nil, "", ""},
		{"a vendor's device, whose hooks may write to /usr", []string{cdiDevice}, "yes", "usr-writable\n"},
	} {
		s := b.spec("bash", "-c", script)
		s.ImageID, s.HostEnv, s.CDIDevices = img.ID, true, tc.cdi
		end := b.run(s)
		want := fmt.Sprintf("%s %s %s %s\nproof\n%setc-writable\nperl\n", os.Getenv("HOME"), os.Getenv("USER"), b.dir, tc.env, tc.usr)
		if got := b.output(s); end.ExitCode != 0 || got != want {
			t.Errorf("%s: exit %d, output %q, want %q", tc.name, end.ExitCode, got, want)
		}
		if _, err := os.Stat("/usr/gputop-x"); err == nil {
			t.Fatal("the job wrote to the host's /usr")
		}
	}
}

func TestE2EPrepareRefuses(t *testing.T) {
	b := newBench(t)
	for _, tc := range []struct {
		args agentrpc.PrepareArgs
		want string
	}{
		{agentrpc.PrepareArgs{Image: testImage, Workdir: b.dir + "/none"}, "does not exist"},
		{agentrpc.PrepareArgs{Image: testImage, Workdir: b.dir, Mounts: []engine.Mount{{Source: "/etc/shadow", Target: "/x"}}}, "may not read"},
		{agentrpc.PrepareArgs{Image: testImage, Workdir: b.dir, Output: "/etc/x.log"}, "may not create"},
		{agentrpc.PrepareArgs{Image: testImage, Workdir: "/dev/shm"}, "/dev"},
		{agentrpc.PrepareArgs{Image: "no such image", Workdir: b.dir}, "image"},
		{agentrpc.PrepareArgs{Image: "0123456789ab", Workdir: b.dir}, "an ID cannot be pulled"},
	} {
		err := b.Call(t.Context(), agentrpc.MethodPrepare, tc.args, nil)
		if agentrpc.CodeOf(err) != agentrpc.CodeInvalid || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.args, err, tc.want)
		}
	}
	err := b.Call(t.Context(), agentrpc.MethodPrepare, agentrpc.PrepareArgs{Image: "localhost:1/nothing:1", Workdir: b.dir}, nil)
	if agentrpc.CodeOf(err) != agentrpc.CodeFailed || !strings.Contains(err.Error(), "could not be pulled") {
		t.Errorf("a registry that is not there: %v (%s)", err, agentrpc.CodeOf(err))
	}
	// A short name has one meaning, which is said in full.
	err = b.Call(t.Context(), agentrpc.MethodPrepare, agentrpc.PrepareArgs{Image: "not-an-alias-of-anything", Workdir: b.dir}, nil)
	if err == nil || !strings.Contains(err.Error(), "docker.io/library/not-an-alias-of-anything:latest") {
		t.Errorf("a short name: %v", err)
	}
}

func TestE2EStop(t *testing.T) {
	b := newBench(t)
	// A shell that waits ignores the signal for its child's sake: the child saves first.
	s := b.spec("sh", "-c", `sh -c 'trap "echo saved; exit 3" TERM; echo ready; while :; do sleep 0.1; done'; echo "child $?"`)
	c := b.start(s)
	b.until(s, "ready")
	if err := b.Call(t.Context(), agentrpc.MethodStop, agentrpc.StopArgs{Ref: agentrpc.Ref{ID: c.ID}, Signal: "SIGTERM", Grace: time.Minute}, nil); err != nil {
		t.Fatal(err)
	}
	end := receive(t, b.exited, "end after SIGTERM")
	if got := b.output(s); !strings.Contains(got, "saved\n") {
		t.Errorf("output %q, exit %d: the program could not save", got, end.ExitCode)
	}

	s = b.spec("sh", "-c", `trap "" TERM; echo ready; while :; do sleep 0.1; done`)
	c = b.start(s)
	b.until(s, "ready")
	began := time.Now()
	if err := b.Call(t.Context(), agentrpc.MethodStop, agentrpc.StopArgs{Ref: agentrpc.Ref{ID: c.ID}, Signal: "SIGTERM", Grace: time.Second}, nil); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > 900*time.Millisecond {
		t.Errorf("stop answered after %s, want at once", d)
	}
	if end := receive(t, b.exited, "end after SIGKILL"); end.ExitCode != 137 || time.Since(began) < time.Second {
		t.Errorf("ended %+v after %s", end, time.Since(began))
	}
	if err := b.Call(t.Context(), agentrpc.MethodStop, agentrpc.StopArgs{Ref: agentrpc.Ref{ID: c.ID}, Signal: "SIGNOTHING"}, nil); agentrpc.CodeOf(err) != agentrpc.CodeInvalid {
		t.Errorf("unknown signal: %v", err)
	}
}

// The container goes on without agent, engine and Podman's service, and a new agent finds it, its end and its output.
func TestE2EKills(t *testing.T) {
	b := newBench(t)
	s := b.spec("sh", "-c", `echo one; while [ ! -e go ]; do sleep 0.1; done; echo two; while [ ! -e on ]; do sleep 0.1; done; echo three`)
	s.Output = "out.log"
	c := b.start(s)
	b.until(s, "one")
	b.killAgent()
	b.touch("go")
	b.startAgent()
	if now := b.must(agentrpc.MethodInspect, agentrpc.Ref{Name: s.Name}); now.ID != c.ID || now.PID != c.PID || !now.Running() {
		t.Fatalf("adopted %+v, was %+v", now, c)
	}
	b.until(s, "two")

	b.Close() // the engine goes away and comes back
	b.fakeLink = b.engine.link()

	b.killService()
	b.touch("on")
	end := receive(t, b.exited, "end")
	if end.ID != c.ID || end.ExitCode != 0 || end.FinishedAt.IsZero() {
		t.Errorf("ended %+v", end)
	}
	if f, err := os.ReadFile(filepath.Join(b.dir, "out.log")); err != nil || string(f) != "one\ntwo\nthree\n" {
		t.Errorf("copy %q (%v)", f, err)
	}
}

func (b *bench) touch(name string) {
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o644); err != nil {
		b.Fatal(err)
	}
}

// killService kills this bench's Podman service: the processes with its socket in their arguments.
func (b *bench) killService() {
	b.Helper()
	found := 0
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range dirs {
		data, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(data), "unix://"+b.state) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			_ = unix.Kill(pid, unix.SIGKILL)
			found++
		}
	}
	if found == 0 {
		b.Fatal("no Podman service to kill")
	}
}

// A container that lost its conmon never gets an exit code: that must not look like a success.
func TestE2EConmonKilled(t *testing.T) {
	b := newBench(t)
	s := b.spec("sh", "-c", "echo ready; sleep 1000")
	c := b.start(s)
	b.until(s, "ready")
	out, err := exec.Command("podman", "inspect", "--format", "{{.State.ConmonPid}}", c.ID).Output()
	pid, perr := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil || perr != nil || pid < 2 {
		t.Fatalf("conmon's PID %q, %v", out, err)
	}
	if err := errors.Join(unix.Kill(pid, unix.SIGKILL), unix.Kill(c.PID, unix.SIGKILL)); err != nil {
		t.Fatal(err)
	}
	end := receive(t, b.exited, "end")
	if end.Running() || !end.FinishedAt.IsZero() && end.ExitCode == 0 {
		t.Errorf("ended %+v: looks like a success", end)
	}
	t.Logf("told: %+v", end)
}

func TestE2EManyAtOnce(t *testing.T) {
	b := newBench(t)
	const n = 8
	errs := make(chan error, n)
	var specs []agentrpc.ContainerSpec
	for range n {
		specs = append(specs, b.spec("sh", "-c", "exit 5"))
	}
	for _, s := range specs {
		go func() {
			var c agentrpc.Container
			err := b.Call(t.Context(), agentrpc.MethodCreate, s, &c)
			if err == nil {
				err = b.Call(t.Context(), agentrpc.MethodStart, agentrpc.Ref{ID: c.ID}, &c)
			}
			errs <- err
		}()
	}
	for range n {
		if err := receive(t, errs, "start"); err != nil {
			t.Error(err)
		}
	}
	for range n {
		if end := receive(t, b.exited, "end"); end.ExitCode != 5 {
			t.Errorf("ended %+v", end)
		}
	}
}

// TestE2EStartCost compares create, init and start here with a bare podman run: both until the program runs.
func TestE2EStartCost(t *testing.T) {
	b := newBench(t)
	b.run(b.spec("true"))
	const rounds = 7
	var ours, bare time.Duration
	for i := range rounds {
		mark := filepath.Join(b.dir, fmt.Sprint("mark", i))
		s := b.spec("touch", mark)
		began := time.Now()
		b.start(s)
		awaitFile(t, mark)
		ours += time.Since(began)
		receive(t, b.exited, "end")

		mark += "-bare"
		began = time.Now()
		cmd := exec.Command("podman", "--runtime", b.hello.Runtime.OCIRuntime, "run", "--rm", "--init", "--network", "host", "-v", b.dir+":"+b.dir, testImage, "touch", mark)
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		awaitFile(t, mark)
		bare += time.Since(began)
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("create+init+start %s, podman run %s, ratio %.2f", ours/rounds, bare/rounds, float64(ours)/float64(bare))
}

func awaitFile(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
	}
	t.Fatalf("%s never came", path)
}
