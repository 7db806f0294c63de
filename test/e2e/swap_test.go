//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/api"
)

// swap puts a socket of its own in the place of another, and writes down who connects to it.
func swap(path, seen string) error {
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(seen, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		raw, err := c.(*net.UnixConn).SyscallConn()
		if err != nil {
			return err
		}
		_ = raw.Control(func(fd uintptr) {
			if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
				fmt.Fprintln(out, cred.Uid)
			}
		})
		c.Close()
	}
}

// podmanSocket is where the Podman service of somebody's agent listens.
func podmanSocket(pid int) string {
	for _, w := range strings.Fields(commandLine(fmt.Sprint(pid))) {
		if path, ok := strings.CutPrefix(w, "unix://"); ok {
			return path
		}
	}
	return ""
}

// TestSwappedSocket is bob, who puts other sockets where his Podman's was between two uses: one of his own, and a link to
// the daemon's. Only his own agent ever comes there, never root; his jobs suffer and nobody else's.
func TestSwappedSocket(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	quick := []string{"--gpus", "0", "--profile", "demo", "--", "true"}
	o.untilState(o.submit(quick...), engine.Succeeded)
	services := podmanServices(instanceOf(t, processes(b.socket, "gputopd agent")))
	if len(services) == 0 {
		t.Fatal("no Podman service is found")
	}
	socket := podmanSocket(services[0])
	gone := func() {
		for _, pid := range podmanServices(instanceOf(t, processes(b.socket, "gputopd agent"))) {
			if podmanSocket(pid) == socket {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}

	dir := o.dir("swap")
	defer os.RemoveAll(dir)
	seen := filepath.Join(dir, "seen")
	gone()
	o.attack(b, "swap", "GPUTOP_HOSTILE_PATH="+socket, "GPUTOP_HOSTILE_SEEN="+seen)
	o.eventually("the socket is swapped", func() (bool, string) { return exists(seen), "" })
	id := o.submit(quick...)
	o.eventually("somebody has come", func() (bool, string) {
		out, _ := os.ReadFile(seen)
		return len(out) > 0, string(out)
	})
	a.untilState(a.submit(quick...), engine.Succeeded)
	out, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for _, uid := range strings.Fields(string(out)) {
		if uid != fmt.Sprint(o.uid) {
			t.Errorf("uid %s connected to a socket of %s's", uid, bob)
		}
	}

	// A link to the daemon's own socket: whoever follows it is bob there, too.
	gone()
	for _, pid := range processes("hostile") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = os.Remove(socket)
	if err := os.Symlink(b.socket, socket); err != nil {
		t.Fatal(err)
	}
	through := o.submit(quick...)
	o.until(through, "tried", func(d api.JobDetail) bool { return d.State == engine.Failed || len(d.Attempts) > 0 || d.Reason != nil })
	a.untilState(a.submit(quick...), engine.Succeeded)
	if d := o.show(through); d.State == engine.Succeeded || d.State == engine.Running {
		t.Errorf("a job ran by way of the daemon's own socket: %+v", d)
	}
	// Once bob has taken the link away his agent starts Podman's service again, and nothing is left of it.
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	o.untilState(o.submit(quick...), engine.Succeeded)
	o.until(id, "over", func(d api.JobDetail) bool { return d.State.Final() })
}
