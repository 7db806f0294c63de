//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// TestPreemptedJobGoesOnFromItsCheckpoint is a training that gives way to a colleague's job of a higher class, without
// anybody asking for it and with a daemon that dies in between, and that then goes on where it was.
func TestPreemptedJobGoesOnFromItsCheckpoint(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	const steps = 20
	low := a.submit("--class", "low", "--checkpoint", "stop", "--profile", "demo", "--", "simload", "--mem", "1GiB", "--steps", fmt.Sprint(steps))
	a.untilState(low, engine.Running)
	a.eventually("it has trained", func() (bool, string) {
		s := a.logs(low)
		return strings.Contains(s, "step 3/"), s
	})
	high := o.submit("--class", "high", "--profile", "demo", "--", "simload", "--mem", "1GiB", "--steps", "3")
	o.until(high, "promised the place", func(d api.JobDetail) bool {
		return !d.State.Queued() || d.Reason != nil && d.Reason.Code == engine.WaitingForPreempted
	})
	b.kill()
	b.start()
	o.untilState(high, engine.Succeeded)
	d := a.untilState(low, engine.Succeeded)
	if d.Preemptions != 1 || len(d.Attempts) != 2 || !strings.Contains(story(d), "preempted for job "+high.String()+" of "+bob) {
		t.Errorf("preempted %d times, %d attempts; its story:\n%s", d.Preemptions, len(d.Attempts), story(d))
	}
	first, second := a.gputop("logs", "--attempt", "1", low.String()), a.gputop("logs", "--attempt", "2", low.String())
	saved := regexp.MustCompile(`checkpoint saved at step (\d+)`).FindStringSubmatch(first)
	if saved == nil || !strings.Contains(second, "resumed from step "+saved[1]+"\n") || !strings.Contains(second, fmt.Sprintf("done after %d steps", steps)) {
		t.Errorf("first attempt:\n%s\nsecond:\n%s", first, second)
	}
	if n := strings.Count(first+second, "/20 loss"); n != steps {
		t.Errorf("%d steps were done for %d", n, steps)
	}
	if r := o.gputop("users"); !regexp.MustCompile(alice + ` .* 0\.\d+h `).MatchString(r) {
		t.Errorf("what was used:\n%s", r)
	}
}

func TestStopSignal(t *testing.T) {
	b := shared(t, oneCard)
	a := b.person(alice)
	id := a.submit("--profile", "demo", "--gpus", "0", "--stop-signal", "usr1", "--", "sh", "-c", "trap 'echo told; exit 0' USR1; echo ready; while :; do sleep 0.1; done")
	a.eventually("it is ready", func() (bool, string) {
		s := a.try("gputop", "logs", id.String())
		return strings.Contains(s.out, "ready"), s.out
	})
	warned := a.submit("--profile", "demo", "--gpus", "0", "--time-limit", "8s", "--warn", "usr2@5s", "--", "sh", "-c",
		"sleep 100 & trap 'echo soon' USR2; while :; do sleep 0.1; done")
	d := a.untilState(warned, engine.TimedOut)
	if s := a.logs(warned); !strings.HasPrefix(s, "soon\n") || strings.Count(s, "soon") != 1 || !strings.Contains(story(d), "warned SIGUSR2, 5s before its time limit") {
		t.Errorf("warned: %q\n%s", s, story(d))
	}
	a.gputop("cancel", id.String())
	a.untilState(id, engine.Cancelled)
	if s := a.logs(id); !strings.Contains(s, "told") {
		t.Errorf("its output: %q", s)
	}
}
