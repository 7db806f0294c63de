//go:build e2e

package runner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

// These tests run real rootless Podman. Started as root they make an ordinary account and run again as that one.
const (
	e2eUser   = "gtrun"
	agentMode = "GPUTOP_E2E_AGENT" // the socket of the engine that this process serves as an agent
	testImage = "localhost/gputop-e2e:1"
	// cdiDevice is in a spec that the test's part that runs as root writes and removes.
	cdiDevice = "example.com/e2e=one"
	cdiSpec   = `{"cdiVersion":"0.5.0","kind":"example.com/e2e","devices":[{"name":"one","containerEdits":{"env":["E2E_CDI=yes"]}}]}`
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(agentMode) != "":
		os.Exit(agentMain())
	case os.Getuid() == 0:
		os.Exit(asOrdinaryUser())
	}
	os.Exit(m.Run())
}

func agentMain() int {
	err := Run(context.Background(), Options{EngineSocket: os.Getenv(agentMode), StateDir: os.Getenv("GPUTOP_E2E_STATE"), Version: "e2e",
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// asOrdinaryUser runs this test binary again as an account without rights.
func asOrdinaryUser() int {
	fail := func(err error) int { fmt.Fprintln(os.Stderr, "e2e:", err); return 1 }
	if _, err := user.Lookup(e2eUser); err != nil {
		if out, err := exec.Command("useradd", "-m", "-s", "/bin/bash", e2eUser).CombinedOutput(); err != nil {
			return fail(fmt.Errorf("useradd: %w: %s", err, out))
		}
	}
	u, err := account.Lookup(context.Background(), e2eUser)
	if err != nil {
		return fail(err)
	}
	conf := filepath.Join(u.Home, ".config/containers/storage.conf")
	if _, err := os.Stat(conf); err != nil { // a new account's default here may be vfs
		if err := errors.Join(os.MkdirAll(filepath.Dir(conf), 0o755), os.WriteFile(conf, []byte("[storage]\ndriver = \"overlay\"\n"), 0o644)); err != nil {
			return fail(err)
		}
		if out, err := exec.Command("chown", "-R", e2eUser+":", filepath.Join(u.Home, ".config")).CombinedOutput(); err != nil {
			return fail(fmt.Errorf("chown: %w: %s", err, out))
		}
	}
	cdi := "/etc/cdi/gputop-e2e.json"
	if err := errors.Join(os.MkdirAll("/etc/cdi", 0o755), os.WriteFile(cdi, []byte(cdiSpec), 0o644)); err != nil {
		return fail(err)
	}
	defer os.Remove(cdi)
	dir, err := os.MkdirTemp("", "gputop-e2e-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "runner.test")
	if err := errors.Join(os.Chmod(dir, 0o755), copyFile("/proc/self/exe", bin)); err != nil {
		return fail(err)
	}
	args := slices.DeleteFunc(slices.Clone(os.Args[1:]), func(a string) bool {
		return strings.HasPrefix(a, "-test.testlogfile") // root's directory
	})
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = u.Home, os.Stdout, os.Stderr
	cmd.Env = account.PodmanEnv(u)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: u.UID, Gid: u.GID}}
	if err := cmd.Run(); err != nil {
		return fail(err)
	}
	return 0
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// bench is an engine, an agent process, and a user's directory to work in.
type bench struct {
	*testing.T
	*fakeLink
	engine *fakeEngine
	agent  *exec.Cmd
	log    *bytes.Buffer
	dir    string // the job's working directory
	state  string
	image  agentrpc.Image
	job    engine.JobID
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp(os.Getenv("HOME"), "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, dir: filepath.Join(dir, "project"), state: filepath.Join(dir, "state")}
	if err := os.Mkdir(b.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b.engine = newFakeEngine(t, filepath.Join(dir, "engine.sock"))
	b.job = engine.JobID(time.Now().UnixMicro() % 1e9)
	b.startAgent()
	t.Cleanup(func() {
		out, _ := exec.Command("podman", "ps", "-aq", "--filter", "name=gputop-"+filepath.Base(dir)+"-").Output()
		for _, id := range strings.Fields(string(out)) {
			_ = b.Call(context.Background(), agentrpc.MethodRemove, agentrpc.Ref{ID: id}, nil)
		}
		b.killAgent()
		b.engine.close()
		_ = exec.Command("podman", "unshare", "rm", "-rf", dir).Run()
		if t.Failed() {
			t.Logf("agent: %s", b.log)
		}
	})
	makeImage(t)
	if err := b.Call(t.Context(), agentrpc.MethodResolveImage, agentrpc.ResolveImageArgs{Image: "gputop-e2e:1"}, &b.image); err != nil || !b.image.Found {
		t.Fatalf("short name: %+v, %v", b.image, err)
	}
	return b
}

func (b *bench) startAgent() {
	b.Helper()
	b.agent = exec.Command("/proc/self/exe")
	b.log = &bytes.Buffer{}
	b.agent.Stdout, b.agent.Stderr = b.log, b.log
	b.agent.Env = append(os.Environ(), agentMode+"="+b.engine.socket, "GPUTOP_E2E_STATE="+b.state)
	// The service it starts holds no pipe of ours: output goes to a file.
	f, err := os.OpenFile(filepath.Join(filepath.Dir(b.dir), "agent.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.agent.Stdout, b.agent.Stderr = f, f
	if err := b.agent.Start(); err != nil {
		b.Fatal(err)
	}
	b.fakeLink = b.engine.link()
}

func (b *bench) killAgent() {
	_ = b.agent.Process.Kill()
	_ = b.agent.Wait()
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(b.dir), "agent.log")); err == nil {
		b.log = bytes.NewBuffer(data)
	}
}

// makeImage imports a busybox, once.
func makeImage(t *testing.T) {
	t.Helper()
	if exec.Command("podman", "image", "exists", testImage).Run() == nil {
		return
	}
	root := t.TempDir()
	for _, d := range []string{"bin", "tmp", "proc", "sys", "dev", "run", "etc"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyFile("/bin/busybox", filepath.Join(root, "bin/busybox")); err != nil {
		t.Fatalf("%v (apt-get install busybox-static)", err)
	}
	for _, a := range []string{"sh", "echo", "true", "sleep", "cat", "touch", "env", "id", "kill", "ls"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", a)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("sh", "-c", "tar -C "+root+" -c . | podman import - "+testImage).CombinedOutput(); err != nil {
		t.Fatalf("import: %v: %s", err, out)
	}
}

// spec is a job of the bench's user; every call is a new attempt.
func (b *bench) spec(command ...string) agentrpc.ContainerSpec {
	b.job++
	id := engine.AttemptID{Job: b.job, Number: 1}
	return agentrpc.ContainerSpec{Name: id.ContainerName(filepath.Base(filepath.Dir(b.dir))), Attempt: id, ImageID: b.image.ID,
		Command: command, Workdir: b.dir, Network: "host"}
}

func (b *bench) must(m agentrpc.Method, params any) agentrpc.Container {
	b.Helper()
	var c agentrpc.Container
	if err := b.Call(b.Context(), m, params, &c); err != nil {
		b.Fatalf("%s: %v", m, err)
	}
	return c
}

// start takes a container from nothing to running.
func (b *bench) start(s agentrpc.ContainerSpec) agentrpc.Container {
	b.Helper()
	c := b.must(agentrpc.MethodCreate, s)
	if c.State != "created" || c.Name != s.Name {
		b.Fatalf("created %+v", c)
	}
	c = b.must(agentrpc.MethodInit, agentrpc.Ref{ID: c.ID})
	if c.State != "initialized" || c.PID == 0 {
		b.Fatalf("initialised %+v", c)
	}
	return b.must(agentrpc.MethodStart, agentrpc.Ref{ID: c.ID})
}

// run is start and wait.
func (b *bench) run(s agentrpc.ContainerSpec) agentrpc.Container {
	b.Helper()
	c := b.start(s)
	end := receive(b, b.exited, "end of "+s.Name)
	if end.ID != c.ID || end.StartedAt.IsZero() || end.FinishedAt.IsZero() {
		b.Fatalf("ended %+v", end)
	}
	return end
}

func (b *bench) output(s agentrpc.ContainerSpec) string {
	b.Helper()
	var all []byte
	for offset := int64(0); ; {
		var c agentrpc.LogChunk
		if err := b.Call(b.Context(), agentrpc.MethodReadLog, agentrpc.ReadLogArgs{Attempt: s.Attempt, Container: s.Name, Offset: offset, Max: 1 << 18}, &c); err != nil {
			b.Fatal(err)
		}
		if c.Next == offset {
			return string(all)
		}
		all, offset = append(all, c.Data...), c.Next
	}
}

// until reads on until the output holds text.
func (b *bench) until(s agentrpc.ContainerSpec, text string) {
	b.Helper()
	var all []byte
	for offset, end := int64(0), time.Now().Add(time.Minute); time.Now().Before(end); {
		var c agentrpc.LogChunk
		if err := b.Call(b.Context(), agentrpc.MethodReadLog, agentrpc.ReadLogArgs{Attempt: s.Attempt, Container: s.Name, Offset: offset, Max: 1 << 18, Wait: 5 * time.Second}, &c); err != nil {
			b.Fatal(err)
		}
		all, offset = append(all, c.Data...), c.Next
		if strings.Contains(string(all), text) {
			return
		}
	}
	b.Fatalf("output never had %q: %q", text, all)
}
