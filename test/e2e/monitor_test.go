//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTopWithoutADaemon is somebody who only wants to look: no daemon, no Podman, nothing left behind.
func TestTopWithoutADaemon(t *testing.T) {
	home := newPerson(t, alice).dir("look")
	defer os.RemoveAll(home)
	// Podman is not on this path, and no daemon is where this home and environment lead.
	p := newPerson(t, alice, "HOME="+home, "XDG_STATE_HOME="+home, "PATH="+bin, "TMPDIR="+home)
	out := p.run(filepath.Join(bin, "gputop"), "top", "--once", "--simulate", "a100-40gb:2,t4")
	if !strings.Contains(out, "(monitor)") || !strings.Contains(out, "SIMULATED") || strings.Count(out, "A100-SXM4-40GB") != 2 || !strings.Contains(out, "Tesla T4") {
		t.Errorf("it shows:\n%s", out)
	}
	var top struct {
		GPUs struct {
			Simulated bool
			GPUs      []struct{ UUID string }
		}
	}
	if err := json.Unmarshal([]byte(p.run(filepath.Join(bin, "gputop"), "top", "--json", "--simulate", "t4")), &top); err != nil || !top.GPUs.Simulated || len(top.GPUs.GPUs) != 1 {
		t.Errorf("%+v, %v", top, err)
	}
	// Without a driver it says so, and what to do.
	if r := p.try(filepath.Join(bin, "gputop"), "top", "--once", "--nvml-library", "/nonexistent/libnvidia-ml.so.1"); r.code != 0 || !strings.Contains(r.out, "/nonexistent/libnvidia-ml.so.1") {
		t.Errorf("without a driver: %+v", r)
	}
	for range 50 {
		if len(processes("gputopd sampler", "--prepare")) == 0 {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if pids := processes("gputopd sampler", "--prepare"); len(pids) > 0 {
		t.Errorf("samplers run on: %v", pids)
	}
	if pids := processes("gputopd serve", home); len(pids) > 0 {
		t.Errorf("a daemon was started: %v", pids)
	}
	if left, err := os.ReadDir(home); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
