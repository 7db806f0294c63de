package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

func TestMain(m *testing.M) { simdevtest.Main(m) }

// trial is one run of simload on a device of 10 GiB.
type trial struct {
	env  map[string]string
	path string
	out  bytes.Buffer
	errs bytes.Buffer
}

func newTrial(t *testing.T) *trial {
	t.Helper()
	dir := t.TempDir()
	tr := &trial{path: filepath.Join(dir, "GPU-1")}
	h := simdev.Header{UUID: "GPU-1", Model: "Test", Capacity: 10 * engine.GiB, Context: 100 * engine.MiB}
	if err := simdev.Create(tr.path, h); err != nil {
		t.Fatal(err)
	}
	tr.env = map[string]string{"GPUTOP_SIM_DEVICES": tr.path, "GPUTOP_CHECKPOINT_DIR": dir}
	return tr
}

// run runs until ticks are used up; then it is told to stop.
func (tr *trial) run(ticks int, args ...string) int {
	tr.out.Reset()
	tr.errs.Reset()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	tick := make(chan time.Time)
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, args, func(k string) string { return tr.env[k] }, &tr.out, &tr.errs, tick)
	}()
	for range ticks {
		select {
		case tick <- time.Time{}:
		case code := <-done:
			return code
		}
	}
	cancel()
	return <-done
}

func TestRunsToTheEnd(t *testing.T) {
	tr := newTrial(t)
	if code := tr.run(9, "--steps", "3", "--exit", "7", "--mem", "1GiB"); code != 7 {
		t.Errorf("code %d: %s", code, &tr.errs)
	}
	want := "SIMULATED Test GPU-1\nstep 1/3 loss 2.4432\nstep 2/3 loss 2.3878\nstep 3/3 loss 2.3338\ndone after 3 steps\n"
	if tr.out.String() != want {
		t.Errorf("got:\n%s", &tr.out)
	}
}

func TestStopsAndResumes(t *testing.T) {
	tr := newTrial(t)
	if code := tr.run(2, "--for", "5s"); code != 143 || !strings.HasSuffix(tr.out.String(), "checkpoint saved at step 2\n") {
		t.Errorf("code %d:\n%s%s", code, &tr.out, &tr.errs)
	}
	if code := tr.run(9, "--for", "5s", "--checkpoint-interval", "2s"); code != 0 ||
		!strings.HasPrefix(tr.out.String(), "resumed from step 2\n") || !strings.Contains(tr.out.String(), "\ncheckpoint saved at step 4\nstep 5/5") {
		t.Errorf("code %d:\n%s%s", code, &tr.out, &tr.errs)
	}
	tr.env["GPUTOP_CHECKPOINT_DIR"] = ""
	if code := tr.run(1, "--for", "5s"); code != 143 || strings.Contains(tr.out.String(), "saved") {
		t.Errorf("without a directory: code %d:\n%s", code, &tr.out)
	}
}

func TestMemory(t *testing.T) {
	tr := newTrial(t)
	other := simdevtest.Start(t, tr.path)
	other.Hold(5 * engine.GiB)
	tr.env["GPUTOP_GPU_MEMORY_BYTES"] = fmt.Sprint(int64(5 * engine.GiB))
	if code := tr.run(1, "--steps", "1"); code != 0 {
		t.Errorf("within its share: code %d: %s", code, &tr.errs)
	}
	want := "simload: out of memory on SIMULATED Test: tried to allocate 6GiB; 10GiB in all, 4.8GiB free, 1 other processes on it\n"
	if code := tr.run(1, "--mem", "6GiB"); code != 1 || tr.errs.String() != want {
		t.Errorf("too much: code %d: %s", code, &tr.errs)
	}
	if code := tr.run(20, "--mem", "6GiB", "--ramp"); code != 1 || strings.Count(tr.out.String(), "step ") != 8 {
		t.Errorf("too much, bit by bit: code %d:\n%s%s", code, &tr.out, &tr.errs)
	}
}

func TestBadUse(t *testing.T) {
	tr := newTrial(t)
	for want, args := range map[string][]string{
		"flag provided but not defined": {"--memory", "1"},
		`unknown unit "X"`:              {"--mem", "1X"},
		"must be from 0 to 100":         {"--sm", "101"},
		`unexpected argument "x"`:       {"x"},
		"must not be negative":          {"--exit", "256"},
	} {
		if code := tr.run(0, args...); code != 2 || !strings.Contains(tr.errs.String(), want) {
			t.Errorf("%q: code %d: %s", args, code, &tr.errs)
		}
	}
	tr.env["GPUTOP_SIM_DEVICES"] = "/dev/null"
	if code := tr.run(0); code != 1 || !strings.Contains(tr.errs.String(), "/dev/null: not a simulated GPU") {
		t.Errorf("a real device: code %d: %s", code, &tr.errs)
	}
}

func TestDevices(t *testing.T) {
	dir := t.TempDir()
	none := func(string) string { return "" }
	if _, err := devices(none, dir+"/nvidia*"); err == nil || !strings.HasPrefix(err.Error(), "no simulated GPU here: no "+dir) {
		t.Errorf("none: %v", err)
	}
	for _, n := range []string{"nvidia1", "nvidia0", "other"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "nvidia-caps"), 0o700); err != nil {
		t.Fatal(err)
	}
	got, err := devices(none, dir+"/nvidia*")
	if err != nil || !slices.Equal(got, []string{dir + "/nvidia0", dir + "/nvidia1"}) {
		t.Errorf("got %q, %v", got, err)
	}
}
