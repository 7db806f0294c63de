package draft

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"gputop/engine"
)

// here is a caller in a fresh directory with a file data/x and a link to /dev.
func here(t *testing.T) Caller {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "data"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "data", "x"), "")
	write(t, filepath.Join(dir, "job.env"), "# comment\n\nA=1\nTOKEN\nB=x=y\n")
	write(t, filepath.Join(dir, "bad.env"), "A=1\nB C=2\n")
	if err := os.Symlink("/dev", filepath.Join(dir, "devices")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(dir, "everything")); err != nil {
		t.Fatal(err)
	}
	return Caller{Workdir: dir, Home: dir, Environ: []string{"PATH=/usr/bin", "TOKEN=s3cret", "CONDA_TOKEN=no", "AWS_SECRET_ACCESS_KEY=no"}}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestBuildDefaults(t *testing.T) {
	c := here(t)
	got, err := Build(Fields{Command: []string{"python", "train.py", "--lr", "3"}}, Defaults{}, c)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Spec{Name: "train.py", Command: []string{"python", "train.py", "--lr", "3"}, Workdir: c.Workdir,
		CallerEnv: map[string]string{"PATH": "/usr/bin"}, Request: engine.Request{GPUs: 1}, Class: engine.Medium, TimeLimit: 24 * time.Hour}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestBuildEverything(t *testing.T) {
	c := here(t)
	got, err := Build(Fields{Name: "n", Profile: "host-env", Image: "img:1", GPUFraction: "25%", Class: "high", TimeLimit: "1d12h",
		CPUs: "2.5", Memory: "8G", Retries: "2", Output: "train-%j.log", Workdir: "data", Mounts: []string{"data:/in:ro", "~/data/x:/x"},
		Env: []string{"B=2", "TOKEN"}, EnvFile: "job.env", Command: []string{"./a"}},
		Defaults{Profile: "p", Class: engine.Low, GPUs: 1, TimeLimit: time.Hour}, c)
	if err != nil {
		t.Fatal(err)
	}
	want := engine.Spec{Name: "n", Profile: "host-env", Image: "img:1", Command: []string{"./a"}, Workdir: c.Workdir + "/data",
		Env: map[string]string{"A": "1", "B": "2", "TOKEN": "s3cret"}, SecretEnv: []string{"A", "TOKEN"}, CallerEnv: map[string]string{"PATH": "/usr/bin"},
		Mounts:  []engine.Mount{{Source: c.Workdir + "/data", Target: "/in", ReadOnly: true}, {Source: c.Workdir + "/data/x", Target: "/x"}},
		Request: engine.Request{GPUFraction: 0.25, CPUs: 2.5, Memory: 8 * engine.GiB}, Class: engine.High, TimeLimit: 36 * time.Hour,
		Retries: 2, Output: c.Workdir + "/data/train-%j.log"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestNoGPU(t *testing.T) {
	s, err := Build(Fields{GPUs: "0", Command: []string{"true"}}, Defaults{}, here(t))
	if err != nil || s.Request.WantsGPU() {
		t.Errorf("got %+v, %v; want no GPU", s.Request, err)
	}
}

// Each bad input gives exactly one complaint, about its own field, in words that help.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, c := range []struct {
		name        string
		f           Fields
		field, want string
	}{
		{"no command", Fields{Command: []string{}}, "command", "nothing to run; put the command after --"},
		{"command with NUL", Fields{Command: []string{"a\x00b"}}, "command", "NUL byte"},
		{"command not UTF-8", Fields{Command: []string{"a\xff"}}, "command", "not valid UTF-8"},
		{"command too long", Fields{Command: []string{"a", strings.Repeat("x", maxCommand)}}, "command", "at most 131072 are allowed"},
		{"name with newline", Fields{Name: "a\nb"}, "name", `"a\nb" holds a line break`},
		{"name with escape", Fields{Name: "\x1b[31mred"}, "name", `"\x1b[31mred" holds an escape sequence`},
		{"name with override", Fields{Name: "a\u202eb"}, "name", "invisible character U+202E"},
		{"name too long", Fields{Name: long}, "name", "200 bytes long; at most 128"},
		{"name of spaces", Fields{Name: "  "}, "name", "a job needs a name"},
		{"profile", Fields{Profile: "../x"}, "profile", "letters, digits"},
		{"image", Fields{Image: "a b"}, "image", "is no image name"},
		{"image option", Fields{Image: "--privileged"}, "image", "is no image name"},
		{"gpus word", Fields{GPUs: "one"}, "gpus", `"one": want a whole number`},
		{"gpus half", Fields{GPUs: "0.5"}, "gpus", "use --gpu-mem or --gpu-fraction"},
		{"gpus negative", Fields{GPUs: "-1"}, "gpus", "-1: want a number from 0 to 64"},
		{"gpus absurd", Fields{GPUs: "1000"}, "gpus", "from 0 to 64"},
		{"gpus huge", Fields{GPUs: "99999999999999999999"}, "gpus", "want a whole number"},
		{"two ways", Fields{GPUs: "1", GPUMemory: "1GiB"}, "gpus", "exclude each other"},
		{"gpus 0 and a share", Fields{GPUs: "0", GPUFraction: "0.5"}, "gpus", "exclude each other"},
		{"fraction 0", Fields{GPUFraction: "0"}, "gpu-fraction", "must be above 0 and at most 1"},
		{"fraction NaN", Fields{GPUFraction: "NaN"}, "gpu-fraction", "must be above 0"},
		{"fraction above 1", Fields{GPUFraction: "1.5"}, "gpu-fraction", "at most 1"},
		{"fraction negative", Fields{GPUFraction: "-0.5"}, "gpu-fraction", "above 0"},
		{"fraction infinite", Fields{GPUFraction: "Inf"}, "gpu-fraction", "at most 1"},
		{"fraction word", Fields{GPUFraction: "half"}, "gpu-fraction", "for example 0.25 or 25%"},
		{"gpu-mem unit", Fields{GPUMemory: "12 parsecs"}, "gpu-mem", "unknown unit"},
		{"gpu-mem no unit", Fields{GPUMemory: "12"}, "gpu-mem", "with a unit such as GiB"},
		{"gpu-mem absurd", Fields{GPUMemory: "900TiB"}, "gpu-mem", "to 16TiB"},
		{"gpu-mem 0", Fields{GPUMemory: "0GiB"}, "gpu-mem", "must be more than zero"},
		{"class", Fields{Class: "urgent"}, "class", "want critical, high, medium or low"},
		{"time 0", Fields{TimeLimit: "0s"}, "time-limit", "more than zero"},
		{"time negative", Fields{TimeLimit: "-1h"}, "time-limit", "more than zero"},
		{"time absurd", Fields{TimeLimit: "9999d"}, "time-limit", "9999d is more than the 366 days allowed"},
		{"time word", Fields{TimeLimit: "soon"}, "time-limit", "write it as 30m"},
		{"cpus NaN", Fields{CPUs: "NaN"}, "cpus", "want a number of cores"},
		{"cpus 0", Fields{CPUs: "0"}, "cpus", "want a number of cores"},
		{"cpus absurd", Fields{CPUs: "1e9"}, "cpus", "to 4096"},
		{"memory tiny", Fields{Memory: "1k"}, "memory", "want from 16MiB"},
		{"retries", Fields{Retries: "1000"}, "retries", "from 0 to 100"},
		{"checkpoint word", Fields{Checkpoint: "often"}, "checkpoint", "want stop, or how often"},
		{"checkpoint never", Fields{Checkpoint: "0s"}, "checkpoint", "want stop, or how often"},
		{"warning without a time", Fields{Warn: "usr1"}, "warn", "write it SIGNAL@TIME"},
		{"warning by KILL", Fields{Warn: "kill@5m"}, "warn", "\"SIGKILL\": want one of SIGTERM"},
		{"warning before the start", Fields{Warn: "usr1@2h", TimeLimit: "1h"}, "warn", "before the start of a job"},
		{"stop signal", Fields{StopSignal: "KILL"}, "stop-signal", "\"SIGKILL\": want one of SIGTERM"},
		{"retries word", Fields{Retries: "x"}, "retries", "whole number"},
		{"workdir gone", Fields{Workdir: "nowhere"}, "workdir", "it does not exist"},
		{"workdir file", Fields{Workdir: "data/x"}, "workdir", "is not a directory"},
		{"workdir proc", Fields{Workdir: "/proc/self"}, "workdir", "lies in /proc"},
		{"workdir root", Fields{Workdir: "/"}, "workdir", "would cover the image's own files"},
		{"output dir gone", Fields{Output: "no/x.log"}, "output", "it does not exist"},
		{"output a directory", Fields{Output: "data"}, "output", "is a directory; name a file"},
		{"output slash", Fields{Output: "data/"}, "output", "is a directory; name a file"},
		{"output verb", Fields{Output: "x-%s.log"}, "output", "only %j (job id), %a (attempt) and %i"},
		{"output newline", Fields{Output: "x\ny"}, "output", "holds a line break"},
		{"mount gone", Fields{Mounts: []string{"no:/x"}}, "mount", "it does not exist"},
		{"mount form", Fields{Mounts: []string{"data:/x:rx"}}, "mount", "write it SRC, SRC:DST or SRC:DST:ro"},
		{"mount empty", Fields{Mounts: []string{":/x"}}, "mount", "write it SRC"},
		{"mount relative", Fields{Mounts: []string{"data:x"}}, "mount", "must begin with /"},
		{"mount dev", Fields{Mounts: []string{"/dev:/x"}}, "mount", "/dev lies in /dev, which is never mounted"},
		{"mount dev by dots", Fields{Mounts: []string{"/usr/../dev/nvidia0:/x"}}, "mount", "lies in /dev"},
		{"mount dev by link", Fields{Mounts: []string{"devices:/x"}}, "mount", "is a link: /dev lies in /dev"},
		{"mount of everything by link", Fields{Mounts: []string{"everything:/x"}}, "mount", "with /dev in it, which is never mounted"},
		{"mount on proc", Fields{Mounts: []string{"data:/proc/x"}}, "mount", "lies in /proc"},
		{"mount on usr", Fields{Mounts: []string{"data:/usr"}}, "mount", "would cover the image's own files"},
		{"mount twice", Fields{Mounts: []string{"data:/x", "data/x:/x"}}, "mount", "two mounts go to /x"},
		{"env name", Fields{Env: []string{"A B=1"}}, "env", `"A B" is no variable name`},
		{"env unset", Fields{Env: []string{"NOTSET"}}, "env", "NOTSET is not set here"},
		{"env devices", Fields{Env: []string{"NVIDIA_VISIBLE_DEVICES=all"}}, "env", "the queue says which GPUs a job gets"},
		{"env limit", Fields{Env: []string{"NVIDIA_GPU_MEMORY_LIMIT=1"}}, "env", "the container would not start"},
		{"env ours", Fields{Env: []string{"GPUTOP_JOB_ID=1"}}, "env", "the queue's own"},
		{"env NUL", Fields{Env: []string{"A=\x00"}}, "env", "the value of A holds a NUL byte"},
		{"env-file gone", Fields{EnvFile: "no.env"}, "env-file", "it does not exist"},
		{"env-file line", Fields{EnvFile: "bad.env"}, "env-file", `line 2: "B C" is no variable name`},
		{"env-file device", Fields{EnvFile: "/dev/zero"}, "env-file", "is not a file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.f.Command == nil {
				c.f.Command = []string{"true"}
			}
			_, err := Build(c.f, Defaults{}, here(t))
			all := FieldErrors(err)
			if len(all) != 1 || all[0].Field != c.field || !strings.Contains(all[0].Error(), c.want) {
				t.Errorf("got %v\nwant one complaint about %s: …%s…", err, c.field, c.want)
			}
		})
	}
}

func TestSecretIsNeverRepeated(t *testing.T) {
	_, err := Build(Fields{Env: []string{"bad name=hunter2", "A=hunter2\x00"}, Command: []string{"true"}}, Defaults{}, here(t))
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v; want an error without the value", err)
	}
}

// asNobody runs f on a thread without privileges, also where the tests run as root.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			t.Errorf("setresuid: %v", errno)
			return
		}
		f()
	}()
	<-done
}

func TestUnreadable(t *testing.T) {
	c := here(t)
	locked := filepath.Join(c.Workdir, "locked")
	if err := os.Mkdir(locked, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(c.Workdir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(c.Workdir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(locked, 0); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		f    Fields
		want string
	}{
		{Fields{Mounts: []string{"locked:/x"}}, "mount: " + locked + ": you may not read it"},
		{Fields{Workdir: "locked"}, "workdir: " + locked + ": you may not read it"},
		{Fields{Output: "locked/x"}, "output: its directory " + locked + ": you may not write there"},
	} {
		tc.f.Command = []string{"true"}
		var err error
		asNobody(t, func() { _, err = Build(tc.f, Defaults{}, c) })
		if err == nil || err.Error() != tc.want {
			t.Errorf("got %v, want %s", err, tc.want)
		}
	}
}

func TestCheckSpec(t *testing.T) {
	good := engine.Spec{Name: "a", Command: []string{"true"}, Workdir: "/home/a", Class: engine.Low, TimeLimit: time.Hour}
	if err := CheckSpec(good); err != nil {
		t.Fatalf("a good spec is refused: %v", err)
	}
	for _, c := range []struct {
		name string
		do   func(*engine.Spec)
		want string
	}{
		{"class 0", func(s *engine.Spec) { s.Class = 0 }, "class: want critical"},
		{"NaN", func(s *engine.Spec) { s.Request.GPUFraction = engine.Fraction(math.NaN()) }, "gpu-fraction: fraction NaN"},
		{"NaN CPUs", func(s *engine.Spec) { s.Request.CPUs = engine.CPUs(math.NaN()) }, "cpus: NaN"},
		{"negative memory", func(s *engine.Spec) { s.Request.Memory = -1 }, "memory: -1B"},
		{"negative share", func(s *engine.Spec) { s.Request.GPUMemory = -1 }, "gpu-mem: -1B"},
		{"relative workdir", func(s *engine.Spec) { s.Workdir = "a" }, `workdir: "a" is not a full path`},
		{"dots", func(s *engine.Spec) { s.Workdir = "/a/../dev" }, "is not a full path"},
		{"caller env", func(s *engine.Spec) { s.CallerEnv = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"} }, "not among the variables"},
		{"caller env secret", func(s *engine.Spec) { s.CallerEnv = map[string]string{"CONDA_TOKEN": "x"} }, "not among the variables"},
		{"mounts", func(s *engine.Spec) { s.Mounts = make([]engine.Mount, maxMounts+1) }, "mount: 65 mounts; at most 64"},
		{"over workdir", func(s *engine.Spec) { s.Mounts = []engine.Mount{{Source: "/x", Target: "/home/a"}} }, "can't be replaced"},
		{"env count", func(s *engine.Spec) {
			s.Env = map[string]string{}
			for i := range maxEnv + 1 {
				s.Env["A"+engine.JobID(i).String()] = ""
			}
		}, "env: 257 variables; at most 256"},
		{"env size", func(s *engine.Spec) { s.Env = map[string]string{"A": strings.Repeat("x", maxEnvBytes)} }, "bytes of variables"},
	} {
		s := good
		c.do(&s)
		if err := CheckSpec(s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.want)
		}
	}
}

func TestWith(t *testing.T) {
	got := Fields{GPUs: "2", Name: "a", Mounts: []string{"/a"}, Command: []string{"x"}}.With(
		Fields{GPUMemory: "1GiB", Class: "low", Mounts: []string{"/b"}})
	want := Fields{GPUMemory: "1GiB", Name: "a", Class: "low", Mounts: []string{"/a", "/b"}, Command: []string{"x"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestImageWithoutProfileIsLeftToTheDaemon(t *testing.T) {
	for _, c := range []struct {
		f    Fields
		want string
	}{
		{Fields{Image: "img:1"}, ""},
		{Fields{Image: "img:1", Profile: "demo"}, "demo"},
		{Fields{}, "host-env"},
	} {
		c.f.Command = []string{"true"}
		s, err := Build(c.f, Defaults{Profile: "host-env", GPUs: 1}, here(t))
		if err != nil || s.Profile != c.want {
			t.Errorf("%+v: profile %q, %v; want %q", c.f, s.Profile, err, c.want)
		}
	}
}
