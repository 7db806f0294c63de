//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
)

// TestGuardOverShares is bob, who asked for 2 GiB and takes 4, beside alice, who keeps to what she asked for.
func TestGuardOverShares(t *testing.T) {
	conf := filepath.Join(t.TempDir(), "config.yaml")
	rules(t, conf, "memory_guard: stop\nmemory_guard_grace: 3s\nstop_grace: 2s\n")
	b := sharedWith(t, "--simulate", oneCard, "--config", conf)
	a, o := b.person(alice), b.person(bob)
	good := a.submit("--profile", "demo", "--gpu-mem", "8GiB", "--", "simload", "--mem", "7GiB", "--for", "10m")
	a.untilState(good, engine.Running)
	greedy := o.submit("--profile", "demo", "--gpu-mem", "2GiB", "--retries", "3", "--", "simload", "--mem", "4GiB", "--for", "10m")
	d := o.untilState(greedy, engine.Failed)
	if !strings.Contains(d.Message, "more than the 2GiB it asked for; ask for more with --gpu-mem") || d.StopReason != engine.StopMemory || len(d.Attempts) != 1 {
		t.Errorf("%s: %s, %d attempts", d.StopReason, d.Message, len(d.Attempts))
	}
	if out := o.gputop("notices"); !strings.Contains(out, "its neighbours may run out; it is stopped if it goes on for 3s") {
		t.Errorf("bob is told:\n%s", out)
	}
	if d := a.show(good); d.State != engine.Running || d.Attempt != 1 {
		t.Errorf("alice's job is %s, attempt %d", d.State, d.Attempt)
	}
	if c := o.show(greedy).Attempts[0].Curve; c == nil || len(c.Memory) == 0 {
		t.Error("no curve was kept of what it used")
	}
}
