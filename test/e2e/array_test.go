//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// TestArrayAndWhatFollows is a sweep, a job that sums it up, and what happens to who waits for a sweep that fails.
func TestArrayAndWhatFollows(t *testing.T) {
	b := shared(t, "l40s,rtx4090")
	a, o := b.person(alice), b.person(bob)
	gaming := a.submit("--profile", "demo", "--gpu-model", "rtx4090", "--", "simload", "--for", "2s")
	if d := a.untilState(gaming, engine.Succeeded); !strings.Contains(a.logs(gaming), "NVIDIA GeForce RTX 4090") {
		t.Errorf("it ran on %+v: %s", d.Attempts, a.logs(gaming))
	}
	a.wants(2, "this box has: NVIDIA GeForce RTX 4090, NVIDIA L40S", "submit", "--profile", "demo", "--gpu-model", "a100", "--", "true")
	dir := a.dir("sweep")
	defer os.RemoveAll(dir)
	out := a.gputop("submit", "--profile", "demo", "--gpus", "0", "--workdir", dir, "--array", "3-7:2%1", "--output", "out-%i.log", "--",
		"sh", "-c", "echo $GPUTOP_ARRAY_INDEX of $GPUTOP_ARRAY_COUNT")
	var first, last engine.JobID
	if _, err := fmt.Sscanf(out, "Jobs %d-%d queued.", &first, &last); err != nil || last != first+2 {
		t.Fatalf("%s: %v", out, err)
	}
	sum := a.submit("--profile", "demo", "--gpus", "0", "--workdir", dir, "--after", fmt.Sprintf("%s-%s", first, last), "--", "sh", "-c", "cat out-*.log")
	if d := a.untilState(sum, engine.Succeeded); d.Element != nil {
		t.Errorf("a job of its own is in an array: %+v", d.Element)
	}
	if got := a.logs(sum); got != "3 of 3\n5 of 3\n7 of 3\n" {
		t.Errorf("summed up: %q", got)
	}
	for id := first; id < last; id++ {
		if x, y := a.show(id), a.show(id+1); y.Attempts[0].Granted.Before(x.Ended) {
			t.Errorf("job %s began before job %s had ended", y.ID, x.ID)
		}
	}

	sweep := a.gputop("submit", "--profile", "demo", "--gpus", "0", "--array", "1-40%2", "--", "sleep", "600")
	if _, err := fmt.Sscanf(sweep, "Jobs %d-%d queued.", &first, &last); err != nil {
		t.Fatal(err)
	}
	a.untilState(first, engine.Running)
	follow := o.submit("--profile", "demo", "--gpus", "0", "--after", "any:"+last.String(), "--", "true")
	never := o.submit("--profile", "demo", "--gpus", "0", "--after", last.String(), "--", "true")
	o.until(never, "waiting for it", func(d api.JobDetail) bool { return d.Reason != nil && d.Reason.Code == engine.DependencyPending })
	o.wants(5, "", "cancel", fmt.Sprintf("%s-%s", first, last))
	a.gputop("cancel", fmt.Sprintf("%s-%s", first, last))
	o.untilState(follow, engine.Succeeded)
	if d := o.untilState(never, engine.Cancelled); !strings.Contains(d.Message, "has ended: cancelled") {
		t.Errorf("cancelled: %s", d.Message)
	}
	a.wants(2, "at most 10000 elements", "submit", "--array", "0-999999", "--", "true")
	a.wants(2, "there is no job 4711", "submit", "--profile", "demo", "--after", "4711", "--", "true")
	if _, err := os.Stat(filepath.Join(dir, "out-5.log")); err != nil {
		t.Error(err)
	}
}
