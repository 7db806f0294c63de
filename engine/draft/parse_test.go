package draft

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseYAML(t *testing.T) {
	got, err := ParseYAML(strings.NewReader(`
name: train
gpu-fraction: 0.25
time-limit: 02:30:00
retries: 2
mount:
  - /data:/data:ro
env:
  SEED: 1
  FLAG: yes
command: [python, train.py, --lr, 0.1]
`), "job.yaml")
	want := Fields{Name: "train", GPUFraction: "0.25", TimeLimit: "02:30:00", Retries: "2", Mounts: []string{"/data:/data:ro"},
		Env: []string{"SEED=1", "FLAG=yes"}, Command: []string{"python", "train.py", "--lr", "0.1"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	got, err = ParseYAML(strings.NewReader("env: [A=1, B]\nmount: /data\ncommand: |\n  a\n  b | c\n"), "job.yaml")
	want = Fields{Mounts: []string{"/data"}, Env: []string{"A=1", "B"}, Command: []string{"/bin/sh", "-c", "a\nb | c"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

func TestParseYAMLErrors(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"unknown key", "name: a\ngpu: 1\n", `job.yaml line 2: unknown key "gpu"; the keys are command, name, profile, image, gpus, gpu-mem`},
		{"unknown only key", "gpu: 1\n", `job.yaml line 1: unknown key "gpu"`},
		{"duplicate", "name: a\nname: b\n", `job.yaml line 2: mapping key "name" already defined`},
		{"syntax", "name: [a\n", "job.yaml line 1: "},
		{"no mapping", "- a\n", "job.yaml line 1: want keys with values"},
		{"empty", "# nothing\n", "job.yaml is empty"},
		{"null", "a: 1\n", "unknown key"},
		{"no value", "name: a\nimage:\n", "job.yaml line 2: image has no value"},
		{"list for one", "name: a\ngpus:\n  - 1\n", "job.yaml line 2: gpus wants one value"},
		{"map in list", "mount:\n  - a: b\n", "job.yaml line 2: mount wants a list of plain values"},
		{"env nested", "env:\n  A:\n    b: 1\n", "job.yaml line 2: a variable wants one value"},
		{"two jobs", "name: a\n---\nname: b\n", "job.yaml line 3: a second job begins here"},
		{"alias", "name: &x a\nimage: *x\n", "job.yaml line 1: name wants one value"},
	} {
		_, err := ParseYAML(strings.NewReader(c.in), "job.yaml")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want …%s…", c.name, err, c.want)
		}
	}
}

func FuzzParseYAML(f *testing.F) {
	f.Add("name: a\ncommand: [x]\n")
	f.Add("env:\n  A: 1\n---\n")
	f.Fuzz(func(t *testing.T, s string) { _, _ = ParseYAML(strings.NewReader(s), "f") })
}

func TestParseScript(t *testing.T) {
	got, err := ParseScript(strings.NewReader("#!/bin/bash\n# hello\n#GPUTOP --gpus 2 --class=low\n\n#GPUTOP --name 'my run' --mount /a --mount /b # why\n#GPUTOPX --no\necho\n#GPUTOP --gpus 9\n"))
	want := Fields{GPUs: "2", Class: "low", Name: "my run", Mounts: []string{"/a", "/b"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, c := range []struct{ in, want string }{
		{"#!/bin/sh\n#GPUTOP --gpu 1\n", "line 2 (#GPUTOP --gpu 1): unknown flag --gpu; the flags are --name,"},
		{"#GPUTOP --gpus\n", "line 1 (#GPUTOP --gpus): --gpus wants a value"},
		{"#GPUTOP gpus 1\n", `line 1 (#GPUTOP gpus 1): "gpus" is no flag`},
		{"#GPUTOP --name 'x\n", "a quote is not closed"},
		{"\x7fELF\x00", "this is a program, not a script"},
	} {
		if _, err := ParseScript(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want …%s…", c.in, err, c.want)
		}
	}
}

func TestCommandLine(t *testing.T) {
	sh := func(s string) []string { return []string{"/bin/sh", "-c", s} }
	for _, c := range []struct {
		in   string
		want []string
	}{
		{"python train.py --lr=1e-3", []string{"python", "train.py", "--lr=1e-3"}},
		{`python -c 'print(1)' ""`, []string{"python", "-c", "print(1)", ""}},
		{`echo "a b"`, []string{"echo", "a b"}},
		{"a | b", sh("a | b")},
		{"echo $HOME", sh("echo $HOME")},
		{`echo "$HOME"`, sh(`echo "$HOME"`)},
		{"ls *.py", sh("ls *.py")},
		{"a\nb", sh("a\nb")},
		{"A=1 python x", sh("A=1 python x")},
		{"echo 'x", sh("echo 'x")},
		{"  ", nil},
	} {
		if got := CommandLine(c.in); !reflect.DeepEqual(got, c.want) {
			t.Errorf("CommandLine(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestScriptCommand(t *testing.T) {
	long := "#!/bin/sh\n" + strings.Repeat("#", maxInline)
	for _, c := range []struct {
		text string
		want []string
	}{
		{"#!/bin/bash -l\necho\n", []string{"/bin/bash", "-l", "-c", "#!/bin/bash -l\necho\n", "/s", "1"}},
		{"echo\n", []string{"/bin/sh", "-c", "echo\n", "/s", "1"}},
		{"#!/usr/bin/env bash\n", []string{"/usr/bin/env", "bash", "-c", "#!/usr/bin/env bash\n", "/s", "1"}},
		{"#!/usr/bin/env python3\n", []string{"/usr/bin/env", "python3", "/s", "1"}},
		{"#!/usr/bin/env -S python3 -u\n", []string{"/usr/bin/env", "-S python3 -u", "/s", "1"}},
		{long, []string{"/bin/sh", "/s", "1"}},
	} {
		if got := ScriptCommand("/s", c.text, []string{"1"}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%.30q: got %q, want %q", c.text, got, c.want)
		}
	}
}

func TestCaptureEnv(t *testing.T) {
	got := CaptureEnv([]string{"PATH=/b", "CONDA_PREFIX=/c", "CONDA_TOKEN=x", "LC_ALL=C", "HF_TOKEN=x", "HF_HOME=/h", "HOME=/root",
		"WANDB_API_KEY=x", "LANG=a\nb", "CONDA_PASSWORD=x", "NVIDIA_VISIBLE_DEVICES=all"})
	want := map[string]string{"PATH": "/b", "CONDA_PREFIX": "/c", "LC_ALL": "C", "HF_HOME": "/h"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
