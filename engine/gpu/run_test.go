package gpu

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
	"gputop/engine/sampler"
)

// samplerEnv makes the test binary a sampler process over the simulated cards in a directory.
const samplerEnv = "GPUTOP_TEST_SAMPLER_DIR"

func TestRunSampler(t *testing.T) {
	for name, c := range map[string]struct {
		o    SamplerOptions
		want string // of the samples' error
		n    int
	}{
		"simulated":          {SamplerOptions{Simulate: "t4:2"}, "", 2},
		"bad specification":  {SamplerOptions{Simulate: "t5"}, `simulated GPUs "t5": no model "t5"`, 0},
		"no such library":    {SamplerOptions{Library: "/none/libnvidia-ml.so.1"}, "NVML library: stat /none/libnvidia-ml.so.1: no such file", 0},
		"unusable directory": {SamplerOptions{Simulate: "t4", SimDir: "/proc/none"}, "simulated GPUs: prepare simulated GPUs: mkdir", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if c.o.SimDir == "" {
				c.o.SimDir = t.TempDir()
			}
			parent, parentEnd := io.Pipe()
			out, outEnd := io.Pipe()
			c.o.Interval, c.o.Out, c.o.Parent, c.o.Instance = time.Nanosecond, outEnd, parent, "x"
			done := make(chan error, 1)
			go func() { done <- RunSampler(t.Context(), c.o) }()
			lines := bufio.NewScanner(out)
			for seq := uint64(1); seq <= 2 && lines.Scan(); seq++ {
				var s engine.Sample
				if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
					t.Fatal(err)
				}
				if s.Seq != seq || len(s.GPUs) != c.n || !strings.HasPrefix(s.Error, c.want) || s.Simulated != (c.o.Simulate != "") {
					t.Errorf("sample %d: %d cards, error %q", s.Seq, len(s.GPUs), s.Error)
				}
			}
			if name == "simulated" {
				out.Close() // nobody reads any more
			} else {
				parentEnd.Close() // the parent has died
				go io.Copy(io.Discard, out)
			}
			if err := <-done; err != nil {
				t.Errorf("ended with %v", err)
			}
			parentEnd.Close()
		})
	}
}

// The whole way: a sampler process hangs in a call about one card, is replaced, and samples come again once the fault
// is gone.
func TestHungSamplerIsReplaced(t *testing.T) {
	dir := t.TempDir()
	samples := make(chan engine.Sample, 100)
	states := make(chan sampler.State, 100)
	s := sampler.New(sampler.Options{
		Command:       []string{"/proc/self/exe"},
		Env:           append(os.Environ(), samplerEnv+"="+dir),
		Deadline:      time.Second,
		StartDeadline: 2 * time.Second,
		Backoff:       10 * time.Millisecond,
		OnSample:      func(s engine.Sample) { samples <- s },
		OnState:       func(s sampler.State) { states <- s },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	if first := <-samples; len(first.GPUs) != 2 || !first.Simulated {
		t.Fatalf("first sample: %+v", first)
	}
	pid := s.State().PID
	if err := simgpu.SetFaults(dir, simgpu.Faults{Cards: map[int]simgpu.CardFaults{1: {Hang: true}}}); err != nil {
		t.Fatal(err)
	}
	for (<-states).Phase != sampler.Hung {
	}
	if err := simgpu.SetFaults(dir, simgpu.Faults{}); err != nil {
		t.Fatal(err)
	}
	for (<-states).Phase != sampler.Running {
	}
	if now := s.State(); now.PID == pid || now.Restarts < 1 || now.Message != "" {
		t.Errorf("after the hang: %+v, first PID %d", now, pid)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A parent that dies takes the sampler with it, also out of a call that hangs.
func TestHangingCallDoesNotOutliveTheParent(t *testing.T) {
	dir := t.TempDir()
	if err := simgpu.SetFaults(dir, simgpu.Faults{Cards: map[int]simgpu.CardFaults{0: {Hang: true}}}); err != nil {
		t.Fatal(err)
	}
	err := RunSampler(t.Context(), SamplerOptions{Simulate: "t4", SimDir: dir, Instance: "x", Out: io.Discard, Parent: strings.NewReader("")})
	if err == nil || err.Error() != "the NVIDIA library does not return from a call" {
		t.Errorf("got %v", err)
	}
	if err := simgpu.SetFaults(dir, simgpu.Faults{}); err != nil {
		t.Fatal(err)
	}
}
