//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

func itoa(n int) string { return strconv.Itoa(n) }

// TestBadInput: each is refused with what is wrong, and nothing is kept.
func TestBadInput(t *testing.T) {
	p := personal(t, alice, oneCard)
	work := p.dir("work")
	secret := filepath.Join(work, "secret")
	if err := os.Mkdir(secret, 0o700); err != nil { // root's own: the user may not enter
		t.Fatal(err)
	}
	yaml := filepath.Join(work, "job.yaml")
	if err := os.WriteFile(yaml, []byte("name: x\ncommand: [\"true\"]\ngpuss: 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(work, "job.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n#GPUTOP --gpus 1\n#GPUTOP --speed 9\ntrue\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want []string // all of them
	}{
		{"unknown flag", []string{"--gpuz", "1", "--", "true"}, []string{"--gpuz"}},
		{"unknown YAML key", []string{"-f", yaml}, []string{"gpuss", "3"}},
		{"unknown script flag", []string{script}, []string{"speed", "3"}},
		{"no command", nil, []string{"command"}},
		{"unknown image", []string{"--image", "localhost/nosuch:1", "--", "true"}, []string{"localhost/nosuch:1", "gputop images"}},
		{"unknown profile", []string{"--profile", "nosuch", "--", "true"}, []string{"nosuch", "host-env"}},
		{"fraction 0", []string{"--gpu-fraction", "0", "--", "true"}, []string{"above 0"}},
		{"fraction above 1", []string{"--gpu-fraction", "1.5", "--", "true"}, []string{"at most 1"}},
		{"fraction NaN", []string{"--gpu-fraction", "NaN", "--", "true"}, []string{"at most 1"}},
		{"more GPUs than the box has", []string{"--gpus", "9", "--", "true"}, []string{"9", "1"}},
		{"negative GPUs", []string{"--gpus", "-1", "--", "true"}, []string{"-1"}},
		{"memory larger than any card", []string{"--gpu-mem", "96GiB", "--", "true"}, []string{"96GiB", "39"}},
		{"two ways to ask", []string{"--gpus", "1", "--gpu-mem", "1GiB", "--", "true"}, []string{"gpu"}},
		{"a mount that is not there", []string{"--mount", "/nosuch:/x", "--", "true"}, []string{"/nosuch"}},
		{"a mount the user can't read", []string{"--mount", secret + ":/x", "--", "true"}, []string{secret}},
		{"a mount of /dev", []string{"--mount", "/dev:/x", "--", "true"}, []string{"/dev"}},
		{"absurd time limit", []string{"--time-limit", "400d", "--", "true"}, []string{"--time-limit", "366 days"}},
		{"time limit zero", []string{"--time-limit", "0s", "--", "true"}, []string{"time"}},
		{"a name with a newline", []string{"--name", "a\nb", "--", "true"}, []string{"name"}},
		{"a name with an escape", []string{"--name", "a\x1b[31mb", "--", "true"}, []string{"name"}},
		{"NVIDIA's own limit variable", []string{"--env", "NVIDIA_GPU_MEMORY_LIMIT=1", "--", "true"}, []string{"NVIDIA_GPU_MEMORY_LIMIT"}},
		{"unknown class", []string{"--class", "urgent", "--", "true"}, []string{"urgent", "critical"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := p.try(append([]string{"gputop", "submit"}, c.args...)...)
			if r.code != 2 {
				t.Errorf("exit %d, want 2", r.code)
			}
			for _, w := range c.want {
				if !strings.Contains(r.err, w) {
					t.Errorf("the message does not say %q:\n%s", w, r.err)
				}
			}
			if strings.ContainsRune(r.err, '\x1b') {
				t.Errorf("the message sends an escape to the terminal: %q", r.err)
			}
		})
	}
	if out := p.gputop("ls", "--json"); strings.Contains(out, `"id"`) {
		t.Errorf("something was kept: %s", out)
	}
}

// TestNoSubordinateIDs: an account without them is told the command that mends it.
func TestNoSubordinateIDs(t *testing.T) {
	const name = "gputop-test-nosub"
	remove := func() {
		_ = exec.Command("pkill", "-KILL", "-u", name).Run()
		_ = exec.Command("userdel", "-r", name).Run()
	}
	remove() // of a run that was broken off
	if out, err := exec.Command("useradd", "-m", "-K", "SUB_UID_COUNT=0", "-K", "SUB_GID_COUNT=0", name).CombinedOutput(); err != nil {
		t.Fatalf("useradd: %v: %s", err, out)
	}
	t.Cleanup(remove)
	p := personal(t, name, oneCard) // its processes end before the account goes
	r := p.try("gputop", "submit", "--", "true")
	if r.code != 2 || !strings.Contains(r.err, "usermod") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// TestNoPodman hides Podman from an account in a mount namespace of its own.
func TestNoPodman(t *testing.T) {
	for _, c := range []struct{ name, podman, want string }{
		{"missing", "", "podman"},
		{"too old", "#!/bin/sh\n[ \"$1\" = --version ] && echo podman version 3.4.4\nexit 0\n", "3.4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := personal(t, alice, oneCard)
			fake := filepath.Join(p.dir("fake"), "podman")
			mode := os.FileMode(0o755)
			if c.podman == "" {
				mode = 0o000 // found, but nothing that can be run
			}
			if err := os.WriteFile(fake, []byte(c.podman), mode); err != nil {
				t.Fatal(err)
			}
			sh := fmt.Sprintf("mount --bind %s /usr/bin/podman && exec setpriv --reuid %d --regid %d --init-groups env -i HOME=%s USER=%s PATH=%s:/usr/bin:/bin %s gputop submit -- true",
				quote(fake), p.uid, p.gid, quote(p.home), p.name, bin, strings.Join(p.env, " "))
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "bash", "-c", sh)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) || !strings.Contains(string(out), "odman") {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// TestStateDirectory: a directory that can't hold the state is refused with what to do.
func TestStateDirectory(t *testing.T) {
	p := newPerson(t, alice)
	p.env = []string{"GPUTOP_STATE_DIR=/proc/nothing", "GPUTOP_SIMULATE=" + oneCard}
	if r := p.try("gputop", "ls"); r.code == 0 || !strings.Contains(r.err, "/proc/nothing") {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	readOnly := p.dir("ro")
	if err := os.Chown(readOnly, 0, 0); err != nil {
		t.Fatal(err)
	}
	p.env[0] = "GPUTOP_STATE_DIR=" + readOnly
	if r := p.try("gputop", "ls"); r.code == 0 || !strings.Contains(r.err, readOnly) {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
}

// TestFullDiskAtSubmit: the job is refused, those before it are kept, and it goes on when there is room.
func TestFullDiskAtSubmit(t *testing.T) {
	p := personal(t, alice, oneCard)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=4m,mode=0700,uid=%d,gid=%d", p.uid, p.gid), "tmpfs", p.state()).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v: %s", err, out)
	}
	t.Cleanup(func() {
		endAll(p, p.state())
		_ = exec.Command("umount", "-l", p.state()).Run()
		p.try("podman", "system", "migrate")
	})
	// Rootless Podman keeps a mount namespace from before, which does not have this mount.
	p.run("podman", "system", "migrate")
	kept := p.submit("--profile", "demo", "--gpus", "0", "--", "sleep", "300")
	p.untilState(kept, engine.Running)
	fill := filepath.Join(p.state(), "fill")
	p.try("dd", "if=/dev/zero", "of="+fill, "bs=4k", "status=none")
	var refused bool
	for range 50 {
		r := p.try("gputop", "submit", "--profile", "demo", "--gpus", "0", "--env", "X="+strings.Repeat("x", 64<<10), "--", "true")
		if r.code != 0 {
			refused = true
			if !strings.Contains(r.err, "full") || !strings.Contains(r.err, "nothing was kept") {
				t.Errorf("exit %d: %s", r.code, r.err)
			}
			break
		}
	}
	if !refused {
		t.Fatal("submits were accepted on a full disk")
	}
	p.run("rm", fill)
	after := p.submit("--profile", "demo", "--gpus", "0", "--", "true")
	p.untilState(after, engine.Succeeded)
	if d := p.show(kept); d.State != engine.Running {
		t.Errorf("the job from before is %s", d.State)
	}
	p.gputop("cancel", kept.String())
}

// TestRemovedByItsOwner: podman rm and podman stop by the owner are ordinary events.
func TestRemovedByItsOwner(t *testing.T) {
	p := personal(t, alice, oneCard)
	removed := p.submit("--profile", "demo", "--gpus", "0", "--", "sleep", "300")
	d := p.untilState(removed, engine.Running)
	p.run("podman", "rm", "-f", "-t", "0", d.Attempts[0].ContainerID)
	d = p.until(removed, "ended", func(d api.JobDetail) bool { return d.State.Final() })
	if d.State == engine.Succeeded || d.Message == "" {
		t.Errorf("after podman rm: %s (%q)", d.State, d.Message)
	}
	stopped := p.submit("--profile", "demo", "--gpus", "0", "--", "sleep", "300")
	d = p.untilState(stopped, engine.Running)
	p.run("podman", "stop", "-t", "1", d.Attempts[0].ContainerID)
	d = p.until(stopped, "ended", func(d api.JobDetail) bool { return d.State.Final() })
	if d.State != engine.Failed {
		t.Errorf("after podman stop: %s (%q)", d.State, d.Message)
	}
}
