//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// asRoot runs the client as root, an admin of the shared daemon.
func (b *sharedBox) asRoot(args ...string) result {
	b.t.Helper()
	c := exec.Command(filepath.Join(bin, "gputop"), args...)
	c.Env = append(os.Environ(), "GPUTOP_SOCKET="+b.socket)
	var out, errb strings.Builder
	c.Stdout, c.Stderr = &out, &errb
	_ = c.Run() // the exit code says it
	return result{out.String(), errb.String(), c.ProcessState.ExitCode()}
}

// wants runs the client and compares its exit code and a word of what it says.
func (p *person) wants(code int, word string, args ...string) {
	p.t.Helper()
	r := p.try(append([]string{"gputop"}, args...)...)
	if r.code != code || !strings.Contains(r.out+r.err, word) {
		p.t.Errorf("%s: gputop %v: exit %d, want %d and %q\n%s%s", p.name, args, r.code, code, word, r.out, r.err)
	}
}

// TestHoldReleaseUpdateRequeue is two people and root on one card, over the command line.
func TestHoldReleaseUpdateRequeue(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	load := []string{"--", "simload", "--mem", "1GiB", "--for", "10m"}
	sub := func(p *person, flags ...string) engine.JobID {
		return p.submit(append(append([]string{"--profile", "demo"}, flags...), load...)...)
	}
	running := sub(a)
	a.untilState(running, engine.Running)
	first, second := sub(a, "--name", "first"), sub(o, "--name", "second")
	id := first.String()

	// Held, it lets the later job go first; released, it has its old place.
	o.wants(5, alice, "hold", id)
	a.wants(6, "gputop preempt "+running.String(), "hold", running.String())
	a.wants(0, "Job "+id+" held.", "hold", id, "--reason", "data not ready")
	a.until(first, "held", func(d api.JobDetail) bool { return d.Held && d.Reason != nil && d.Reason.Code == engine.ReasonHeld })
	a.gputop("cancel", running.String())
	o.untilState(second, engine.Running)
	if d := a.show(first); d.Attempt != 0 || !d.State.Queued() {
		t.Errorf("the held job is %s, attempt %d", d.State, d.Attempt)
	}
	o.wants(5, alice, "release", id)
	a.wants(0, "released", "release", id)

	// Changed while it waits, it starts beside the other; by its owner and nobody else.
	o.wants(5, alice, "update", id, "--class", "low")
	a.wants(5, "admins", "update", id, "--class", "critical")
	a.wants(2, "this box has 1", "update", id, "--gpus", "3")
	o.wants(0, "updated", "update", second.String(), "--time-limit", "3h")
	o.wants(6, "while it waits", "update", second.String(), "--gpu-fraction", "0.5")
	o.wants(0, "being preempted", "requeue", second.String())
	a.untilState(first, engine.Running)
	o.wants(0, "updated", "update", second.String(), "--gpu-mem", "4GiB", "--class", "high", "--name", "smaller")
	if d := o.show(second); d.Request.GPUMemory != 4*engine.GiB || d.Class != engine.High || d.Name != "smaller" || d.Preemptions != 1 {
		t.Errorf("the changed job: %+v", d.Job)
	}

	// A running job's limit: down by its owner, up by an admin. Preempted by root with a reason, and not without.
	a.wants(0, "updated", "update", id, "--time-limit", "1h")
	a.wants(5, "only an admin", "update", id, "--time-limit", "2h")
	if r := b.asRoot("update", id, "--time-limit", "90m"); r.code != 0 {
		t.Errorf("root raises a limit: %+v", r)
	}
	if r := b.asRoot("preempt", id); r.code != 2 || !strings.Contains(r.err, "--reason") {
		t.Errorf("root preempts without a reason: %+v", r)
	}
	if r := b.asRoot("preempt", id, "--reason", "visitors at five"); r.code != 0 {
		t.Errorf("root preempts with a reason: %+v", r)
	}
	o.untilState(second, engine.Running)
	if out := a.gputop("show", id); !strings.Contains(out, "preempted by root: visitors at five") || !strings.Contains(out, "time limit from 1h0m0s to 1h30m0s") {
		t.Errorf("alice's job does not tell what was done to it:\n%s", out)
	}
	// What an admin holds, its owner does not release.
	if r := b.asRoot("hold", id); r.code != 0 {
		t.Errorf("root holds: %+v", r)
	}
	a.wants(5, "held by root", "release", id)

	// An ended job comes again as a new one.
	a.gputop("cancel", id)
	o.wants(5, alice, "requeue", id)
	a.wants(0, "Job 4 queued: job "+id+" again.", "requeue", id)
	if d := a.show(4); d.Name != "first" || d.TimeLimit.Minutes() != 90 || d.Held {
		t.Errorf("the new job: %+v", d.Job)
	}
	a.gputop("cancel", "4")
	o.gputop("cancel", second.String())
	o.released(second)

	b.trail(a, o)
}

// trail looks at who reads what of the audit trail, after the daemon was killed.
func (b *sharedBox) trail(a, o *person) {
	t := b.t
	t.Helper()
	b.kill()
	b.start()
	read := func(out string) (lines []string) {
		var got api.Audit
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, e := range got.Entries {
			result := "refused"
			if e.Allowed {
				result = "done"
			}
			if e.PID == 0 || e.Time.IsZero() {
				t.Errorf("a line without process or time: %+v", e)
			}
			lines = append(lines, strings.Join([]string{e.User.Name, e.Action, e.Job.String(), result, e.Reason}, " "))
		}
		return lines
	}
	all := strings.Join(read(b.asRoot("audit", "--json").out), "\n")
	for _, want := range []string{alice + " hold 2 done data not ready", bob + " hold 2 refused ", bob + " class 2 refused ", alice + " critical 2 refused ",
		alice + " raise-limit 2 refused ", "root raise-limit 2 done ", "root preempt 2 refused ", "root preempt 2 done visitors at five",
		alice + " release-admin 2 refused ", alice + " requeue 2 done ", bob + " requeue 3 done "} {
		if !strings.Contains(all+"\n", want+"\n") {
			t.Errorf("the trail has no line %q:\n%s", want, all)
		}
	}
	if mine := strings.Join(read(o.gputop("audit", "--json")), "\n"); strings.Contains(mine, "visitors") || !strings.Contains(mine, bob+" hold 2 refused") {
		t.Errorf("bob reads:\n%s", mine)
	}
	if mine := strings.Join(read(a.gputop("audit", "--user", "root", "--json")), "\n"); !strings.Contains(mine, "root preempt 2 done visitors at five") || strings.Contains(mine, alice) {
		t.Errorf("alice reads of root:\n%s", mine)
	}
	log, err := os.ReadFile(b.log)
	if err != nil || !strings.Contains(string(log), "msg=refused") {
		t.Errorf("the log tells of no refusal (%v)", err)
	}
}
