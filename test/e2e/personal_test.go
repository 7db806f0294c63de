//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

const oneCard = "a100-40gb:1"

func TestThreeClassesRunInOrderOnOneGPU(t *testing.T) {
	p := personal(t, alice, oneCard)
	gate := filepath.Join(p.dir("work"), "go")
	first := p.submit("--profile", "demo", "--mount", filepath.Dir(gate)+":/gate", "--", "sh", "-c", "until [ -e /gate/go ]; do sleep 0.1; done")
	p.untilState(first, engine.Running)
	var ids []engine.JobID
	for _, c := range []string{"low", "medium", "high"} {
		ids = append(ids, p.submit("--profile", "demo", "--class", c, "--name", "in-"+c, "--", "sh", "-c", "echo I am $GPUTOP_JOB_ID; exit 0"))
	}
	for _, id := range ids {
		p.until(id, "ready and waiting", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code != engine.ReasonPreparing })
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var last time.Time
	for i, id := range []engine.JobID{ids[2], ids[1], ids[0]} {
		d := p.untilState(id, engine.Succeeded)
		if got, want := p.logs(id), fmt.Sprintf("I am %s\n", id); got != want {
			t.Errorf("output of job %s is %q, want %q", id, got, want)
		}
		if s := d.Attempts[0].Started; i > 0 && s.Before(last) {
			t.Errorf("job %s (%s) started before the one of a higher class", id, d.Class)
		} else {
			last = d.Attempts[0].Ended
		}
	}
	if out := p.run("podman", "ps", "-aq"); strings.TrimSpace(out) != "" {
		for _, id := range ids {
			p.released(id)
		}
	}
}

func TestWhatAJobFindsInside(t *testing.T) {
	p := personal(t, alice, "a100-40gb:2")
	work := p.dir("my project")
	id := p.submitIn(work, "--profile", "demo", "--gpu-mem", "12GiB", "--env", "GREETING=hello world", "--output", "train-%j.log", "--", "sh", "-c",
		`cat /proc/self/uid_map | tr -s ' '; pwd; ls /dev/nvidia*; env | grep -E '^(GPUTOP_|GREETING)' | sort; echo data > made; id -u; ls -d "$GPUTOP_CHECKPOINT_DIR"; exit 7`)
	r := p.try("gputop", "wait", id.String())
	if r.code != 7 {
		t.Errorf("wait: exit %d, want the program's own 7\n%s%s", r.code, r.out, r.err)
	}
	d := p.until(id, "failed", func(d api.JobDetail) bool { return d.State == engine.Failed })
	out := p.logs(id)
	for _, want := range []string{
		fmt.Sprintf(" 0 %d 1\n", p.uid), // root inside is the submitting user outside
		work + "\n", "/dev/nvidia", "GREETING=hello world\n",
		"GPUTOP_JOB_ID=" + id.String() + "\n", "GPUTOP_ATTEMPT=1\n",
		fmt.Sprintf("GPUTOP_GPU_MEMORY_BYTES=%d\n", int64(12*engine.GiB)), "GPUTOP_GPU_MEMORY_FRACTION=0.3",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("inside there is no %q:\n%s", want, out)
		}
	}
	if n := strings.Count(out, "/dev/nvidia"); n < 1 {
		t.Errorf("devices inside: %d\n%s", n, out)
	}
	fi, err := os.Stat(filepath.Join(work, "made"))
	if err != nil {
		t.Fatalf("what the job wrote in its directory: %v", err)
	}
	if st := fi.Sys().(*syscall.Stat_t); int(st.Uid) != p.uid {
		t.Errorf("the file belongs to %d, want %d", st.Uid, p.uid)
	}
	if b, err := os.ReadFile(filepath.Join(work, "train-"+id.String()+".log")); err != nil || string(b) != out {
		t.Errorf("--output has %q (%v), want the job's output", b, err)
	}
	if d.ExitCode == nil || *d.ExitCode != 7 {
		t.Errorf("exit code %v", d.ExitCode)
	}
	if !d.Attempts[0].DirectEdits {
		t.Errorf("personal mode on this Podman takes direct edits, and show must say so: %+v", d.Attempts[0])
	}
}

func TestHostProgramsRunWithNoOtherFlag(t *testing.T) {
	p := personal(t, alice, oneCard)
	work := p.dir("myproject")
	script := "import os, sys\nprint('python', sys.version_info[0], os.getcwd(), os.environ['HOME'], os.path.exists('/dev/nvidia0'))\nopen('out.txt','w').write('x')\n"
	if err := os.WriteFile(filepath.Join(work, "train.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	id := p.submitIn(work, "--", "python3", "train.py")
	p.untilState(id, engine.Succeeded)
	if got, want := p.logs(id), fmt.Sprintf("python 3 %s %s True\n", work, p.home); got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if _, err := os.Stat(filepath.Join(work, "out.txt")); err != nil {
		t.Error(err)
	}
}

// TestImageGetsTheContainerProfile: naming an image and no profile gives the image, not this machine's own programs.
func TestImageGetsTheContainerProfile(t *testing.T) {
	p := personal(t, alice, oneCard)
	id := p.submitIn(p.dir("work"), "--image", image, "--gpus", "0", "--", "sh", "-c", "ls -d "+p.home+"/.config; pwd")
	d := p.until(id, "ended", func(d api.JobDetail) bool { return d.State.Final() })
	if d.Spec.Profile != "container" || strings.Contains(p.logs(id), p.home+"/.config\n") {
		t.Errorf("profile %q, and inside:\n%s", d.Spec.Profile, p.logs(id))
	}
}

// TestShortJobsRunOnce: jobs that end at once race with Podman's looks at them; none may be taken for not started.
func TestShortJobsRunOnce(t *testing.T) {
	p := personal(t, alice, oneCard)
	marks := p.dir("marks")
	var ids []engine.JobID
	for range 12 {
		ids = append(ids, p.submit("--profile", "demo", "--gpus", "0", "--mount", marks+":/marks", "--", "sh", "-c", "echo $GPUTOP_JOB_ID >> /marks/ran"))
	}
	for _, id := range ids {
		if d := p.untilState(id, engine.Succeeded); len(d.Attempts) != 1 {
			t.Errorf("job %s had %d attempts", id, len(d.Attempts))
		}
	}
	if got := strings.Fields(p.run("sort", "-u", marks+"/ran")); len(got) != len(ids) {
		t.Errorf("%d jobs ran, want %d", len(got), len(ids))
	}
	if got := strings.Fields(p.run("cat", marks+"/ran")); len(got) != len(ids) {
		t.Errorf("jobs ran %d times in all, want %d", len(got), len(ids))
	}
}

func TestAJobSeesOnlyItsOwnGPU(t *testing.T) {
	p := personal(t, alice, "a100-40gb:2")
	a := p.submit("--profile", "demo", "--", "sh", "-c", "ls /dev/ | grep nvidia; sleep 60")
	b := p.submit("--profile", "demo", "--", "sh", "-c", "ls /dev/ | grep nvidia; sleep 60")
	p.untilState(a, engine.Running)
	p.untilState(b, engine.Running)
	var outs []string
	for _, id := range []engine.JobID{a, b} {
		p.eventually("a device is listed", func() (bool, string) { o := p.logs(id); return strings.Contains(o, "nvidia"), o })
		outs = append(outs, p.logs(id))
	}
	if outs[0] == outs[1] || strings.Count(outs[0], "nvidia") != 1 || strings.Count(outs[1], "nvidia") != 1 {
		t.Errorf("devices inside: %q and %q, want one each, and not the same", outs[0], outs[1])
	}
	// Not by a mount of /dev either: such mounts are refused.
	r := p.try("gputop", "submit", "--profile", "demo", "--mount", "/dev:/hostdev", "--", "true")
	if r.code != 2 || !strings.Contains(r.err, "/dev") {
		t.Errorf("a mount of /dev: exit %d: %s", r.code, r.err)
	}
	p.gputop("cancel", a.String(), b.String())
}

func TestMemoryOnScreenComesFromTheProcess(t *testing.T) {
	p := personal(t, alice, oneCard)
	id := p.submit("--profile", "demo", "--gpu-mem", "10GiB", "--", "simload", "--mem", "6GiB", "--sm", "50", "--for", "10m")
	d := p.until(id, "holding 6 GiB", func(d api.JobDetail) bool { return d.GPUMemoryUsed != nil && *d.GPUMemoryUsed >= 6*engine.GiB })
	if *d.GPUMemoryUsed > 7*engine.GiB {
		t.Errorf("used %s of a workload that holds 6GiB and a context", *d.GPUMemoryUsed)
	}
	top := p.gputop("top", "--once")
	for _, want := range []string{"SIMULATED", "A100", alice} {
		if !strings.Contains(top, want) {
			t.Errorf("top does not show %q:\n%s", want, top)
		}
	}
	p.gputop("cancel", id.String())
	p.untilState(id, engine.Cancelled)
	p.released(id)
}

func TestPreemptRequeuesAndExecEnters(t *testing.T) {
	p := personal(t, alice, oneCard)
	low := p.submit("--profile", "demo", "--class", "low", "--", "simload", "--mem", "1GiB", "--for", "10m")
	p.untilState(low, engine.Running)
	if out := p.gputop("exec", low.String(), "--", "sh", "-c", "echo inside $GPUTOP_JOB_ID"); out != fmt.Sprintf("inside %s\n", low) {
		t.Errorf("exec printed %q", out)
	}
	high := p.submit("--profile", "demo", "--class", "high", "--", "sh", "-c", "sleep 2")
	p.until(high, "waiting", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.WaitingForDevice })
	p.gputop("preempt", low.String())
	p.untilState(high, engine.Succeeded)
	d := p.until(low, "running again", func(d api.JobDetail) bool { return d.State == engine.Running && d.Attempt == 2 })
	if d.Preemptions != 1 {
		t.Errorf("preemptions %d", d.Preemptions)
	}
	p.gputop("cancel", low.String())
	p.untilState(low, engine.Cancelled)
}

func TestTimeLimitAndRetries(t *testing.T) {
	p := personal(t, alice, oneCard)
	limited := p.submit("--profile", "demo", "--time-limit", "2s", "--", "sleep", "600")
	if r := p.try("gputop", "wait", limited.String()); r.code != 124 {
		t.Errorf("wait for a timed-out job: exit %d", r.code)
	}
	p.untilState(limited, engine.TimedOut)
	again := p.submit("--profile", "demo", "--gpus", "0", "--retries", "1", "--", "sh", "-c", "echo try $GPUTOP_ATTEMPT; [ $GPUTOP_ATTEMPT = 2 ]")
	if d := p.untilState(again, engine.Succeeded); len(d.Attempts) != 2 {
		t.Errorf("attempts %d, want 2", len(d.Attempts))
	}
	if got := p.gputop("logs", "--attempt", "1", again.String()); got != "try 1\n" {
		t.Errorf("first attempt's output %q", got)
	}
}
