//go:build e2e

package e2e

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// TestSIGKILL kills each role while one job runs and two wait: the running one must go on in the same container and
// process, the others must still wait, and nothing may run twice.
func TestSIGKILL(t *testing.T) {
	for _, role := range []string{"serve", "agent", "sampler"} {
		t.Run(role, func(t *testing.T) {
			p := personal(t, alice, oneCard)
			marks := p.dir("marks")
			run := p.submit("--profile", "demo", "--mount", marks+":/marks", "--", "sh", "-c",
				"echo started >> /marks/run; until [ -e /marks/go ]; do sleep 0.1; done; exit 5")
			before := p.untilState(run, engine.Running)
			wait := []engine.JobID{
				p.submit("--profile", "demo", "--mount", marks+":/marks", "--class", "low", "--", "sh", "-c", "echo low >> /marks/run"),
				p.submit("--profile", "demo", "--mount", marks+":/marks", "--", "sh", "-c", "echo medium >> /marks/run"),
			}
			pids := processes(p.state(), "gputopd "+role)
			if len(pids) == 0 {
				t.Fatalf("no %s process", role)
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			}
			p.eventually("the killed processes are gone", func() (bool, string) {
				for _, pid := range pids {
					if syscall.Kill(pid, 0) == nil && !zombie(pid) {
						return false, itoa(pid)
					}
				}
				return true, ""
			})
			// The next command finds everything as it was, starting what is missing.
			after := p.until(run, "running, adopted", func(d api.JobDetail) bool { return d.State == engine.Running })
			b, a := before.Attempts[0], after.Attempts[0]
			if a.ContainerID != b.ContainerID || a.PID != b.PID || len(after.Attempts) != 1 {
				t.Errorf("container %s pid %d became %s pid %d (%d attempts)", b.ContainerID, b.PID, a.ContainerID, a.PID, len(after.Attempts))
			}
			for _, id := range wait {
				if d := p.show(id); !d.State.Queued() {
					t.Errorf("job %s is %s, want it waiting", id, d.State)
				}
			}
			p.run("touch", marks+"/go")
			d := p.until(run, "ended", func(d api.JobDetail) bool { return d.State.Final() })
			if d.State != engine.Failed || d.ExitCode == nil || *d.ExitCode != 5 {
				t.Errorf("job ended %s with %v (%s), want failed with 5", d.State, d.ExitCode, d.Message)
			}
			for _, id := range []engine.JobID{wait[1], wait[0]} {
				p.untilState(id, engine.Succeeded)
			}
			if got := p.run("cat", marks+"/run"); strings.Join(strings.Fields(got), " ") != "started medium low" {
				t.Errorf("what ran: %q", got)
			}
		})
	}
}

// zombie says whether a process has ended and only waits to be reaped.
func zombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}
