//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gputop/engine"
)

// configure writes a personal daemon's configuration, before the first command starts it.
func (p *person) configure(lines ...string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.state(), "config.yaml"), []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// counts reads "line N" lines: how many there are, the first and the last number, and where a number does not follow the
// one before it without a notice in between.
func counts(t *testing.T, what, text string) (n, first, last, notices int) {
	t.Helper()
	first, last = -1, -1
	told := true
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if strings.HasPrefix(s.Text(), "… earlier output was dropped") {
			told = true
			notices++
			continue
		}
		i, err := strconv.Atoi(strings.TrimPrefix(s.Text(), "line "))
		if err != nil {
			t.Fatalf("%s: a torn line: %.80q", what, s.Text())
		}
		if i != last+1 && (!told || i <= last) {
			t.Fatalf("%s: line %d follows line %d", what, i, last)
		}
		if told = false; first < 0 {
			first = i
		}
		n, last = n+1, i
	}
	return n, first, last, notices
}

// TestLogLimit: the newest output is kept, the disk's share is bounded, and whoever reads or copies meanwhile misses
// nothing but what was dropped before, and repeats nothing.
func TestLogLimit(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.configure("log_limit: 1MiB")
	work := p.dir("work")
	const lines = 200_000 // some 12 MiB as Podman writes them
	script := fmt.Sprintf(`i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); done`, lines)
	id := p.submitIn(work, "--profile", "demo", "--gpus", "0", "--output", "copy.log", "--", "sh", "-c", "sleep 1; "+script)
	followed := p.gputop("logs", "-f", id.String())
	p.untilState(id, engine.Succeeded)
	all := p.logs(id)
	n, first, last, notices := counts(t, "logs", all)
	if last != lines-1 || first == 0 || n < 15_000 || notices != 1 || !strings.HasPrefix(all, "… earlier output was dropped: the log is limited to 1MiB\n") {
		t.Errorf("logs: %d lines from %d to %d, %d notices, %.80q", n, first, last, notices, all)
	}
	if _, _, last, _ := counts(t, "logs -f", followed); last != lines-1 {
		t.Errorf("logs -f ends with line %d", last)
	}
	copied, err := os.ReadFile(filepath.Join(work, "copy.log"))
	if err != nil {
		t.Fatal(err)
	}
	if _, first, last, _ := counts(t, "the copy", string(copied)); first != 0 || last != lines-1 {
		t.Errorf("the copy goes from line %d to %d", first, last)
	}
	if tail := p.gputop("logs", "--tail", "3", id.String()); tail != fmt.Sprintf("line %d\nline %d\nline %d\n", lines-3, lines-2, lines-1) {
		t.Errorf("tail: %q", tail)
	}
	fi, err := os.Stat(filepath.Join(p.state(), "agent", "logs", id.String()+".1.log"))
	if err != nil {
		t.Fatal(err)
	}
	if used := fi.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20+256<<10 {
		t.Errorf("the log takes %d bytes of the disk", used)
	}
}

// TestLogsOverARestart: a reader stays while the daemon is killed and started again, and gets every line once.
func TestLogsOverARestart(t *testing.T) {
	p := personal(t, alice, oneCard)
	id := p.submit("--profile", "demo", "--gpus", "0", "--", "sh", "-c", "i=0; while [ $i -lt 120 ]; do echo line $i; i=$((i+1)); sleep 0.05; done")
	p.untilState(id, engine.Running)
	c := p.command(context.WithoutCancel(t.Context()), "gputop", "logs", "-f", id.String())
	var out, errs bytes.Buffer
	seen := &notingWriter{w: &out, line: []byte("line 10\n"), seen: make(chan struct{})}
	c.Stdout, c.Stderr = seen, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	<-seen.seen
	p.endDaemon(syscall.SIGKILL)
	p.untilState(id, engine.Running) // by a new daemon
	p.untilState(id, engine.Succeeded)
	if err := c.Wait(); err != nil {
		t.Errorf("logs -f: %v: %s", err, errs.String())
	}
	if n, first, last, notices := counts(t, "logs -f", out.String()); n != 120 || first != 0 || last != 119 || notices != 0 {
		t.Errorf("logs -f: %d lines from %d to %d, %d notices", n, first, last, notices)
	}
}

// notingWriter says when a line has come.
type notingWriter struct {
	w    *bytes.Buffer
	line []byte
	seen chan struct{}
}

func (n *notingWriter) Write(b []byte) (int, error) {
	had := bytes.Contains(n.w.Bytes(), n.line)
	n.w.Write(b)
	if !had && bytes.Contains(n.w.Bytes(), n.line) {
		close(n.seen)
	}
	return len(b), nil
}

// endDaemon ends the person's daemon by a signal and waits until it is gone.
func (p *person) endDaemon(sig syscall.Signal) {
	p.t.Helper()
	pids := processes("serve", p.state())
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			p.t.Fatal(err)
		}
	}
	p.eventually("the daemon has ended", func() (bool, string) {
		for _, pid := range pids { // a process that ends loses its command line before its socket
			if exists(fmt.Sprintf("/proc/%d", pid)) {
				return false, fmt.Sprint(pids)
			}
		}
		return true, ""
	})
}

// small mounts a small file system over a directory of the person's, for the test.
func (p *person) small(dir, size string) {
	p.t.Helper()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%s,mode=0700,uid=%d,gid=%d", size, p.uid, p.gid), "tmpfs", dir).CombinedOutput(); err != nil {
		p.t.Fatalf("mount: %v: %s", err, out)
	}
	p.t.Cleanup(func() {
		endAll(p, p.state())
		_ = exec.Command("umount", "-l", dir).Run()
		p.try("podman", "system", "migrate")
	})
	// Rootless Podman keeps a mount namespace from before, which does not have this mount.
	p.run("podman", "system", "migrate")
}

// TestJobThatFillsTheStateDisk: it can be cancelled, and a daemon can be started, while there is not one block left; what
// became of it is recorded.
func TestJobThatFillsTheStateDisk(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.small(p.state(), "12m")
	p.configure("stop_grace: 2s")
	id := p.submit("--profile", "demo", "--gpus", "1", "--mount", p.state()+":/full", "--",
		"sh", "-c", "dd if=/dev/zero of=/full/fill bs=4k; echo filled; while :; do dd if=/dev/zero of=/full/more bs=4k; sleep 0.02; done 2>/dev/null")
	p.eventually("the disk is full", func() (bool, string) {
		var st syscall.Statfs_t
		err := syscall.Statfs(p.state(), &st)
		return err == nil && st.Bfree == 0, fmt.Sprint(st.Bfree, err)
	})
	p.endDaemon(syscall.SIGKILL)
	p.untilState(id, engine.Running) // by a new daemon, which begins on the full disk
	if r := p.try("gputop", "submit", "--profile", "demo", "--gpus", "0", "--env", "X="+strings.Repeat("x", 100<<10), "--", "true"); r.code == 0 || !strings.Contains(r.err, "full") {
		t.Errorf("a submit got the reserve: exit %d: %s", r.code, r.err)
	}
	if r := p.try("gputop", "cancel", id.String()); r.code != 0 || !strings.Contains(r.out, "being cancelled") {
		t.Errorf("cancel: exit %d: %s%s", r.code, r.out, r.err)
	}
	p.eventually("the program has ended", func() (bool, string) {
		out := p.run("podman", "ps", "-q")
		return strings.TrimSpace(out) == "", out
	})
	p.run("rm", "-f", filepath.Join(p.state(), "fill"), filepath.Join(p.state(), "more"))
	p.untilState(id, engine.Cancelled)
	p.released(id)
	next := p.submit("--profile", "demo", "--gpus", "1", "--", "true")
	p.untilState(next, engine.Succeeded)
}

// TestFullHome: a home without a free block stops nobody's queue; the job that can't start says why, and the next one
// runs when there is room.
func TestFullHome(t *testing.T) {
	p := newPerson(t, bob)
	state, err := os.MkdirTemp("", "gputop-e2e-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(state) })
	if err := os.Chown(state, p.uid, p.gid); err != nil {
		t.Fatal(err)
	}
	p.env = []string{"GPUTOP_STATE_DIR=" + state, "GPUTOP_SIMULATE=" + oneCard}
	t.Cleanup(func() {
		if t.Failed() {
			showLogs(t, state)
		}
		endAll(p, state)
	})
	p.small(p.home, "24m")
	first := p.submit("--gpus", "1", "--", "sh", "-c", "dd if=/dev/zero of=fill bs=4k; echo filled; exit 3")
	d := p.untilState(first, engine.Failed)
	if d.ExitCode == nil || *d.ExitCode != 3 || !strings.Contains(p.logs(first), "filled\n") {
		t.Errorf("the job that filled it: %v, %q", d.ExitCode, p.logs(first))
	}
	p.released(first)
	second := p.submit("--gpus", "1", "--", "true")
	if d := p.untilState(second, engine.Failed); !strings.Contains(d.Message, "no space left") || !strings.Contains(d.Message, "free some space") {
		t.Errorf("the job that can't start says: %s", d.Message)
	}
	p.run("rm", "fill")
	third := p.submit("--gpus", "1", "--", "true")
	p.untilState(third, engine.Succeeded)
}

// TestRetention: what is too old goes with its files; a running job keeps everything.
func TestRetention(t *testing.T) {
	p := personal(t, alice, oneCard)
	p.configure("keep_ended_jobs: 1")
	run := p.submit("--profile", "demo", "--gpus", "0", "--", "sleep", "300")
	p.untilState(run, engine.Running)
	var ended []engine.JobID
	for range 2 {
		id := p.submit("--profile", "demo", "--gpus", "0", "--", "sh", "-c", "echo saved > $GPUTOP_CHECKPOINT_DIR/model; echo done")
		p.untilState(id, engine.Succeeded)
		p.released(id)
		ended = append(ended, id)
	}
	files := func() (names []string) {
		for _, pattern := range []string{"logs/*.log", "checkpoints/*"} {
			found, _ := filepath.Glob(filepath.Join(p.state(), "agent", pattern))
			for _, f := range found {
				names = append(names, filepath.Base(f))
			}
		}
		return names
	}
	all := fmt.Sprintf("%[1]d.1.log %[2]d.1.log %[3]d.1.log %[1]d %[2]d %[3]d", run, ended[0], ended[1])
	if got := strings.Join(files(), " "); got != all {
		t.Fatalf("kept: %s, want %s", got, all)
	}
	p.endDaemon(syscall.SIGTERM)
	want := fmt.Sprintf("%[1]d.1.log %[2]d.1.log %[1]d %[2]d", run, ended[1])
	p.eventually("the first ended job is forgotten", func() (bool, string) {
		p.list() // starts the daemon
		got := strings.Join(files(), " ")
		return got == want, got
	})
	if r := p.try("gputop", "show", ended[0].String()); r.code == 0 {
		t.Errorf("the pruned job is still shown: %s", r.out)
	}
	if p.logs(ended[1]) != "done\n" || p.show(run).State != engine.Running {
		t.Errorf("kept: %q, %s", p.logs(ended[1]), p.show(run).State)
	}
	p.gputop("cancel", run.String())
}
