package simdev_test

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

func TestMain(m *testing.M) { simdevtest.Main(m) }

const context = 300 * engine.MiB

func device(t *testing.T, capacity engine.Bytes) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "GPU-1")
	if err := simdev.Create(path, simdev.Header{UUID: "GPU-1", Model: "Test", Capacity: capacity, Context: context}); err != nil {
		t.Fatal(err)
	}
	return path
}

func holders(t *testing.T, path string) []simdev.Holder {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := simdev.Holders(f)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(h, func(a, b simdev.Holder) int { return cmp.Compare(a.PID, b.PID) })
	return h
}

func sorted(h ...simdev.Holder) []simdev.Holder {
	slices.SortFunc(h, func(a, b simdev.Holder) int { return cmp.Compare(a.PID, b.PID) })
	return h
}

func TestHoldersToTheByte(t *testing.T) {
	path := device(t, 100*engine.GiB)
	var want []simdev.Holder
	var processes []*simdevtest.Process
	for i := range 6 {
		p := simdevtest.Start(t, path)
		n := engine.Bytes(i)*engine.GiB + engine.Bytes(7*i+1)
		p.Hold(n)
		p.SM(float64(i) / 10)
		processes = append(processes, p)
		want = append(want, simdev.Holder{PID: p.PID(), Memory: context + n, SM: float64(i) / 10})
	}
	check := func(what string) {
		t.Helper()
		if got := holders(t, path); !slices.Equal(got, sorted(slices.Clone(want)...)) {
			t.Fatalf("%s:\n got %v\nwant %v", what, got, want)
		}
	}
	check("six processes")
	processes[5].Free(engine.GiB)
	processes[5].SM(0)
	want[5].Memory, want[5].SM = want[5].Memory-engine.GiB, 0
	check("after a free")
	processes[5].Free(engine.TiB)
	want[5].Memory = context
	check("freeing more than was taken leaves the context")
	processes[2].Kill()
	want = slices.Delete(want, 2, 3)
	check("a killed process holds nothing")
}

func TestOutOfMemory(t *testing.T) {
	path := device(t, 2*engine.GiB)
	a, b := simdevtest.Start(t, path), simdevtest.Start(t, path)
	a.Hold(engine.GiB)
	free := 2*engine.GiB - engine.GiB - 2*context
	got := b.Alloc(free + 1)
	want := "out of memory on SIMULATED Test: tried to allocate 424MiB; 2GiB in all, 424MiB free, 1 other processes on it"
	if got != want {
		t.Errorf("one byte too much:\n got %s\nwant %s", got, want)
	}
	if got := b.Alloc(free); got != "ok" {
		t.Errorf("exactly what is free: %s", got)
	}
	if got := a.Alloc(1); !strings.HasPrefix(got, "out of memory") {
		t.Errorf("on a full device: %s", got)
	}
	if _, err := simdev.Open(path); !errors.Is(err, simdev.ErrOutOfMemory) {
		t.Errorf("a context on a full device: %v", err)
	}
	if got := a.Alloc(5 * engine.TiB); !strings.HasPrefix(got, "out of memory") {
		t.Errorf("more than a slot: %s", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/dev/null", plain, dir} {
		if _, err := simdev.Open(path); !errors.Is(err, simdev.ErrNotSimulated) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	if _, err := simdev.Open(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

// A second handle's close would silently end what the first one holds.
func TestOpenOnce(t *testing.T) {
	path := device(t, engine.GiB)
	h, err := simdev.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	link := path + "-alias"
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := simdev.Open(link); err == nil {
		t.Error("a second handle was given")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if h.Alloc(1) == nil || h.SetSM(1) == nil || h.Free(1) == nil {
		t.Error("a closed handle works")
	}
	if h, err = simdev.Open(path); err != nil {
		t.Errorf("after a close: %v", err)
	}
	h.Close()
}

func TestCreateKeepsTheFile(t *testing.T) {
	path := device(t, engine.GiB)
	p := simdevtest.Start(t, path)
	h := simdev.Header{UUID: "GPU-1", Model: "Test", Capacity: engine.GiB, Context: context}
	if err := simdev.Create(path, h); err != nil {
		t.Fatal(err)
	}
	if got := holders(t, path); len(got) != 1 || got[0].PID != p.PID() {
		t.Errorf("holders after a second create: %v", got)
	}
	h.Capacity++
	if err := simdev.Create(path, h); err == nil {
		t.Error("another device's file was taken over")
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o666 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// Processes that allocate at the same moment must not pass the capacity check together.
func TestRaceForTheLastByte(t *testing.T) {
	const n, each = 8, engine.GiB
	path := device(t, n*context+each)
	var processes []*simdevtest.Process
	for range n {
		processes = append(processes, simdevtest.Start(t, path))
	}
	for range 100 {
		start := make(chan struct{})
		var wg sync.WaitGroup
		var granted atomic.Int64
		for _, p := range processes {
			wg.Go(func() {
				<-start
				if p.Alloc(each) == "ok" {
					granted.Add(1)
				}
			})
		}
		close(start)
		wg.Wait()
		if granted.Load() != 1 {
			t.Fatalf("%d processes were given the last GiB", granted.Load())
		}
		for _, p := range processes {
			p.Free(each)
		}
	}
}
