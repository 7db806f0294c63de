//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// rules writes the daemon's configuration, as an admin does with an editor.
func rules(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// group makes a Unix group of people for the test.
func group(t *testing.T, name string, members ...string) {
	t.Helper()
	must := func(argv ...string) {
		t.Helper()
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", argv, err, out)
		}
	}
	_ = exec.Command("groupdel", name).Run() // of a run that was killed
	must("groupadd", name)
	t.Cleanup(func() { must("groupdel", name) })
	for _, m := range members {
		must("usermod", "-aG", name, m)
	}
}

// TestRulesForPeople is quotas and classes that change under a running daemon, a job shared with a group, and a
// preemption for a job of one's own.
func TestRulesForPeople(t *testing.T) {
	const vision = "gputop-test-vision"
	group(t, vision, alice, bob)
	conf := filepath.Join(t.TempDir(), "config.yaml")
	rules(t, conf, "users:\n- name: "+bob+"\n  max_gpus: 1\n  classes: [medium, low]\n  default_class: low\n")
	b := sharedWith(t, "--simulate", "a100-40gb:2", "--config", conf)
	a, o := b.person(alice), b.person(bob)
	load := []string{"--", "simload", "--mem", "1GiB", "--for", "10m"}
	sub := func(p *person, flags ...string) engine.JobID {
		return p.submit(append(append([]string{"--profile", "demo"}, flags...), load...)...)
	}

	o.wants(5, "You may use medium, low", append([]string{"submit", "--class", "high"}, load...)...)
	o.wants(2, "the quota of "+bob+" is 1 GPU at once", append([]string{"submit", "--gpus", "2"}, load...)...)
	first := sub(o, "--group", vision)
	if d := o.untilState(first, engine.Running); d.Class != engine.Low { // the default of the rule
		t.Errorf("class %s, want the one that is granted", d.Class)
	}
	second := sub(o, "--class", "medium")
	o.until(second, "over quota", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.OverQuota })
	a.wants(0, bob, "users")
	o.wants(0, "max_gpus of user "+bob, "users", "--me")

	// Members of the group it was shared with read it, and nothing more.
	if d := a.show(first); d.Spec == nil || d.Group != vision {
		t.Errorf("a member of the group sees %+v", d)
	}
	a.wants(0, "", "logs", first.String())
	a.wants(5, bob, "cancel", first.String())
	if d := a.show(second); d.Spec != nil {
		t.Errorf("a job that was shared with nobody shows its command")
	}

	// A bad file changes nothing, and doctor says its line to an admin; a good one is in force at once.
	rules(t, conf, "users:\n- name: "+bob+"\n  max_gpu: 2\n")
	a.eventually("doctor names the line", func() (bool, string) {
		r := b.asRoot("doctor")
		return strings.Contains(r.out, `[3:3] unknown field "max_gpu"`), r.out
	})
	if d := o.show(second); !d.State.Queued() {
		t.Errorf("with a bad configuration the quota is gone: %s", d.State)
	}
	rules(t, conf, "users:\n- name: "+bob+"\n  max_gpus: 2\n")
	o.untilState(second, engine.Running)

	// Both cards are bob's. Alice's job of class high may have one of low, and only that.
	want := sub(a, "--class", "high")
	a.until(want, "waiting", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.WaitingForDevice })
	a.wants(5, "--for", "preempt", first.String())
	a.wants(5, "do not give way", "preempt", second.String(), "--for", want.String())
	a.wants(0, "is being preempted", "preempt", first.String(), "--for", want.String())
	a.untilState(want, engine.Running)
	if d := o.until(first, "back in the queue", func(d api.JobDetail) bool { return d.State.Queued() }); d.Preemptions != 1 || !strings.Contains(story(d), "preempted for job "+want.String()+" by "+alice) {
		t.Errorf("preempted %d times; its story:\n%s", d.Preemptions, story(d))
	}
	if r := b.asRoot("audit"); !strings.Contains(r.out, "class high is not granted") || !strings.Contains(r.out, "do not give way") {
		t.Errorf("the audit trail:\n%s", r.out)
	}
}

func story(d api.JobDetail) string {
	var s strings.Builder
	for _, e := range d.Events {
		s.WriteString(e.Kind + " " + e.Text + "\n")
	}
	return s.String()
}

// TestReserveAndDrain is an admin who takes cards out of the queue for people, and for nobody.
func TestReserveAndDrain(t *testing.T) {
	b := shared(t, oneCard)
	a, o := b.person(alice), b.person(bob)
	load := []string{"--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m"}
	a.wants(5, "for admins", "drain", "0")
	running := a.submit(load...)
	a.untilState(running, engine.Running)
	r := b.asRoot("reserve", "--gpus", "1", "--for", "1h", "--user", bob, "--reason", "a demo")
	if r.code != 0 || !strings.Contains(r.out, "1: GPU 0 reserved for "+bob) || !strings.Contains(r.err, "put back in the queue") {
		t.Fatalf("reserve: %d\n%s%s", r.code, r.out, r.err)
	}
	a.until(running, "waiting for the reservation", func(d api.JobDetail) bool {
		return d.State.Queued() && d.Reason != nil && d.Reason.Code == engine.BlockedByReservation
	})
	theirs := o.submit(load...)
	o.untilState(theirs, engine.Running)
	b.kill()
	b.start()
	a.wants(0, "reserved for "+bob+": a demo", "reserve")
	if r := b.asRoot("drain", "0", "--reason", "new fan"); r.code != 0 {
		t.Fatalf("drain: %s%s", r.out, r.err)
	}
	if r := b.asRoot("unreserve", "1"); r.code != 0 {
		t.Fatalf("unreserve: %s%s", r.out, r.err)
	}
	o.gputop("cancel", theirs.String())
	a.until(running, "waiting for the drain", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.DeviceDraining })
	if r := b.asRoot("undrain", "0"); r.code != 0 {
		t.Fatalf("undrain: %s%s", r.out, r.err)
	}
	a.untilState(running, engine.Running)
}
