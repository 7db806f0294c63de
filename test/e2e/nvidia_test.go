//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// oldCard is the UUID of the card in engine/gpu/testdata/oldnvml.c.
const oldCard = "GPU-00000000-0000-0000-0000-000000000001"

// TestTheWayOfARealCard takes the way that real cards take: a library that is opened at run time, and a spec of kind
// nvidia.com/gpu in /etc/cdi that is the admin's. Only the silicon is missing: the library is a small one of ours, and
// the spec mounts a file where NVIDIA's would give a device node.
func TestTheWayOfARealCard(t *testing.T) {
	dir := t.TempDir()
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, "../../engine/gpu/testdata/oldnvml.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	node, err := os.CreateTemp("", "gputop-e2e-node-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(node.Name())
	fmt.Fprintln(node, "the old card")
	if err := os.Chmod(node.Name(), 0o644); err != nil {
		t.Fatal(err)
	}
	node.Close()
	spec := "/etc/cdi/gputop-e2e-nvidia.yaml"
	if err := os.MkdirAll(filepath.Dir(spec), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf(`cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
  - name: %s
    containerEdits:
      mounts:
        - {hostPath: %s, containerPath: /run/card, options: [ro, nosuid, nodev, bind]}
`, oldCard, node.Name())
	if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(spec)

	b := sharedWith(t, "--nvml-library", lib)
	p := b.person(alice)
	if top := p.gputop("top", "--once"); strings.Contains(top, "SIMULATED") || !strings.Contains(top, "Old Card") {
		t.Errorf("top of a real card:\n%s", top)
	}
	id := p.submit("--profile", "demo", "--gpu-mem", "8GiB", "--", "cat", "/run/card")
	d := p.untilState(id, engine.Succeeded)
	if got := p.logs(id); got != "the old card\n" {
		t.Errorf("inside: %q", got)
	}
	if names := d.Attempts[0].CDIDevices; len(names) != 2 || names[0] != "nvidia.com/gpu="+oldCard || !strings.HasPrefix(names[1], "gputop/lease=") {
		t.Errorf("CDI devices %v", names)
	}
	// Processes outside the queue hold a part of the card: all of it is not to be had.
	whole := p.submit("--profile", "demo", "--gpus", "1", "--", "true")
	p.until(whole, "waiting", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.WaitingForDevice })
	p.gputop("cancel", whole.String())

	// A spec gone stale is no fault of a job's: it waits, is told the command that mends it, and starts once it is mended.
	os.Remove(node.Name())
	stale := p.submit("--profile", "demo", "--gpu-mem", "8GiB", "--retries", "0", "--", "cat", "/run/card")
	p.until(stale, "told why", func(d api.JobDetail) bool {
		r := d.Reason
		return r != nil && r.Code == engine.DeviceUnresolvable && strings.Contains(r.Detail, node.Name()) && strings.Contains(r.Detail, "nvidia-ctk cdi generate")
	})
	if err := os.WriteFile(node.Name(), []byte("a new card\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.untilState(stale, engine.Succeeded)
	if got := p.logs(stale); got != "a new card\n" {
		t.Errorf("after the mend: %q", got)
	}
}

// TestNoDriver: a box without one says so in a sentence, and still runs jobs that want no GPU.
func TestNoDriver(t *testing.T) {
	p := personal(t, alice, "")
	p.env = p.env[:1]
	r := p.try("gputop", "submit", "--profile", "demo", "--", "true")
	if r.code == 0 || !strings.Contains(r.err, "no NVIDIA driver") || !strings.Contains(r.err, "--simulate") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	id := p.submit("--profile", "demo", "--gpus", "0", "--", "echo", "no card")
	p.untilState(id, engine.Succeeded)
}
