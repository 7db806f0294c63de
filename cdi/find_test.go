package cdi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/charmbracelet/x/exp/golden"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
)

// nvidia is a spec in the form nvidia-ctk writes.
const nvidia = `---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  deviceNodes: [{path: /dev/null}]
  hooks:
  - {hookName: createContainer, path: /bin/sh, args: [sh, -c, "true"]}
  mounts:
  - {hostPath: /etc/passwd, containerPath: /usr/lib/libcuda.so.1, options: [ro, nosuid, nodev, bind]}
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/zero}]}
- name: GPU-1
  containerEdits: {deviceNodes: [{path: /dev/full}, {path: /dev/null, hostPath: /dev/null}]}
`

// files puts spec files into new directories; a name is "DIRECTORY/FILE", directories numbered from 0.
func files(t *testing.T, content map[string]string) Finder {
	t.Helper()
	f := Finder{Dirs: []string{specDir(t), specDir(t)}}
	for name, text := range content {
		path := filepath.Join(f.Dirs[name[0]-'0'], name[2:])
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func simple(kind, version, device, node string) string {
	return fmt.Sprintf("{cdiVersion: %q, kind: %q, devices: [{name: %q, containerEdits: {deviceNodes: [{path: %q}]}}]}", version, kind, device, node)
}

func TestResolve(t *testing.T) {
	f := files(t, map[string]string{"0/nvidia.yaml": nvidia})
	write(t, f.Dirs[1], Lease{Name: "i-1-1", OwnerUID: uint32(os.Geteuid()), Edits: Edits{
		Env:    []string{"NVIDIA_VISIBLE_DEVICES=mine", "GPUTOP_JOB_ID=1"},
		Mounts: []Mount{{HostPath: "/etc/group", ContainerPath: "/usr/lib/libcuda.so.1"}},
	}})
	got, err := f.Resolve("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1", "gputop/lease=i-1-1")
	if err != nil {
		t.Fatal(err)
	}
	want := Edits{
		Env:         []string{"NVIDIA_VISIBLE_DEVICES=mine", "GPUTOP_JOB_ID=1"},
		Mounts:      []Mount{{HostPath: "/etc/group", ContainerPath: "/usr/lib/libcuda.so.1"}},
		DeviceNodes: []string{"/dev/null", "/dev/zero", "/dev/full"},
		Hooks:       1, // what the file says for every device counts once
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("edits\n%+v, want\n%+v", got, want)
	}
	if p := f.Check(uint32(os.Geteuid()), "nvidia.com/gpu=0"); len(p) != 0 {
		t.Errorf("Check: %v", p)
	}
}

func TestProblems(t *testing.T) {
	const gpu0 = "nvidia.com/gpu=0"
	generate := "sudo nvidia-ctk cdi generate --output="
	for name, c := range map[string]struct {
		files     map[string]string
		max       string
		ask       string
		code      string
		file      string // its base name
		says, fix string
	}{
		"nothing there":       {ask: gpu0, code: CodeNoSpec, says: "no CDI spec in", fix: generate + "/etc/cdi/nvidia.yaml"},
		"no lease":            {ask: "gputop/lease=a", code: CodeUnresolvable, says: "no CDI spec", fix: "requeue the job"},
		"not qualified":       {ask: "0", code: CodeInvalid, says: "no qualified CDI name"},
		"name with a newline": {ask: "nvidia.com/gpu=0\n1", code: CodeInvalid, says: "no qualified CDI name"},
		"one-letter name":     {ask: "n/gpu=0", code: CodeBadVendor, says: "one letter"},
		"another device": {files: map[string]string{"0/nvidia.yaml": nvidia}, ask: "nvidia.com/gpu=7",
			code: CodeUnresolvable, file: "nvidia.yaml", says: "only 0, GPU-1", fix: generate},
		"two files": {files: map[string]string{"0/a.yaml": nvidia, "0/b.json": nvidia}, ask: gpu0,
			code: CodeConflict, file: "b.json", says: "a.yaml", fix: "remove one of the two"},
		"two files, and a third that does not help": {files: map[string]string{"0/a.yaml": nvidia, "0/b.yaml": nvidia, "1/c.yaml": nvidia}, ask: gpu0,
			code: CodeConflict, file: "b.yaml"},
		"node gone": {files: map[string]string{"1/n.yaml": simple(GPUKind, "0.5.0", "0", "/dev/nvidia-none")}, ask: gpu0,
			code: CodeStale, file: "n.yaml", says: "device node /dev/nvidia-none", fix: generate},
		"node is a file": {files: map[string]string{"0/n.yaml": simple(GPUKind, "0.5.0", "0", "/etc/passwd")}, ask: gpu0,
			code: CodeStale, says: "/etc/passwd (is there, but is no device)"},
		"mount gone": {files: map[string]string{"0/n.yaml": strings.ReplaceAll(nvidia, "/etc/passwd", "/usr/lib/libcuda.so.1.2.3")}, ask: gpu0,
			code: CodeStale, says: "mount source /usr/lib/libcuda.so.1.2.3"},
		"hook gone": {files: map[string]string{"0/n.yaml": strings.ReplaceAll(nvidia, "/bin/sh", "/usr/bin/nvidia-none")}, ask: gpu0,
			code: CodeStale, says: "hook /usr/bin/nvidia-none"},
		"node under another name": {files: map[string]string{"0/n.yaml": strings.ReplaceAll(nvidia, "{path: /dev/zero}", "{path: /dev/zero, hostPath: /dev/null}")},
			ask: gpu0, code: CodeInvalid, says: "needs the two alike"},
		"too new": {files: map[string]string{"0/nvidia.yaml": simple(GPUKind, "0.7.0", "0", "/dev/null")}, max: "0.5.0", ask: gpu0,
			code: CodeTooNew, file: "nvidia.yaml", says: "is of CDI version 0.7.0; this Podman reads up to 0.5.0", fix: "no-additional-gids-for-device-nodes"},
		"newer than anybody knows": {files: map[string]string{"0/nvidia.yaml": strings.Replace(simple(GPUKind, "1.10.0", "0", "/dev/null"), "{", "{netDevices: [], ", 1)}, ask: gpu0,
			code: CodeTooNew, says: "version 1.10.0"},
		"no version": {files: map[string]string{"0/nvidia.yaml": simple(GPUKind, "new", "0", "/dev/null")}, ask: gpu0, code: CodeInvalid, says: "version"},
		"unknown key": {files: map[string]string{"0/nvidia.yaml": nvidia + "extra: 1\n"}, ask: gpu0,
			code: CodeInvalid, file: "nvidia.yaml", says: `unknown field "extra"`},
		"garbage": {files: map[string]string{"0/nvidia.yaml": "\x00{"}, ask: gpu0, code: CodeInvalid, file: "nvidia.yaml"},
		"empty":   {files: map[string]string{"0/nvidia.yaml": ""}, ask: gpu0, code: CodeInvalid, says: "is empty"},
		"huge":    {files: map[string]string{"0/nvidia.yaml": strings.Repeat("#", maxSpecSize+1)}, ask: gpu0, code: CodeUnreadable, says: "larger than 8 MiB"},
		"one-letter vendor in a stranger's file": {files: map[string]string{"0/nvidia.yaml": nvidia, "1/x.yaml": simple("x/gpu", "0.5.0", "0", "/dev/null")}, ask: gpu0,
			code: CodeBadVendor, file: "x.yaml", says: `kind "x/gpu"`, fix: "remove"},
		"one-letter class": {files: map[string]string{"0/x.yaml": simple("example.com/g", "0.5.0", "0", "/dev/null")}, ask: gpu0, code: CodeBadVendor, file: "x.yaml"},
		"another crash": {files: map[string]string{"0/nvidia.yaml": nvidia, "0/x.yaml": "{cdiVersion: 0.5.0, kind: a.b/cc, devices: [{name: a, containerEdits: {deviceNodes: [null]}}]}"}, ask: gpu0,
			code: CodeInvalid, file: "x.yaml", says: "crashes Podman's CDI reader"},
	} {
		t.Run(name, func(t *testing.T) {
			f := files(t, c.files)
			f.MaxVersion = c.max
			_, err := f.Resolve(c.ask)
			var p *Problem
			if !errors.As(err, &p) {
				t.Fatalf("error %v, want a *Problem", err)
			}
			if p.Code != c.code || c.file != "" && filepath.Base(p.File) != c.file || !strings.Contains(p.Message, c.says) || !strings.Contains(p.Fix, c.fix) {
				t.Errorf("got %+v, want code %q, file %q, message with %q, fix with %q", *p, c.code, c.file, c.says, c.fix)
			}
			if p.Fix == "" || strings.ContainsAny(p.Error(), "\n\x1b\x00") {
				t.Errorf("not fit for a person: %q", p.Error())
			}
			if all := f.Check(0, c.ask); len(all) == 0 || all[0] != *p {
				t.Errorf("Check says %v", all)
			}
		})
	}
}

// Files that harm nobody but themselves.
func TestStrangersDoNoHarm(t *testing.T) {
	f := files(t, map[string]string{
		"0/nvidia.yaml": nvidia, "0/broken.yaml": "{", "0/new.yaml": simple("other.org/gpu", "9.0.0", "0", "/dev/null"), "0/notes.txt": "hello",
		"1/same.yaml": simple("other.org/gpu", "0.5.0", "0", "/dev/gone"),
	})
	if err := os.Mkdir(filepath.Join(f.Dirs[0], "sub.yaml"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(f.Dirs[0], "pipe.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(f.Dirs[0], "dangling.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Resolve("nvidia.com/gpu=0"); err != nil {
		t.Error(err)
	}
}

func TestLaterDirectoryWins(t *testing.T) {
	f := files(t, map[string]string{"0/n.yaml": simple(GPUKind, "0.5.0", "0", "/dev/null"), "1/n.yaml": simple(GPUKind, "0.5.0", "0", "/dev/zero")})
	got, err := f.Resolve("nvidia.com/gpu=0")
	if err != nil || !reflect.DeepEqual(got.DeviceNodes, []string{"/dev/zero"}) {
		t.Errorf("edits %+v, error %v", got, err)
	}
}

func TestCheckReadable(t *testing.T) {
	nobody := func(uint32) ([]uint32, error) { return nil, nil }
	f := files(t, map[string]string{"0/nvidia.yaml": nvidia})
	f.Groups = nobody
	file := filepath.Join(f.Dirs[0], "nvidia.yaml")
	check := func(wantAt string) {
		t.Helper()
		problems := f.Check(someone, "nvidia.com/gpu=0", "nvidia.com/gpu=GPU-1")
		if wantAt == "" {
			if len(problems) != 0 {
				t.Errorf("got %v, want none", problems)
			}
			return
		}
		message := wantAt
		if wantAt == file {
			message = "its mode and ACL"
		}
		if len(problems) != 1 || problems[0].Code != CodeUnreadable || problems[0].File != file || !strings.Contains(problems[0].Message, "("+message+" in the way)") ||
			!strings.HasSuffix(problems[0].Fix, wantAt) {
			t.Errorf("got %v, want one that says that %s stops the user", problems, wantAt)
		}
	}
	chmod := func(path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	check("")
	chmod(file, 0o640)
	check(file)
	f.Groups = func(uint32) ([]uint32, error) { return []uint32{uint32(os.Getegid())}, nil }
	check("")
	f.Groups = nobody
	chmod(file, 0o644)
	chmod(f.Dirs[0], 0o711) // the file could be opened, but not found
	check(f.Dirs[0])
	chmod(f.Dirs[0], 0o755)
	chmod(filepath.Dir(f.Dirs[0]), 0o700)
	check(filepath.Dir(f.Dirs[0]))
}

// The library that Podman uses finds a name exactly where we do.
func TestResolvesAsTheLibraryDoes(t *testing.T) {
	base := specDir(t)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		dirs := []string{filepath.Join(base, fmt.Sprint(round, "a")), filepath.Join(base, fmt.Sprint(round, "b"))}
		for _, dir := range dirs {
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			for i := range rapid.IntRange(0, 3).Draw(t, "files") {
				text := simple(rapid.SampledFrom([]string{"aa.x/gpu", "bb.x/gpu"}).Draw(t, "kind"), rapid.SampledFrom([]string{"0.5.0", "0.7.0", "7.0.0"}).Draw(t, "version"),
					rapid.SampledFrom([]string{"0", "1", "!"}).Draw(t, "device"), rapid.SampledFrom([]string{"/dev/null", "/dev/zero"}).Draw(t, "node"))
				if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".yaml")), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
		cache, err := library.NewCache(library.WithAutoRefresh(false), library.WithSpecDirs(dirs...))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"aa.x/gpu=0", "aa.x/gpu=1", "bb.x/gpu=0"} {
			got, err := Finder{Dirs: dirs}.Resolve(name)
			dev := cache.GetDevice(name)
			if (err == nil) != (dev != nil) {
				t.Fatalf("%s: we say %v, the library %v", name, err, dev)
			}
			if dev != nil && !reflect.DeepEqual(got.DeviceNodes, []string{dev.ContainerEdits.DeviceNodes[0].Path}) {
				t.Fatalf("%s: we say %+v, the library %+v", name, got, dev.ContainerEdits.DeviceNodes[0])
			}
		}
	})
}

func TestSimulated(t *testing.T) {
	dir := specDir(t)
	host := filepath.Join(dir, "card0")
	if err := os.WriteFile(host, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	a := SimulatedDevice{Name: "GPU-sim-0", HostPath: host, ContainerPath: "/dev/nvidia0", Env: []string{"X=1"}}
	b := SimulatedDevice{Name: "GPU-sim-1", HostPath: host, ContainerPath: "/dev/nvidia1"}
	path, err := WriteSimulated(dir, "inst", []SimulatedDevice{a, b})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.RequireEqual(t, strings.ReplaceAll(string(data), dir, "DIR"))
	if st, _ := os.Stat(path); st.Mode() != 0o644 || filepath.Base(path) != "gputop-simulated-inst.json" {
		t.Errorf("%s has mode %v", path, st.Mode())
	}

	f := Finder{Dirs: []string{dir}}
	one, err := f.Resolve("gputop.sim/gpu=GPU-sim-0")
	if want := SimulatedEdits(a); err != nil || !reflect.DeepEqual(one, want) {
		t.Errorf("edits %+v, %v; want %+v", one, err, want)
	}
	// Over two devices only the lease can name both.
	lease := write(t, dir, Lease{Name: "i-1-1", OwnerUID: uint32(os.Geteuid()), Edits: Edits{Env: []string{SimulatedVariable(a, b)}}})
	both, err := f.Resolve("gputop.sim/gpu=GPU-sim-0", "gputop.sim/gpu=GPU-sim-1", lease)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"X=1", "GPUTOP_SIM_DEVICES=/dev/nvidia0:/dev/nvidia1", "GPUTOP_SIMULATED=1"}
	if !reflect.DeepEqual(both.Env, want) || !reflect.DeepEqual(SimulatedEdits(a, b).Env, want) {
		t.Errorf("environment %q and %q, want %q", both.Env, SimulatedEdits(a, b).Env, want)
	}
	if _, err := WriteSimulated(dir, "inst", nil); err == nil {
		t.Error("a spec of no devices was written")
	}
}
