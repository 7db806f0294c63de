//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

// hostile is what this program does when it is started as somebody's agent: it connects to the daemon as the one who runs
// it, and does one bad thing.
func hostile(how, socket string) error {
	if how == "swap" {
		return swap(os.Getenv("GPUTOP_HOSTILE_PATH"), os.Getenv("GPUTOP_HOSTILE_SEEN"))
	}
	conn, err := (&api.Client{Socket: socket}).DialAgent(context.Background())
	if err != nil {
		return err
	}
	defer conn.Close()
	switch how {
	case "nonsense":
		_, _ = io.WriteString(conn, strings.Repeat("\x00\xff{]", 1000)+"\n")
	case "endless":
		for err == nil {
			_, err = io.WriteString(conn, strings.Repeat("x", 64<<10))
		}
		return nil
	}
	pid, _ := strconv.Atoi(os.Getenv("GPUTOP_HOSTILE_PID"))
	link := agentrpc.NewConn(conn, nil, func(ctx context.Context, m agentrpc.Method, _ agentrpc.RawObject) (any, error) {
		if how == "silent" {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		switch m { // how == "liar": every container is somebody else's process, and runs
		case agentrpc.MethodResolveImage, agentrpc.MethodPrepare:
			return agentrpc.Image{Found: true, ID: "img"}, nil
		case agentrpc.MethodCreate, agentrpc.MethodInit, agentrpc.MethodStart, agentrpc.MethodInspect:
			return agentrpc.Container{ID: "stolen", Name: "stolen", State: "running", PID: pid, StartedAt: time.Now()}, nil
		}
		return nil, nil
	}, nil)
	_ = link.Note(agentrpc.NoteHello, agentrpc.Hello{Protocol: agentrpc.Protocol, Runtime: agentrpc.RuntimeInfo{PodmanVersion: "5.4.2",
		CDISpecDirs: []string{"/etc/cdi", "/var/run/cdi"}}})
	if how == "liar" {
		_ = link.Note(agentrpc.NoteExited, agentrpc.Container{ID: "stolen", Name: os.Getenv("GPUTOP_HOSTILE_NAME"), State: "exited"})
	}
	return link.Serve(context.Background())
}

// attack starts a hostile agent as the person, until the test ends.
func (p *person) attack(b *sharedBox, how string, env ...string) {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	program := filepath.Join(bin, "hostile")
	if !exists(program) {
		out, err := exec.Command("install", "-m", "755", self, program).CombinedOutput()
		if err != nil {
			p.t.Fatalf("%v: %s", err, out)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := p.command(ctx, program)
	c.Env = append(append(c.Env, "GPUTOP_HOSTILE="+how, "GPUTOP_HOSTILE_SOCKET="+b.socket), env...)
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	p.t.Cleanup(func() { cancel(); <-done })
}

// TestHostileAgents is an agent of bob's that talks nonsense, without end, not at all, or lies about whose process its
// container is: bob's job does not run, and alice's does.
func TestHostileAgents(t *testing.T) {
	for _, how := range []string{"nonsense", "endless", "silent", "liar"} {
		t.Run(how, func(t *testing.T) {
			b := shared(t, oneCard)
			a, o := b.person(alice), b.person(bob)
			victim := a.submit("--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m")
			d := a.untilState(victim, engine.Running)
			pid := d.Attempts[0].PID
			id := o.submit("--gpus", "0", "--profile", "demo", "--", "sleep", "2")
			if how == "liar" {
				// The real agent makes way: the newest link of a user wins.
				o.gputop("hold", id.String())
			}
			o.attack(b, how, fmt.Sprintf("GPUTOP_HOSTILE_PID=%d", pid), "GPUTOP_HOSTILE_NAME="+d.Attempts[0].Container)
			if how == "liar" {
				// Held too late it ran; then another one is lied about.
				if o.show(id).State.Final() || o.show(id).State.Active() {
					id = o.submit("--gpus", "0", "--profile", "demo", "--", "sleep", "2")
				} else {
					o.gputop("release", id.String())
				}
				o.until(id, "told what is wrong", func(d api.JobDetail) bool {
					return strings.Contains(story(d)+d.Message, "is not one of "+bob) || d.State == engine.Succeeded
				})
			}
			// Alice's job goes on, with its process, and she can start another.
			next := a.submit("--gpus", "0", "--profile", "demo", "--", "true")
			a.untilState(next, engine.Succeeded)
			if d := a.show(victim); d.State != engine.Running || d.Attempts[0].PID != pid || len(d.Attempts) != 1 {
				t.Errorf("alice's job is %s, process %d (was %d)", d.State, d.Attempts[0].PID, pid)
			}
			if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
				t.Errorf("alice's process is gone: %v", err)
			}
		})
	}
}

// post sends a request as the person, with curl.
func (p *person) post(b *sharedBox, path, body string, headers ...string) string {
	p.t.Helper()
	argv := []string{"curl", "-s", "--unix-socket", b.socket, "-H", "Host: gputop", "-d", body}
	for _, h := range headers {
		argv = append(argv, "-H", h)
	}
	return p.run(append(argv, "http://gputop"+path)...)
}

// TestHostileRequests is what a person can write into the socket by hand, and what they can name.
func TestHostileRequests(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	for what, c := range map[string]struct{ out, want string }{
		"another's uid":  {o.post(b, "/v1/jobs", `{"spec":{"command":["id"],"workdir":"/tmp"},"owner":{"uid":0}}`), "unknown field"},
		"another's name": {o.post(b, "/v1/jobs", `{"spec":{"command":["id"],"workdir":"/tmp","owner":"root"}}`), "unknown field"},
		"a browser":      {o.post(b, "/v1/jobs", `{}`, "Origin: http://evil.example"), "browser"},
		"another host":   {o.run("curl", "-s", "--unix-socket", b.socket, "http://evil.example/v1/info"), "browser or for another host"},
		"a giant":        {o.run("sh", "-c", "head -c 2000000 /dev/zero | tr '\\0' x | curl -s --unix-socket "+b.socket+" -H 'Host: gputop' --data-binary @- http://gputop/v1/jobs"), "larger than"},
		"overflow":       {o.post(b, "/v1/jobs", `{"spec":{"command":["id"],"workdir":"/tmp","request":{"gpus":99999999999999999999}}}`), "gpus"},
		"a group's":      {o.post(b, "/v1/jobs", `{"spec":{"command":["id"],"workdir":"/tmp","profile":"demo","group":"root","group_id":0}}`), "not a member"},
	} {
		if !strings.Contains(c.out, c.want) {
			t.Errorf("%s: answered %s", what, c.out)
		}
	}
	// Another's files, by their name and through a link.
	private := filepath.Join(a.dir("private"), "secret")
	if err := os.WriteFile(private, []byte("of alice"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(private, a.uid, a.gid); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(o.dir("links"), "link")
	if err := os.Symlink(private, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{private, link, "/etc/shadow", "/var/lib/gputop", "/dev"} {
		r := o.try("gputop", "submit", "--json", "--gpus", "0", "--profile", "demo", "--mount", path+":/stolen", "--", "cat", "/stolen")
		if r.code == 0 { // accepted before it was looked at: it must not run
			var resp struct{ Job api.Job }
			if err := json.Unmarshal([]byte(r.out), &resp); err != nil {
				t.Fatal(err)
			}
			o.until(resp.Job.ID, "over", func(d api.JobDetail) bool { return d.State.Final() })
			if d := o.show(resp.Job.ID); d.State == engine.Succeeded || strings.Contains(o.logs(resp.Job.ID), "of alice") {
				t.Errorf("mount of %s: the job %s and wrote %q", path, d.State, o.logs(resp.Job.ID))
			}
		}
	}
	// Names that would write to a terminal, or over two lines.
	for _, name := range []string{`x\u001b[2J`, `x\u001b]0;owned\u0007`, `two\nlines`, `\u202egnorw`} {
		if out := o.post(b, "/v1/jobs", `{"spec":{"name":"`+name+`","command":["id"],"workdir":"/tmp","profile":"demo"}}`); !strings.Contains(out, "name") || !strings.Contains(out, "invalid") {
			t.Errorf("the name %s is answered %s", name, out)
		}
	}
	id := o.submit("--gpus", "0", "--profile", "demo", "--name", "naïve 日本語 🐈", "--", "sh", "-c", "printf '\\033[31mred'; sleep 60")
	for _, out := range []string{a.gputop("ls"), a.gputop("top", "--once"), o.gputop("show", id.String()), b.asRoot("audit").out} {
		if strings.ContainsAny(out, "\x1b\x07") {
			t.Errorf("an escape gets through: %q", out)
		}
	}
}

// TestReusedUIDOnThisMachine removes an account with a job in the queue and gives its uid to somebody else.
func TestReusedUIDOnThisMachine(t *testing.T) {
	const first, second = "gputop-test-old", "gputop-test-new"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	account := filepath.Join(root, "scripts", "test-account")
	must := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	must(account, first)
	t.Cleanup(func() {
		for _, name := range []string{first, second} {
			_ = exec.Command(account, "--remove", name).Run()
		}
	})
	conf := filepath.Join(t.TempDir(), "config.yaml")
	rules(t, conf, "stop_grace: 1s\n")
	b := sharedWith(t, "--simulate", oneCard, "--config", conf)
	old := b.person(first)
	id := old.submit("--gpus", "0", "--profile", "demo", "--", "sh", "-c", "id >/tmp/ran-as; sleep 600")
	old.untilState(id, engine.Running)
	waits := old.submit("--gpus", "0", "--profile", "demo", "--name", "secret-project", "--", "id")
	pid := old.show(id).Attempts[0].PID
	for _, agent := range processes("agent", b.socket) {
		_ = syscall.Kill(agent, syscall.SIGKILL)
	}
	renamed := func(from, to string) { // what userdel and useradd leave in the end
		t.Helper()
		for _, file := range []string{"/etc/passwd", "/etc/subuid", "/etc/subgid"} {
			must("sed", "-i", "s/^"+from+":/"+to+":/", file)
		}
	}
	renamed(first, second)
	t.Cleanup(func() { renamed(second, first) })
	now := b.person(second)
	now.eventually("the old account's jobs are over", func() (bool, string) {
		d := now.show(id)
		return d.State == engine.Cancelled, string(d.State)
	})
	for _, j := range []engine.JobID{id, waits} {
		if d := now.show(j); d.Spec != nil || d.Mine || strings.Contains(d.Command, "id") || d.State != engine.Cancelled && d.State != engine.Succeeded {
			t.Errorf("the newcomer sees %+v", d)
		}
		now.wants(5, first, "logs", j.String())
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/root", pid)); err == nil {
		t.Errorf("the old account's process %d runs on", pid)
	}
}

// TestManySubmits is one user who floods the queue while another works: the cap is met before the disk, and the other is
// served all the while.
func TestManySubmits(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.yaml")
	rules(t, conf, "max_pending_per_user: 300\n")
	b := sharedWith(t, "--simulate", oneCard, "--config", conf)
	a, o := b.person(alice), b.person(bob)
	a.submit("--gpus", "0", "--profile", "demo", "--", "true") // agents are there
	o.submit("--gpus", "0", "--profile", "demo", "--", "true")
	took := func(n int) time.Duration {
		began := time.Now()
		for range n {
			a.submit("--gpus", "0", "--profile", "demo", "--", "true")
		}
		return time.Since(began) / time.Duration(n)
	}
	alone := took(20)
	body := `{"spec":{"name":"flood","profile":"demo","command":["true"],"workdir":"/tmp","class":"medium","time_limit_ns":3600000000000,"request":{"gpus":1}}}`
	one := "next\nurl=http://gputop/v1/jobs\nunix-socket=" + b.socket + "\nheader=\"Host: gputop\"\noutput=/dev/null\ndata=\"" + strings.ReplaceAll(body, `"`, `\"`) + "\"\n"
	list := filepath.Join(o.dir("flood"), "requests")
	if err := os.WriteFile(list, []byte(strings.Repeat(one, 2500)), 0o644); err != nil {
		t.Fatal(err)
	}
	flood := o.command(t.Context(), "sh", "-c", "for i in 1 2 3 4; do curl -s -K "+list+" & done; wait")
	flood.SysProcAttr.Setpgid = true
	if err := flood.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-flood.Process.Pid, syscall.SIGKILL)
		_ = flood.Wait()
	})
	waiting := func() (n int) {
		for _, j := range o.list() {
			if j.Owner == bob && j.State.Queued() {
				n++
			}
		}
		return n
	}
	o.eventually("the flood has reached its bound", func() (bool, string) { n := waiting(); return n >= 300, fmt.Sprint(n) })
	busy := took(20)
	t.Logf("a submit takes %s alone and %s in the flood", alone, busy)
	if busy > 3*alone+50*time.Millisecond { // the aim is twice; this machine is noisy
		t.Errorf("a submit takes %s in the flood, %s alone", busy, alone)
	}
	if n := waiting(); n != 300 {
		t.Errorf("the flood has %d jobs waiting, want the 300 that are allowed", n)
	}
	if r := o.try("curl", "-s", "--unix-socket", b.socket, "-H", "Host: gputop", "-d", body, "http://gputop/v1/jobs"); !strings.Contains(r.out, "the most allowed is 300") {
		t.Errorf("one more is answered %s", r.out)
	}
}
