//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/api"
)

// oldNode is the device node of the card in engine/gpu/testdata/oldnvml.c, and NVIDIA's device number for it. No driver
// is behind it here: who may open it is told "no such device", and who may not "permission denied".
const (
	oldNode  = "/dev/nvidia3"
	oldMinor = 3
)

func makeOldNode(t *testing.T) {
	t.Helper()
	if err := unix.Mknod(oldNode, unix.S_IFCHR|0o600, int(unix.Mkdev(195, oldMinor))); err != nil {
		t.Fatalf("%s: %v", oldNode, err)
	}
	if err := os.Chmod(oldNode, 0o666); err != nil {
		t.Fatal(err)
	}
}

// TestGateOfADeviceNode takes the way of a real card: a character device in /dev, found by its minor number in NVML and
// given to the container by a CDI spec of kind nvidia.com/gpu. Library and silicon are missing.
func TestGateOfADeviceNode(t *testing.T) {
	if exists(oldNode) || exists("/proc/driver/nvidia") {
		t.Skip("this machine has cards of its own: they are left alone")
	}
	dir := t.TempDir()
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", lib, "../../engine/gpu/testdata/oldnvml.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	makeOldNode(t)
	defer os.Remove(oldNode)
	spec := "/etc/cdi/gputop-e2e-gate.yaml"
	if err := os.MkdirAll(filepath.Dir(spec), 0o755); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n  - name: %s\n    containerEdits:\n      deviceNodes: [{path: %s}]\n", oldCard, oldNode)
	if err := os.WriteFile(spec, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(spec)
	config := filepath.Join(dir, "config.yaml")
	setGate(t, config, "enforce")
	b := sharedWith(t, "--nvml-library", lib, "--config", config)
	a, o := b.person(alice), b.person(bob)
	look := `exec 3<>` + oldNode
	opens := func(p *person) bool {
		r := p.try("bash", "-c", look)
		if !strings.Contains(r.err, "No such device") && !strings.Contains(r.err, "Permission denied") {
			t.Fatalf("%s opens %s: %s", p.name, oldNode, r.err)
		}
		return strings.Contains(r.err, "No such device")
	}
	closed := func(p *person) {
		t.Helper()
		p.eventually(p.name+" is shut out", func() (bool, string) { return !opens(p), "opens" })
	}
	closed(a)
	closed(o)

	id := a.submit("--profile", "demo", "--gpu-mem", "8GiB", "--", "sh", "-c", "("+look+"); echo looked; sleep 600")
	a.untilState(id, engine.Running)
	a.eventually("the job has looked", func() (bool, string) { l := a.logs(id); return strings.Contains(l, "looked"), l })
	if l := a.logs(id); strings.Contains(strings.ToLower(l), "permission denied") || !strings.Contains(strings.ToLower(l), "no such device") {
		t.Errorf("inside, with a grant: %s", l)
	}
	if !opens(a) || opens(o) {
		t.Errorf("while alice's job runs: alice opens %v, bob opens %v", opens(a), opens(o))
	}
	r := o.try("podman", "run", "--rm", "--network", "none", "--device", oldNode, image, "sh", "-c", look)
	if r.code == 0 || strings.Contains(strings.ToLower(r.out+r.err), "no such device") || !strings.Contains(strings.ToLower(r.out+r.err), "denied") {
		t.Errorf("bob's own container: exit %d: %s%s", r.code, r.out, r.err)
	}

	// As after a driver was loaded again: the node is another one, open to everybody, and nobody's ACL is on it.
	if err := os.Remove(oldNode); err != nil {
		t.Fatal(err)
	}
	makeOldNode(t)
	closed(o)
	if !opens(a) {
		t.Error("alice's running job has lost its card to a driver loaded again")
	}
	a.gputop("cancel", id.String())
	a.released(id)
	if opens(a) {
		t.Error("alice opens the card after its release")
	}

	// A card whose node is another device starts nothing: the machine is at fault, and the job waits for another try.
	if err := os.Remove(oldNode); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(oldNode, unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
		t.Fatal(err)
	}
	bad := a.submit("--profile", "demo", "--gpu-mem", "8GiB", "--", "true")
	a.until(bad, "put back", func(d api.JobDetail) bool {
		return d.State == engine.Pending && d.Attempt == 1 && strings.Contains(d.Message, "the device gate cannot open")
	})
	if err := os.Remove(oldNode); err != nil {
		t.Fatal(err)
	}
	makeOldNode(t)
	a.untilState(bad, engine.Succeeded)
	a.released(bad)

	setGate(t, config, "observe")
	a.eventually("the node is as it was", func() (bool, string) {
		out, err := exec.Command("stat", "-c", "%a %u %g", oldNode).CombinedOutput()
		return err == nil && string(out) == "666 0 0\n" && opens(o), string(out)
	})
}
