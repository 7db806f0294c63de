//go:build e2e

package store

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// TestReallyFullDisk needs the right to mount a small tmpfs, as root or in a user namespace.
func TestReallyFullDisk(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `mount -t tmpfs -o size=8m tmpfs "$GPUTOP_STORE_FULL" && exec "$0"`, os.Args[0])
	cmd.Env = append(os.Environ(), "GPUTOP_STORE_FULL="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
