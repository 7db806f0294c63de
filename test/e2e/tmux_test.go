//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// terminal is gputop in a real terminal: a tmux of the person's own.
type terminal struct {
	p    *person
	sock string
}

func (p *person) terminal(cols, rows string) *terminal {
	p.t.Helper()
	v := &terminal{p: p, sock: "gputop-e2e"}
	v.tmux("-f", "/dev/null", "new-session", "-d", "-x", cols, "-y", rows, "env "+strings.Join(p.env, " ")+" gputop; echo GPUTOP-ENDED-$?; sleep 100")
	p.t.Cleanup(func() { _ = v.cmd("kill-server").Run() })
	return v
}

func (v *terminal) cmd(args ...string) *exec.Cmd {
	return v.p.command(v.p.t.Context(), append([]string{"tmux", "-L", v.sock}, args...)...)
}

func (v *terminal) tmux(args ...string) string {
	v.p.t.Helper()
	out, err := v.cmd(args...).CombinedOutput()
	if err != nil {
		v.p.t.Fatalf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

func (v *terminal) keys(keys ...string) {
	v.p.t.Helper()
	v.tmux(append([]string{"send-keys"}, keys...)...)
}
func (v *terminal) screen() string { v.p.t.Helper(); return v.tmux("capture-pane", "-p") }

func (v *terminal) shows(what ...string) {
	v.p.t.Helper()
	v.p.eventually("the screen shows "+strings.Join(what, ", "), func() (bool, string) {
		s := v.screen()
		for _, w := range what {
			if !strings.Contains(s, w) {
				return false, s
			}
		}
		return true, s
	})
}

// newest is the job with the highest id.
func (p *person) newest() engine.JobID {
	p.t.Helper()
	var top engine.JobID
	for _, j := range p.list() {
		top = max(top, j.ID)
	}
	return top
}

// TestKeysStartARealJob types what a person types: submit, watch it run, read its output, preempt, cancel, quit.
func TestKeysStartARealJob(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.gputop("ls") // starts the daemon, so that the first screen is not about that
	v := p.terminal("120", "40")
	v.shows("SIMULATED", "A100")
	v.keys("s")
	v.shows("ommand")
	v.keys("-l", "sh -c 'echo typed by hand; sleep 300'")
	v.keys("Enter")
	v.shows("is queued")
	id := p.newest()
	p.untilState(id, engine.Running)
	v.keys("l")
	v.shows("typed by hand")
	v.keys("Escape")
	v.shows("A100")
	v.keys("p")
	v.shows("reempt", "sh")
	v.keys("y")
	d := p.until(id, "running again", func(d api.JobDetail) bool { return d.State == engine.Running && d.Attempt == 2 })
	if d.Preemptions != 1 {
		t.Errorf("preemptions %d", d.Preemptions)
	}
	v.keys("c")
	v.shows("ancel", "sh")
	time.Sleep(300 * time.Millisecond) // a person reads first
	v.keys("y")
	p.untilState(id, engine.Cancelled)
	v.keys("q")
	v.shows("GPUTOP-ENDED-0")
}

// TestQuitLeavesJobsRunning: the screen is only a view.
func TestQuitLeavesJobsRunning(t *testing.T) {
	p := personal(t, alice, oneCard)
	id := p.submit("--profile", "demo", "--", "sleep", "300")
	v := p.terminal("80", "24")
	v.shows("A100")
	p.untilState(id, engine.Running)
	v.keys("q")
	v.shows("GPUTOP-ENDED-0")
	if d := p.show(id); d.State != engine.Running {
		t.Errorf("the job is %s", d.State)
	}
	p.gputop("cancel", id.String())
	p.untilState(id, engine.Cancelled)
}
