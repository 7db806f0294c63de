//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// types runs gputop in a terminal of the person's and says what it does to the screen.
func (p *person) types(args string) *terminal {
	p.t.Helper()
	v := &terminal{p: p, sock: "gputop-e2e-run"}
	v.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "env "+strings.Join(p.env, " ")+" gputop "+args+"; echo GPUTOP-ENDED-$?; sleep 100")
	p.t.Cleanup(func() { _ = v.cmd("kill-server").Run() })
	return v
}

// size waits until the shell in the terminal sees a size.
func (v *terminal) size(want string) {
	v.p.t.Helper()
	v.p.eventually("the terminal is "+want, func() (bool, string) {
		v.keys("-l", "stty size")
		v.keys("Enter")
		time.Sleep(200 * time.Millisecond) // the answer is an event of another program's
		s := v.screen()
		return strings.Contains(s, want), s
	})
}

// TestRunInATerminal is a shell in a job: typed into, resized, left, come back to, and ended with its own exit code.
func TestRunInATerminal(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.gputop("ls")
	v := p.types("run -it --profile demo -- sh")
	id := engine.JobID(1)
	v.shows(alice + " #")
	v.size("30 100")
	v.keys("-l", "echo seen:$((6*7))")
	v.keys("Enter")
	v.shows("seen:42")
	v.tmux("resize-window", "-x", "90", "-y", "25")
	v.size("25 90")
	v.keys("C-p")
	time.Sleep(300 * time.Millisecond) // Podman looks for one key in each piece it reads, as hands type them
	v.keys("C-q")
	v.shows("Job 1 goes on", "GPUTOP-ENDED-0")
	if d := p.show(id); d.State != engine.Running || d.Spec.Attended {
		t.Errorf("after leaving it is %s, attended %v", d.State, d.Spec.Attended)
	}
	_ = v.cmd("kill-server").Run()
	v = p.types("attach 1")
	v.shows("seen:42") // what came before
	v.keys("Enter")
	v.keys("-l", "exit 3")
	v.keys("Enter")
	v.shows("GPUTOP-ENDED-3")
	if d := p.released(id); d.State != engine.Failed || *d.ExitCode != 3 {
		t.Errorf("ended %s, %v", d.State, d.ExitCode)
	}
	p.wants(6, "already ended", "attach", "1")
}

// TestRunWithoutATerminal passes output, input and exit code on.
func TestRunWithoutATerminal(t *testing.T) {
	p := personal(t, alice, oneCard)
	if r := p.try("gputop", "run", "--gpus", "0", "--profile", "demo", "--", "sh", "-c", "echo out; echo err >&2; exit 7"); r.code != 7 || !strings.Contains(r.out, "out\n") || !strings.Contains(r.err, "exit code 7") {
		t.Errorf("run: %+v", r)
	}
	c := p.command(t.Context(), "gputop", "run", "-i", "--gpus", "0", "--profile", "demo", "--", "sort")
	c.Stdin = strings.NewReader("pear\napple\n")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil || !strings.Contains(strings.ReplaceAll(out.String(), "\r", ""), "apple\npear\n") {
		t.Errorf("sorted %q, %v\n%s", out.String(), err, errs.String())
	}
	p.wants(2, "-t wants a terminal", "run", "-it", "--", "sh")
	p.wants(2, "give one of both", "submit", "--retries", "1", "--restart", "unless-stopped", "--", "true")
}

// TestRunInterruptedInTheQueue cancels what has not had its turn.
func TestRunInterruptedInTheQueue(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.untilState(p.submit("--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m"), engine.Running)
	c := p.command(t.Context(), "gputop", "run", "--profile", "demo", "--", "true")
	errs, err := os.Create(filepath.Join(t.TempDir(), "errs"))
	if err != nil {
		t.Fatal(err)
	}
	defer errs.Close()
	said := func() string { b, _ := os.ReadFile(errs.Name()); return string(b) }
	c.Stderr = errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.eventually("it says why it waits", func() (bool, string) { return strings.Contains(said(), "waits for a GPU: needs 1, 0 free"), said() })
	_ = c.Process.Signal(syscall.SIGINT)
	_ = c.Wait()
	if c.ProcessState.ExitCode() != 130 || !strings.Contains(said(), "Job 2 cancelled") {
		t.Errorf("exit %d\n%s", c.ProcessState.ExitCode(), said())
	}
	p.untilState(2, engine.Cancelled)
}

// server is a small web server as a job's program; it says who it is.
const server = `
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(("job %s token %s" % (os.environ["GPUTOP_JOB_ID"], os.environ["GPUTOP_TOKEN"])).encode())
    def log_message(self, *a): pass
http.server.HTTPServer(("127.0.0.1", int(os.environ["GPUTOP_PORT"])), H).serve_forever()
`

// TestPortsWithoutFights is two servers of two people that both want the same port.
func TestPortsWithoutFights(t *testing.T) {
	b := shared(t, oneCard)
	seen := map[string]bool{}
	for _, p := range []*person{b.person(alice), b.person(bob)} {
		dir := p.dir("server")
		if err := os.WriteFile(filepath.Join(dir, "serve.py"), []byte(server), 0o644); err != nil {
			t.Fatal(err)
		}
		id := p.submitIn(dir, "--gpus", "0", "--port", "8888", "--", "python3", "serve.py")
		d := p.until(id, "served", func(d api.JobDetail) bool { return d.URL != "" })
		if seen[d.URL] {
			t.Errorf("%s twice", d.URL)
		}
		seen[d.URL] = true
		p.eventually("it answers", func() (bool, string) {
			r, err := http.Get(d.URL)
			if err != nil {
				return false, err.Error()
			}
			defer r.Body.Close()
			var s strings.Builder
			_, _ = fmt.Fprint(&s, readAll(r))
			return strings.HasPrefix(s.String(), "job "+id.String()+" token ") && len(s.String()) > 30, s.String()
		})
		for who, other := range map[string]*person{"a stranger": b.person(map[string]string{alice: bob, bob: alice}[p.name])} {
			if o := other.show(id); o.URL != "" || o.Spec != nil {
				t.Errorf("%s sees %q", who, o.URL)
			}
		}
		var all struct{ Job api.JobDetail }
		if err := json.Unmarshal([]byte(b.asRoot("show", id.String(), "--json").out), &all); err != nil || all.Job.URL != "" {
			t.Errorf("an admin sees %q, %v", all.Job.URL, err)
		}
		if out := p.gputop("show", id.String()); !strings.Contains(out, "ssh -N -L ") {
			t.Errorf("show: %s", out)
		}
	}
}

func readAll(r *http.Response) string {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body)
	return b.String()
}

// TestService is a job that comes back whenever it ends, through the queue, until it is cancelled.
func TestService(t *testing.T) {
	p := personal(t, alice, oneCard)
	id := p.submit("--profile", "demo", "--restart", "unless-stopped", "--", "simload", "--mem", "1GiB", "--for", "10m")
	d := p.untilState(id, engine.Running)
	p.run("podman", "kill", d.Attempts[0].ContainerID)
	d = p.until(id, "running again", func(d api.JobDetail) bool { return d.State == engine.Running && d.Attempt == 2 })
	if !strings.Contains(story(d), "the service is started again") {
		t.Errorf("its story:\n%s", story(d))
	}
	p.gputop("cancel", id.String())
	p.untilState(id, engine.Cancelled)
}
