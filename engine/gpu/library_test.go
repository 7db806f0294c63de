package gpu

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gputop/engine"
)

// libraryEnv makes the test binary a sampler process over the NVML library at a path.
const libraryEnv = "GPUTOP_TEST_NVML_LIBRARY"

// A real dlopen of a library that lacks the newer functions: a single call of one would end the sampler process.
func TestOldLibrary(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", path, "testdata/oldnvml.c").CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), libraryEnv+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var s engine.Sample
	for lines := bufio.NewScanner(out); s.Seq < 2 && lines.Scan(); {
		s = engine.Sample{}
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
	}
	in.Close() // the parent has gone
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the sampler: %v", err)
	}
	if s.Driver != "418.226.00" || s.CUDA != "10.1" || len(s.GPUs) != 1 || s.Simulated {
		t.Fatalf("sample: %+v", s)
	}
	g := s.GPUs[0]
	if got, want := show(g), "ok total=16GiB used=1GiB reserved=- sm=0.25/utilization temp=44 power=- procs=[512MiB -]"; got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if g.UUID != "GPU-00000000-0000-0000-0000-000000000001" || g.Model != "Old Card" || g.Minor != 3 || g.PCIBusID != "00000000:3B:00.0" {
		t.Errorf("identity: %+v", g)
	}
}
