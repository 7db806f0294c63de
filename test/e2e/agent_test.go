//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// TestStoppedAgentIsReplaced stops the agent, as a debugger or a full cgroup would: connected, and silent. The job must
// go on in its container, its output be readable again, and nothing run twice.
func TestStoppedAgentIsReplaced(t *testing.T) {
	p := personal(t, alice, oneCard)
	marks := p.dir("marks")
	id := p.submit("--profile", "demo", "--mount", marks+":/marks", "--", "sh", "-c",
		"echo started >> /marks/run; echo before; until [ -e /marks/go ]; do sleep 0.1; done; echo after; exit 5")
	before := p.untilState(id, engine.Running).Attempts[0]
	old := processes(p.state(), "gputopd agent")
	if len(old) != 1 {
		t.Fatalf("agents: %v", old)
	}
	if err := syscall.Kill(old[0], syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.eventually("the stopped agent is gone and another is there", func() (bool, string) {
		now := processes(p.state(), "gputopd agent")
		return len(now) == 1 && now[0] != old[0], itoas(now)
	})
	if out := p.logs(id); out != "before\n" {
		t.Errorf("output while it runs: %q", out)
	}
	after := p.show(id)
	if a := after.Attempts[0]; after.State != engine.Running || a.ContainerID != before.ContainerID || a.PID != before.PID || len(after.Attempts) != 1 {
		t.Errorf("container %s pid %d became %s pid %d, %s, %d attempts", before.ContainerID, before.PID, a.ContainerID, a.PID, after.State, len(after.Attempts))
	}
	p.run("touch", marks+"/go")
	d := p.until(id, "ended", func(d api.JobDetail) bool { return d.State.Final() })
	if d.State != engine.Failed || d.ExitCode == nil || *d.ExitCode != 5 {
		t.Errorf("job ended %s with %v (%s), want failed with 5", d.State, d.ExitCode, d.Message)
	}
	if out := p.logs(id); out != "before\nafter\n" {
		t.Errorf("output in the end: %q", out)
	}
	if got := p.run("cat", marks+"/run"); got != "started\n" {
		t.Errorf("what ran: %q", got)
	}
}

func itoas(pids []int) string {
	var b strings.Builder
	for _, pid := range pids {
		b.WriteString(strconv.Itoa(pid) + " ")
	}
	return b.String()
}

// TestNewGroupReachesTheAgent gives a user a group while a job of theirs runs: the agent makes way for one that has it, and
// so does Podman's service, and the container notices nothing.
func TestNewGroupReachesTheAgent(t *testing.T) {
	// Below a user's systemd manager an agent has the manager's groups, old ones too: it is replaced once, in vain.
	managed := exists("/run/systemd/system")
	const group = "gputop-test-g"
	_ = exec.Command("groupdel", group).Run() // of a run that was cut off
	if out, err := exec.Command("groupadd", group).CombinedOutput(); err != nil {
		t.Fatalf("groupadd: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("groupdel", group).Run() })
	b := shared(t, oneCard)
	p := b.person(alice)
	marks := p.dir("marks")
	id := p.submit("--profile", "demo", "--mount", marks+":/marks", "--", "sh", "-c",
		"echo started >> /marks/run; until [ -e /marks/go ]; do sleep 0.1; done")
	before := p.untilState(id, engine.Running).Attempts[0]
	old := processes(b.socket, "gputopd agent")
	if len(old) != 1 {
		t.Fatalf("agents: %v", old)
	}
	if out, err := exec.Command("usermod", "-aG", group, alice).CombinedOutput(); err != nil {
		t.Fatalf("usermod: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("gpasswd", "-d", alice, group).Run() })
	gid := strings.Split(p.run("getent", "group", group), ":")[2]
	p.eventually("an agent with the group has taken over", func() (bool, string) {
		now := processes(b.socket, "gputopd agent")
		if len(now) != 1 || now[0] == old[0] {
			return false, itoas(now)
		}
		return managed || hasGroup(now[0], gid), "agent " + itoas(now) + "lacks the group"
	})
	p.run("touch", marks+"/go")
	d := p.untilState(id, engine.Succeeded)
	if a := d.Attempts[0]; a.ContainerID != before.ContainerID || a.PID != before.PID || len(d.Attempts) != 1 {
		t.Errorf("container %s pid %d became %s pid %d", before.ContainerID, before.PID, a.ContainerID, a.PID)
	}
	if got := p.run("cat", marks+"/run"); got != "started\n" {
		t.Errorf("what ran: %q", got)
	}
	// What a container gets of groups, it gets from Podman's service: that is a new one too.
	p.untilState(p.submit("--profile", "demo", "--", "true"), engine.Succeeded)
	services := podmanServices(instanceOf(t, processes(b.socket, "gputopd agent")))
	if len(services) == 0 {
		t.Error("no Podman service is found")
	}
	for _, pid := range services {
		if !managed && !hasGroup(pid, gid) {
			t.Errorf("Podman's service %d lacks the group", pid)
		}
	}
}

// instanceOf is the engine that an agent works for.
func instanceOf(t *testing.T, agents []int) string {
	t.Helper()
	for _, pid := range agents {
		words := strings.Split(commandLine(strconv.Itoa(pid)), " ")
		for i, w := range words[:len(words)-1] {
			if w == "--instance" {
				return words[i+1]
			}
		}
	}
	t.Fatalf("no agent of a shared daemon among %v", agents)
	return ""
}

func commandLine(pid string) string {
	b, _ := os.ReadFile("/proc/" + pid + "/cmdline")
	return strings.ReplaceAll(string(b), "\x00", " ")
}

// podmanServices are the processes of the Podman services that an engine's agents started.
func podmanServices(instance string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		line := commandLine(e.Name())
		if pid, err := strconv.Atoi(e.Name()); err == nil && strings.Contains(line, " system service ") && strings.Contains(line, "shared-"+instance) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func hasGroup(pid int, gid string) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Groups:"); ok {
			return strings.Contains(" "+strings.Join(strings.Fields(rest), " ")+" ", " "+gid+" ")
		}
	}
	return false
}

// TestProgramThatIsNotThere is refused when it is submitted, also once the image is known.
func TestProgramThatIsNotThere(t *testing.T) {
	p := personal(t, alice, oneCard)
	for range 2 {
		r := p.try("gputop", "submit", "--", "pyhton3", "train.py")
		if r.code != 2 || !strings.Contains(r.err, "pyhton3: no such program on this job's PATH") {
			t.Errorf("exit %d: %s", r.code, r.err)
		}
		p.untilState(p.submit("--", "true"), engine.Succeeded) // the host's image is made by the first
	}
	work := p.dir("work")
	r := p.tryIn(work, "gputop", "submit", "--", "./run.sh")
	if r.code != 2 || !strings.Contains(r.err, "./run.sh: no such program in the working directory "+work) {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	// A job ahead may make it.
	first := p.submitIn(work, "--", "sh", "-c", "sleep 1; printf '#!/bin/sh\\necho made\\n' > run.sh; chmod +x run.sh")
	second := p.submitIn(work, "--", "./run.sh")
	p.untilState(first, engine.Succeeded)
	p.untilState(second, engine.Succeeded)
	if out := p.logs(second); out != "made\n" {
		t.Errorf("output %q", out)
	}
}

func TestDoctorOnThisMachine(t *testing.T) {
	p := personal(t, alice, oneCard)
	r := p.try("gputop", "doctor")
	t.Log(r.out)
	if r.code != 0 || r.err != "" {
		t.Errorf("exit %d on a machine where jobs run: %s%s", r.code, r.out, r.err)
	}
	for _, want := range []string{"SIMULATED", "your agent is connected", "Podman ", "subordinate user and group ids"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in:\n%s", want, r.out)
		}
	}
	if strings.Contains(r.out, "\x1b") {
		t.Error("colour without a terminal")
	}
	if out := p.gputop("doctor", "--json"); !strings.Contains(out, `"version": 1`) || !strings.Contains(out, `"check": "podman"`) {
		t.Errorf("as JSON:\n%s", out)
	}
}
