package host

import (
	"os"
	"path/filepath"
	"testing"

	"gputop/engine"
)

func TestGroupMemory(t *testing.T) {
	root := t.TempDir()
	group := func(name, current, stat string) {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{"memory.current": current, "memory.stat": stat} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	group("user.slice/libpod-a.scope/container", "5000000\n", "anon 1\ninactive_file 2000000\nactive_file 7\n")
	group("user.slice/b", "100\n", "inactive_file 200\n") // read one after the other, they need not fit
	group("user.slice/c", "max\n", "inactive_file 0\n")
	group("user.slice/d", "100\n", "anon 1\n")
	for _, c := range []struct {
		lines string
		want  engine.Bytes
		ok    bool
	}{
		{"0::/user.slice/libpod-a.scope/container\n", 3000000, true},
		{"12:cpu:/x\n0::/user.slice/b\n", 0, true},
		{"0::/user.slice/c\n", 0, false},
		{"0::/user.slice/d\n", 0, false},
		{"0::/user.slice/none\n", 0, false},
		{"0::/../user.slice/b\n", 0, false},
		{"0::/user.slice/../user.slice/b\n", 0, false},
		{"0::/\n", 0, false},
		{"4:memory:/user.slice/b\n", 0, false}, // version 1
		{"", 0, false},
	} {
		if got, ok := groupMemory(root, c.lines); got != c.want || ok != c.ok {
			t.Errorf("%q: %d, %v; want %d, %v", c.lines, got, ok, c.want, c.ok)
		}
	}
	if _, ok := ContainerMemory(-1); ok {
		t.Error("memory of no process")
	}
}
