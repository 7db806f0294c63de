package main

import (
	"bytes"
	"errors"
	"testing"

	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/doctor"
)

func TestFindingsAreLinedUpAndSayTheirLevel(t *testing.T) {
	f := []doctor.Finding{
		{Check: "daemon", Level: doctor.OK, Message: "answers"},
		{Check: "controllers", Level: doctor.Warning, Message: "not delegated\x1b[2J", Fix: "sudo x"},
		{Check: "cdi", Level: doctor.Problem, Message: "is out of date", Fix: "sudo y"},
	}
	want := "ok       daemon       answers\n" +
		"warning  controllers  not delegated\\x1b[2J\n" +
		"                      mend: sudo x\n" +
		"problem  cdi          is out of date\n" +
		"                      mend: sudo y\n"
	if got := findingsText(f, false); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	want = "\x1b[31;1mproblem\x1b[0m  cdi  is out of date\n              mend: sudo y\n"
	if got := findingsText(f[2:], true); got != want {
		t.Errorf("in colour %q, want %q", got, want)
	}
	for _, tc := range []struct {
		problems, warnings int
		want               string
	}{{0, 0, "Nothing is in the way of your jobs."}, {0, 1, "Jobs can run; 1 warning."}, {1, 2, "1 problem, 2 warnings."}} {
		if got := summary(tc.problems, tc.warnings); got != tc.want {
			t.Errorf("%d, %d: %q, want %q", tc.problems, tc.warnings, got, tc.want)
		}
	}
}

func TestDoctorsExitCode(t *testing.T) {
	v := doctor.View{User: "alice", UID: 1001, Client: "1", Newuidmap: true, Subuids: true, Subgids: true,
		Agent: doctor.Directory{Path: "/home/alice", Writable: true},
		Daemon: &api.Diagnosis{Version: "1", Mode: "shared", Simulated: true, Cards: []api.CardDiagnosis{{Health: "ok"}},
			Agent: api.AgentDiagnosis{Connected: true, Runtime: &agentrpc.RuntimeInfo{PodmanVersion: "5.4.2", OCIRuntime: "crun"}}}}
	var out bytes.Buffer
	c := &cli{out: &out, err: &out}
	if err := c.diagnosis(v, false); err != nil {
		t.Errorf("with warnings alone: %v\n%s", err, &out)
	}
	v.Subuids = false
	err := c.diagnosis(v, false)
	var ce *codeError
	if !errors.As(err, &ce) || ce.code != exitFailed || err.Error() != "" {
		t.Errorf("with a problem: %v", err)
	}
}
