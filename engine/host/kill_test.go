package host

import (
	"os/exec"
	"testing"
)

func TestKillHitsOnlyTheProcessMeant(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	p, ok := ReadProcess(pid)
	if !ok {
		t.Fatal("the process cannot be read")
	}
	if err := Kill(pid, p.Start+1); err != nil {
		t.Errorf("another start: %v", err)
	}
	if _, ok := ReadProcess(pid); !ok {
		t.Fatal("a process with another start was killed")
	}
	if err := Kill(pid, p.Start); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.String(); got != "signal: killed" {
		t.Errorf("ended by %s", got)
	}
	if err := Kill(pid, p.Start); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}
