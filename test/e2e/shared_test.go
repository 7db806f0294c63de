//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// sharedBox is a daemon run by root for several people.
type sharedBox struct {
	t           *testing.T
	dir, socket string
	cmd         *exec.Cmd
	log         string
	cards       []string // the daemon's flags that say which
}

func shared(t *testing.T, simulate string) *sharedBox {
	t.Helper()
	return sharedWith(t, "--simulate", simulate)
}

func sharedWith(t *testing.T, cards ...string) *sharedBox {
	t.Helper()
	dir, err := os.MkdirTemp("", "gputop-shared-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &sharedBox{t: t, dir: dir, socket: filepath.Join(dir, "gputop.sock"), log: filepath.Join(dir, "daemon.log"), cards: cards}
	b.start()
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			out, _ := os.ReadFile(b.log)
			t.Logf("daemon's log:\n%s", out)
		}
		for _, name := range []string{alice, bob} {
			endAll(newPerson(t, name), b.socket)
		}
		leases, _ := filepath.Glob("/var/run/cdi/gputop-*")
		for _, l := range leases {
			os.Remove(l)
		}
		os.RemoveAll(dir)
	})
	return b
}

func (b *sharedBox) start() {
	b.t.Helper()
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"serve", "--shared", "--state-dir", filepath.Join(b.dir, "state"), "--socket", b.socket}, b.cards...)
	b.cmd = exec.Command(filepath.Join(bin, "gputopd"), args...)
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	p := b.person(alice)
	p.eventually("the shared daemon has seen its GPUs", func() (bool, string) {
		r := p.try("gputop", "top", "--once")
		return r.code == 0 && strings.Contains(r.out, "GiB"), r.out + r.err
	})
}

func (b *sharedBox) kill() {
	if b.cmd == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	_ = b.cmd.Wait()
	b.cmd = nil
}

func (b *sharedBox) person(name string) *person {
	return newPerson(b.t, name, "GPUTOP_SOCKET="+b.socket)
}

func TestSharedBoxTwoPeople(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	first := a.submit("--profile", "demo", "--gpu-fraction", "0.5", "--name", "of-a", "--", "simload", "--mem", "2GiB", "--for", "10m")
	second := o.submit("--profile", "demo", "--gpu-mem", "8GiB", "--name", "of-b", "--", "simload", "--mem", "1GiB", "--for", "10m")
	da, db := a.untilState(first, engine.Running), o.untilState(second, engine.Running)
	for who, d := range map[*person]api.JobDetail{a: da, o: db} {
		st, err := os.Stat("/proc/" + itoa(d.Attempts[0].PID))
		if err != nil {
			t.Fatal(err)
		}
		if uid := int(st.Sys().(*syscall.Stat_t).Uid); uid != who.uid {
			t.Errorf("the container of %s runs as %d, want %d", who.name, uid, who.uid)
		}
	}
	// Strangers see that it runs, not what it runs; and stop, enter, read nothing.
	seen := o.show(first)
	if seen.Owner != alice || seen.Spec != nil || seen.Command != "" || len(seen.Grants) != 1 {
		t.Errorf("bob sees of alice's job: %+v", seen)
	}
	for _, args := range [][]string{{"cancel", first.String()}, {"preempt", first.String()}, {"logs", first.String()}, {"exec", first.String(), "--", "id"}} {
		if r := o.try(append([]string{"gputop"}, args...)...); r.code != 5 || !strings.Contains(r.err, alice) {
			t.Errorf("bob: %v: exit %d: %s%s", args, r.code, r.out, r.err)
		}
	}
	// Root may cancel, with its reason on record.
	root := exec.Command(filepath.Join(bin, "gputop"), "cancel", second.String())
	root.Env = append(os.Environ(), "GPUTOP_SOCKET="+b.socket)
	if out, err := root.CombinedOutput(); err != nil {
		t.Errorf("cancel by root: %v: %s", err, out)
	}
	if d := o.untilState(second, engine.Cancelled); !strings.Contains(d.Message, "root") {
		t.Errorf("message %q does not name who cancelled", d.Message)
	}
	root = exec.Command(filepath.Join(bin, "gputop"), "submit", "--", "id")
	root.Env = append(os.Environ(), "GPUTOP_SOCKET="+b.socket)
	if out, err := root.CombinedOutput(); err == nil || !bytes.Contains(out, []byte("root")) {
		t.Errorf("submit by root: %v: %s", err, out)
	}
	a.gputop("cancel", first.String())
	a.untilState(first, engine.Cancelled)
}

// TestDevicesGoThroughCDIOnly reads from Podman's own record of the container which devices and mounts it was created
// with: the card and the lease by their CDI names, and nothing of a device given directly.
func TestDevicesGoThroughCDIOnly(t *testing.T) {
	b := shared(t, "a100-40gb:2")
	a := b.person(alice)
	id := a.submit("--profile", "demo", "--gpus", "2", "--", "sh", "-c", "ls /dev/nvidia0 /dev/nvidia1; simload --mem 1GiB --for 10m")
	d := a.untilState(id, engine.Running)
	at := d.Attempts[0]
	if at.DirectEdits || len(at.CDIDevices) != 3 {
		t.Fatalf("CDI devices %v, direct %v; want two cards and a lease", at.CDIDevices, at.DirectEdits)
	}
	db := a.run("bash", "-c", "cat ~/.local/share/containers/storage/libpod/bolt_state.db 2>/dev/null || cat ~/.local/share/containers/storage/db.sql")
	i := strings.LastIndex(db, at.ContainerID)
	if i < 0 {
		t.Fatal("Podman's database does not know the container")
	}
	for _, name := range at.CDIDevices {
		if !strings.Contains(db, `"`+name+`"`) {
			t.Errorf("Podman's record of the container has no CDI device %q", name)
		}
	}
	var inspect []struct {
		Mounts     []struct{ Source, Destination string }
		HostConfig struct {
			Privileged bool
			Binds      []string
			Devices    []struct{ PathOnHost string }
		}
	}
	out := a.run("podman", "inspect", at.ContainerID)
	if err := json.Unmarshal([]byte(out), &inspect); err != nil || len(inspect) != 1 {
		t.Fatalf("inspect: %v: %s", err, out)
	}
	c := inspect[0]
	for _, m := range c.Mounts {
		if strings.HasPrefix(m.Destination, "/dev/") || strings.Contains(m.Source, "simulated") {
			t.Errorf("a device was mounted directly: %+v", m)
		}
	}
	for _, s := range c.HostConfig.Binds {
		if strings.Contains(s, "nvidia") || strings.Contains(s, "simulated") {
			t.Errorf("a device was bound directly: %s", s)
		}
	}
	for _, dev := range c.HostConfig.Devices {
		if strings.HasPrefix(dev.PathOnHost, "/") {
			t.Errorf("a device was given directly: %+v", dev)
		}
	}
	if c.HostConfig.Privileged {
		t.Error("the container is privileged")
	}
	lease := leaseFile(at)
	if !exists(lease) {
		t.Errorf("no lease at %s", lease)
	}
	other := b.person(bob)
	if r := other.try("cat", lease); r.code == 0 {
		t.Error("bob reads alice's lease")
	}
	if r := other.try("podman", "run", "--rm", "--network", "none", "--device", at.CDIDevices[2], image, "true"); r.code == 0 || !strings.Contains(r.err, "unresolvable") {
		t.Errorf("bob starts a container with alice's lease: exit %d: %s", r.code, r.err)
	}
	a.gputop("cancel", id.String())
	a.released(id)
	if exists(lease) {
		t.Error("the lease is still there after the job")
	}
}

func leaseFile(at api.Attempt) string {
	name := at.CDIDevices[len(at.CDIDevices)-1]
	_, name, _ = strings.Cut(name, "=")
	return "/var/run/cdi/gputop-lease-" + name + ".json"
}

// TestSharedRestartKeepsContainers kills root's daemon under running jobs of two people.
func TestSharedRestartKeepsContainers(t *testing.T) {
	b := shared(t, "a100-40gb:2")
	a, o := b.person(alice), b.person(bob)
	ids := map[*person]engine.JobID{}
	pids := map[*person]int{}
	for _, p := range []*person{a, o} {
		ids[p] = p.submit("--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m")
		pids[p] = p.untilState(ids[p], engine.Running).Attempts[0].PID
	}
	waiting := a.submit("--profile", "demo", "--gpus", "2", "--", "true")
	b.kill()
	b.start()
	for _, p := range []*person{a, o} {
		d := p.until(ids[p], "running, adopted", func(d api.JobDetail) bool { return d.State == engine.Running })
		if d.Attempts[0].PID != pids[p] || len(d.Attempts) != 1 {
			t.Errorf("%s: pid %d became %d, %d attempts", p.name, pids[p], d.Attempts[0].PID, len(d.Attempts))
		}
	}
	if d := a.show(waiting); !d.State.Queued() {
		t.Errorf("the waiting job is %s", d.State)
	}
	for _, p := range []*person{a, o} {
		p.gputop("cancel", ids[p].String())
	}
	a.untilState(waiting, engine.Succeeded)
}
