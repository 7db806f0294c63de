package engine

import (
	"math"
	"testing"
	"time"
)

func TestNextFinalStatesAreFinal(t *testing.T) {
	events := []JobEvent{EvPrepare, EvPrepared, EvGrant, EvStarted, EvStop, EvRequeue, EvSucceed, EvFail, EvCancel, EvTimeOut, EvLose}
	for _, s := range []JobState{Succeeded, Failed, Cancelled, TimedOut, Lost} {
		for _, e := range events {
			if to, err := Next(s, e); err == nil || to != s {
				t.Errorf("Next(%s, %s) = %s, %v; a final state must not move", s, e, to, err)
			}
		}
	}
	if to, err := Next(Pending, EvStarted); err == nil {
		t.Errorf("a pending job started without an allocation: %s", to)
	}
}

func TestJudge(t *testing.T) {
	now := time.Unix(1000, 0)
	service := Spec{Restart: RestartUnlessStopped, TimeLimit: time.Hour}
	for _, c := range []struct {
		name string
		job  Job
		end  Ending
		want JobEvent
		wait time.Duration
	}{
		{"exit 0", Job{}, Ending{Started: true}, EvSucceed, 0},
		{"exit 1", Job{}, Ending{Started: true, ExitCode: 1}, EvFail, 0},
		{"exit 1 with a retry", Job{Spec: Spec{Retries: 1}}, Ending{Started: true, ExitCode: 1}, EvRequeue, 2 * time.Second},
		{"exit 1, retries used up", Job{Spec: Spec{Retries: 1}, Failures: 1}, Ending{Started: true, ExitCode: 1}, EvFail, 0},
		{"cancelled, exit 0", Job{StopReason: StopCancelled}, Ending{Started: true}, EvCancel, 0},
		{"cancelled before start", Job{StopReason: StopCancelled}, Ending{Fault: "x"}, EvCancel, 0},
		{"preempted", Job{StopReason: StopPreempted}, Ending{Started: true, ExitCode: 143}, EvRequeue, 0},
		{"time limit", Job{StopReason: StopTimeLimit}, Ending{Started: true, ExitCode: 137}, EvTimeOut, 0},
		{"its card is lost", Job{StopReason: StopLostCard}, Ending{Started: true, ExitCode: 1}, EvLose, 0},
		{"its card is lost, with retries", Job{Spec: Spec{Retries: 1}, StopReason: StopLostCard}, Ending{Started: true}, EvRequeue, 2 * time.Second},
		{"its card is lost, a service", Job{Spec: service, StopReason: StopLostCard}, Ending{Started: true, ExitCode: 137}, EvRequeue, 2 * time.Second},
		{"beyond its share, with retries", Job{Spec: Spec{Retries: 3}, StopReason: StopMemory}, Ending{Started: true, ExitCode: 143}, EvFail, 0},
		{"fault before start", Job{}, Ending{Fault: "podman"}, EvRequeue, 2 * time.Second},
		{"third fault before start", Job{Faults: 2}, Ending{Fault: "podman"}, EvRequeue, 8 * time.Second},
		{"fourth fault before start", Job{Faults: 3}, Ending{Fault: "podman"}, EvFail, 0},
		{"power cut while running", Job{}, Ending{Started: true, Fault: "reboot"}, EvLose, 0},
		{"power cut, retries allowed", Job{Spec: Spec{Retries: 2}}, Ending{Started: true, Fault: "reboot"}, EvRequeue, 2 * time.Second},
		{"power cut, with checkpoints", Job{Spec: Spec{Checkpoint: true}, Faults: 2}, Ending{Started: true, Fault: "reboot"}, EvRequeue, 8 * time.Second},
		{"fourth power cut, with checkpoints", Job{Spec: Spec{Checkpoint: true}, Faults: 3}, Ending{Started: true, Fault: "reboot"}, EvLose, 0},
		{"exit 1, with checkpoints", Job{Spec: Spec{Checkpoint: true}}, Ending{Started: true, ExitCode: 1}, EvFail, 0},
		{"service, exit 0", Job{Spec: service, Started: now.Add(-time.Hour)}, Ending{Started: true}, EvRequeue, 2 * time.Second},
		{"service, killed", Job{Spec: service, Started: now.Add(-time.Hour)}, Ending{Started: true, ExitCode: 137}, EvRequeue, 2 * time.Second},
		{"service, power cut", Job{Spec: service, Started: now.Add(-time.Second)}, Ending{Started: true, Fault: "reboot"}, EvRequeue, 2 * time.Second},
		{"service, time limit", Job{Spec: service, StopReason: StopTimeLimit}, Ending{Started: true, ExitCode: 143}, EvRequeue, 0},
		{"service, cancelled", Job{Spec: service, StopReason: StopCancelled}, Ending{Started: true, ExitCode: 143}, EvCancel, 0},
		{"service, third short run", Job{Spec: service, Started: now.Add(-time.Second), ShortRuns: 2}, Ending{Started: true, ExitCode: 1}, EvRequeue, 8 * time.Second},
		{"service, eighth short run", Job{Spec: service, Started: now.Add(-time.Second), ShortRuns: 7}, Ending{Started: true, ExitCode: 1}, EvFail, 0},
		{"service, fault before start", Job{Spec: service, Faults: 3}, Ending{Fault: "podman"}, EvFail, 0},
		{"terminal, preempted", Job{Spec: Spec{Tty: true}, StopReason: StopPreempted}, Ending{Started: true, ExitCode: 143}, EvCancel, 0},
		{"can never run", Job{Spec: Spec{Retries: 5}}, Ending{Invalid: "no such directory"}, EvFail, 0},
	} {
		v := Judge(c.job, c.end, now)
		var wait time.Duration
		if !v.NotBefore.IsZero() {
			wait = v.NotBefore.Sub(now)
		}
		if v.Event != c.want || wait != c.wait {
			t.Errorf("%s: got %s after %s, want %s after %s", c.name, v.Event, wait, c.want, c.wait)
		}
	}
}

func TestParseBytes(t *testing.T) {
	for in, want := range map[string]Bytes{"12GiB": 12 * GiB, "512M": 512 * MiB, "1.5g": GiB + 512*MiB, "40GB": 40e9, "7": 7, " 2 TiB ": 2 * TiB} {
		if got, err := ParseBytes(in); err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "-1G", "GiB", "1.2.3G", "5 lightyears", "99999999999T", "NaN", "1e400"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("ParseBytes(%q) = %d, want an error", in, got)
		}
	}
	if s := (1536 * MiB).String(); s != "1.5GiB" {
		t.Errorf("String = %q", s)
	}
}

func TestParseFraction(t *testing.T) {
	for in, want := range map[string]Fraction{"0.25": 0.25, "25%": 0.25, "1": 1} {
		if got, err := ParseFraction(in); err != nil || got != want {
			t.Errorf("ParseFraction(%q) = %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"0", "-0.5", "1.01", "101%", "NaN", "Inf", "half", ""} {
		if got, err := ParseFraction(in); err == nil {
			t.Errorf("ParseFraction(%q) = %v, want an error", in, got)
		}
	}
	if Fraction(math.NaN()).Validate() == nil {
		t.Error("NaN is a valid fraction")
	}
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{"90m": 90 * time.Minute, "1d12h": 36 * time.Hour, "2d": 48 * time.Hour,
		"02:30:00": 150 * time.Minute, "10:00": 10 * time.Minute, "1-12:00:00": 36 * time.Hour} {
		if got, err := ParseDuration(in); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "soon", "1:2:3:4", "d", "x-1:00", "NaNd", "9999999d"} {
		if got, err := ParseDuration(in); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", in, got)
		}
	}
}
