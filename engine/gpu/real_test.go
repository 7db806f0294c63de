package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
)

// A file that is no library is what the loader meets on a broken install; a missing one, on a machine without a driver.
func TestRealWithoutADriver(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(empty, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	lib, err := Real(empty)
	if err != nil {
		t.Fatal(err)
	}
	c := New(lib, Options{Library: empty})
	defer c.Close()
	for range 2 { // asked again, it says the same
		s := c.Sample(time.Now())
		if !strings.HasPrefix(s.Error, "the NVML library "+empty+" cannot be loaded (") ||
			!strings.HasSuffix(s.Error, "); give the path of a libnvidia-ml.so.1 for this machine") || len(s.GPUs) != 0 {
			t.Errorf("got %q", s.Error)
		}
	}
	// The same by name, as on a machine without a driver; the name is one that no machine has.
	c = New(nvml.New(nvml.WithLibraryPath("libnvidia-ml-of-no-machine.so.1")), Options{})
	const none = "no NVIDIA driver on this machine: libnvidia-ml.so.1 was not found; install the driver, " +
		"or try gputop with simulated GPUs: --simulate a100-40gb:2"
	if s := c.Sample(time.Now()); s.Error != none {
		t.Errorf("got %q", s.Error)
	}
	if _, err := Real(filepath.Join(t.TempDir(), "none.so")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a path that is not there: %v", err)
	}
	if _, err := Real(t.TempDir()); err == nil {
		t.Error("a directory was taken for a library")
	}
}

func TestInitSentences(t *testing.T) {
	dir := t.TempDir()
	cfg, err := simgpu.Parse("t4")
	if err != nil {
		t.Fatal(err)
	}
	lib, err := simgpu.New(dir, cfg, "x")
	if err != nil {
		t.Fatal(err)
	}
	c := New(lib, Options{})
	defer c.Close()
	for r, want := range map[nvml.Return]string{
		nvml.ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver on this machine: libnvidia-ml.so.1 was not found; install the driver, " +
			"or try gputop with simulated GPUs: --simulate a100-40gb:2",
		nvml.ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but its kernel module is not loaded; load it with modprobe nvidia, or reboot, " +
			"or try gputop with simulated GPUs: --simulate a100-40gb:2",
		nvml.ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was upgraded while the old one was loaded (driver/library version mismatch); reboot this machine",
		nvml.ERROR_UNKNOWN:                 "the NVIDIA driver does not start: ERROR_UNKNOWN; run nvidia-smi and dmesg to see what is wrong",
	} {
		if err := simgpu.SetFaults(dir, simgpu.Faults{InitResult: r}); err != nil {
			t.Fatal(err)
		}
		if s := c.Sample(time.Now()); s.Error != want || s.GPUs == nil {
			t.Errorf("%v:\n got %s\nwant %s", r, s.Error, want)
		}
	}
	if err := simgpu.SetFaults(dir, simgpu.Faults{}); err != nil {
		t.Fatal(err)
	}
	if s := c.Sample(time.Now()); s.Error != "" || len(s.GPUs) != 1 {
		t.Errorf("once the driver works: %q, %d cards", s.Error, len(s.GPUs))
	}
}

func TestLostCards(t *testing.T) {
	c := New(nil, Options{})
	a := engine.GPU{UUID: "GPU-a", Model: "A", PCIBusID: "1", Health: engine.HealthOK}
	b := engine.GPU{UUID: "GPU-b", Model: "B", PCIBusID: "2", Health: engine.HealthOK}
	nameless := engine.GPU{Health: engine.HealthLost, HealthDetail: lostDetail}
	names := func(gpus []engine.GPU) string {
		var out []string
		for _, g := range gpus {
			out = append(out, string(g.UUID)+" "+string(g.Health))
		}
		return strings.Join(out, ", ")
	}
	if got := names(c.withLost([]engine.GPU{a, nameless})); got != "GPU-a ok,  lost" {
		t.Errorf("never seen before: %s", got)
	}
	c.remember([]engine.GPU{a, b}, time.Now())
	if got := names(c.withLost([]engine.GPU{a, nameless})); got != "GPU-a ok, GPU-b lost" {
		t.Errorf("no name any more: %s", got)
	}
	if got := names(c.withLost([]engine.GPU{b})); got != "GPU-b ok, GPU-a lost" {
		t.Errorf("not counted any more: %s", got)
	}
}

func TestProcFiles(t *testing.T) {
	stat := "42 (a ) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 987654 20 21"
	if got := startTime([]byte(stat)); got != 987654 {
		t.Errorf("start time %d", got)
	}
	if got := startTime([]byte("nonsense")); got != 0 {
		t.Errorf("start time of nonsense %d", got)
	}
	if got := realUID([]byte("Name:\tUid:\nUid:\t1000\t0\t0\t0\n")); got != 1000 {
		t.Errorf("uid %d", got)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte("python\x00train\x1b[31m.py\xff\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := command(dir); got != "python train?[31m.py?" {
		t.Errorf("command %q", got)
	}
	if got := cudaVersion(12080); got != "12.8" {
		t.Errorf("CUDA %s", got)
	}
}
