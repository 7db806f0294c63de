//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
)

// hooked is a shared box whose admin has a program told of everything; it runs as nobody and appends to a file.
func hooked(t *testing.T) (b *sharedBox, told string, lines func() []string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gputop-hook-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	told = filepath.Join(dir, "told")
	hook := filepath.Join(dir, "hook")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nid -un >"+told+".who; cat >>"+told+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "config.yaml") // where nobody else may write
	if err := os.WriteFile(config, []byte("notices:\n  command: ["+hook+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b = sharedWith(t, "--simulate", oneCard, "--config", config)
	return b, told, func() (out []string) {
		text, _ := os.ReadFile(told) // none before the first
		for line := range strings.Lines(string(text)) {
			var n struct {
				Job         engine.JobID
				Kind, Owner string
			}
			if err := json.Unmarshal([]byte(line), &n); err != nil {
				continue // half written: the next look has it whole
			}
			out = append(out, fmt.Sprintf("%s %s %s", n.Job, n.Kind, n.Owner))
		}
		return out
	}
}

// TestNoticesReachTheAdminsProgramOnce kills the daemon between a job's beginning and its end, and again after it.
func TestNoticesReachTheAdminsProgramOnce(t *testing.T) {
	b, told, lines := hooked(t)
	a := b.person(alice)
	is := func(want ...string) {
		t.Helper()
		a.eventually(fmt.Sprintf("told %q", want), func() (bool, string) {
			got := lines()
			return fmt.Sprint(got) == fmt.Sprint(want), fmt.Sprint(got)
		})
	}
	short := a.submit("--profile", "demo", "--gpu-fraction", "0.25", "--", "sh", "-c", "exit 3")
	a.untilState(short, engine.Failed)
	is("1 started "+alice, "1 ended "+alice)
	long := a.submit("--profile", "demo", "--gpu-fraction", "0.25", "--notify", "ended", "--", "simload", "--mem", "1GiB", "--for", "10m")
	a.untilState(long, engine.Running)
	is("1 started "+alice, "1 ended "+alice, "2 started "+alice)
	b.kill()
	b.start()
	a.gputop("cancel", long.String())
	a.untilState(long, engine.Cancelled)
	all := []string{"1 started " + alice, "1 ended " + alice, "2 started " + alice, "2 ended " + alice}
	is(all...)
	b.kill()
	b.start()
	last := a.submit("--profile", "demo", "--gpu-fraction", "0.25", "--", "true")
	a.untilState(last, engine.Succeeded)
	is(append(all, "3 started "+alice, "3 ended "+alice)...) // in order: nothing of before came again
	if who, err := os.ReadFile(told + ".who"); err != nil || strings.TrimSpace(string(who)) != "nobody" {
		t.Errorf("the program ran as %q, %v", who, err)
	}
	out := a.gputop("notices")
	if !strings.Contains(out, "failed with exit code 3") || strings.Count(out, "started  started") != 2 || strings.Count(out, "  ended  ") != 3 {
		t.Errorf("alice reads:\n%s", out)
	}
	if out := b.person(bob).gputop("notices"); !strings.Contains(out, "No notices.") {
		t.Errorf("bob reads:\n%s", out)
	}
}
