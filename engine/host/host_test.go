package host

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	"gputop/engine"
)

func TestReadProcess(t *testing.T) {
	me, ok := ReadProcess(os.Getpid())
	if !ok || me.UID != uint32(os.Getuid()) || me.Start == 0 || me.PIDNamespace == 0 {
		t.Fatalf("this process: %+v, %v", me, ok)
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok := ReadProcess(child.Process.Pid)
	if !ok || p.Start < me.Start || p.PIDNamespace != me.PIDNamespace {
		t.Errorf("a child: %+v, %v", p, ok)
	}
	in.Close()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{0, -1, child.Process.Pid} {
		if p, ok := ReadProcess(pid); ok {
			t.Errorf("pid %d is there: %+v", pid, p)
		}
	}
}

func TestGroups(t *testing.T) {
	want, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := Groups(os.Getpid())
	if !ok || !slices.Contains(got, uint32(os.Getgid())) || len(got) != len(want)+1 {
		t.Errorf("groups %v, %v; want %v and %d", got, ok, want, os.Getgid())
	}
	if got, ok := Groups(0); ok {
		t.Errorf("of no process: %v", got)
	}
}

func TestLockDeviceIsExclusive(t *testing.T) {
	id := engine.DeviceID("GPU-test-" + t.Name())
	t.Cleanup(func() { os.Remove(lockDir + "/gputop-device-" + string(id) + ".lock") })
	release, err := LockDevice(id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := LockDevice(id); !errors.Is(err, ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	release()
	again, err := LockDevice(id)
	if err != nil {
		t.Fatalf("after release: %v", err)
	}
	again()
	if _, err := LockDevice("GPU-../../etc/x"); err == nil {
		t.Error("a path passed as a device")
	}
}

func TestFacts(t *testing.T) {
	if id, err := BootID(); err != nil || len(id) != 36 {
		t.Errorf("boot id %q, %v", id, err)
	}
	if a, b := Boottime(), Boottime(); a <= 0 || b < a {
		t.Errorf("boot clock %d then %d", a, b)
	}
	if CPUs() < 1 || Memory() < engine.MiB {
		t.Errorf("%v CPUs, %v memory", CPUs(), Memory())
	}
}
