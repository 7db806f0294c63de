package doctor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// machine is a small root directory, and programs that answer from a table.
func machine(t *testing.T, files map[string]string, answers map[string]string) Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if target, ok := strings.CutPrefix(text, "-> "); ok {
			if err := os.Symlink(target, p); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return Machine{Root: root, Ask: func(_ context.Context, program string, args ...string) (string, error) {
		if out, ok := answers[program+" "+strings.Join(args, " ")]; ok {
			return out, nil
		}
		return "", errors.New("no answer")
	}}
}

func TestDriverVersions(t *testing.T) {
	for _, tc := range []struct {
		proc, library string
		want          Driver
	}{
		{"", "", Driver{}},
		{"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: gcc 12.2.0\n", "-> libnvidia-ml.so.535.129.03", Driver{"535.129.03", "535.129.03"}},
		{"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.05  Release Build\n", "-> libnvidia-ml.so.570.1", Driver{"560.35.05", "570.1"}},
		{"", "a plain file", Driver{"", "?"}},
	} {
		files := map[string]string{"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.535.129.03": "", "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.1": ""}
		if tc.proc != "" {
			files["proc/driver/nvidia/version"] = tc.proc
		}
		if tc.library != "" {
			files["usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"] = tc.library
		}
		if got := machine(t, files, nil).driver(); got != tc.want {
			t.Errorf("%q: %+v, want %+v", tc.proc, got, tc.want)
		}
	}
}

func TestSpecsNamedAreNVIDIAs(t *testing.T) {
	m := machine(t, map[string]string{"etc/cdi/nvidia.yaml": "kind: nvidia.com/gpu\n", "etc/cdi/other.json": "{}", "etc/cdi/notes.txt": "nvidia.com/gpu",
		"var/run/cdi/gputop-lease-1.json": "nvidia.com/gpu"}, nil)
	if got := m.specs(); !slices.Equal(got, []SpecFile{{"/etc/cdi/nvidia.yaml", true}}) {
		t.Errorf("%+v", got)
	}
}

func TestSubordinateRanges(t *testing.T) {
	v := View{User: "alice", UID: 1001}
	m := machine(t, map[string]string{"etc/subuid": "bob:1:2\nalice:100000:0\n", "etc/subgid": "1001:100000:65536\n"}, map[string]string{"getsubids alice": "0: alice 5 6"})
	if m.subordinate(t.Context(), "/etc/subuid", v) || !m.subordinate(t.Context(), "/etc/subgid", v, "-g") {
		t.Error("an empty range counts, or one by number does not")
	}
	m = machine(t, map[string]string{"usr/bin/getsubids": ""}, map[string]string{"getsubids alice": "0: alice 5 6\n", "getsubids -g alice": ""})
	if !m.subordinate(t.Context(), "/etc/subuid", v) || m.subordinate(t.Context(), "/etc/subgid", v, "-g") {
		t.Error("the name service is not believed")
	}
}

func TestGroupsOfLoginAndAccount(t *testing.T) {
	m := machine(t, nil, map[string]string{"id -gn": "alice\n", "id -Gn": "alice vision\n", "id -Gn alice": "alice vision audio\n"})
	has, gained := m.groups(t.Context(), "alice")
	if !slices.Equal(has, []string{"vision"}) || !slices.Equal(gained, []string{"audio"}) {
		t.Errorf("has %v, gained %v", has, gained)
	}
}

func TestAskPodman(t *testing.T) {
	v := View{User: "alice", Systemd: true}
	AskPodman(t.Context(), machine(t, nil, nil), &v)
	if v.Runtime != nil || v.RuntimeError != "it is not installed" {
		t.Errorf("without podman: %+v, %q", v.Runtime, v.RuntimeError)
	}
	m := machine(t, map[string]string{"usr/bin/podman": "", "var/lib/systemd/linger/alice": ""}, map[string]string{"podman info --format json": `{"host":{"cgroupVersion":"v2",
		"cgroupControllers":["memory","pids"],"ociRuntime":{"name":"crun"}},"store":{"graphDriverName":"overlay"},"version":{"Version":"5.4.2"}}`})
	AskPodman(t.Context(), m, &v)
	rt := v.Runtime
	if rt == nil || rt.PodmanVersion != "5.4.2" || rt.OCIRuntime != "crun" || rt.CgroupVersion != 2 || rt.StorageDriver != "overlay" ||
		!slices.Equal(rt.Controllers, []string{"memory", "pids"}) || rt.Linger == nil || !*rt.Linger {
		t.Errorf("%+v", rt)
	}
}

func TestDirectoryThatIsNotThereYet(t *testing.T) {
	m := machine(t, map[string]string{"home/alice/file": ""}, nil)
	d := m.directory("/home/alice/.local/state/gputop")
	if !d.Writable || d.Network != "" || d.Free == nil || *d.Free <= 0 || d.Path != "/home/alice/.local/state/gputop" {
		t.Errorf("%+v", d)
	}
}
