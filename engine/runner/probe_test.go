package runner

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestDelegated(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "user.slice/user-1000.slice/user@1000.service")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.controllers"), []byte("cpu memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	got, ok := delegated(root, 1000)
	if want := []string{"cpu", "memory", "pids"}; !ok || !slices.Equal(got, want) {
		t.Errorf("delegated(1000) = %v, %v; want %v", got, ok, want)
	}
	if got, ok := delegated(root, 1001); ok || len(got) != 0 {
		t.Errorf("delegated(1001) = %v, %v; want none: that user has no manager", got, ok)
	}
}
