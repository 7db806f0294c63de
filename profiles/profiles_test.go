package profiles

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestBuiltin(t *testing.T) {
	want := []Profile{
		{Name: "container", NeedsImage: true, Network: "private", Caches: []string{".cache/huggingface", ".cache/torch", ".cache/pip"}},
		{Name: "cpu", HostEnv: true, GPUs: new(int), MountHome: true, Network: "host"},
		{Name: "demo", Image: "localhost/gputop-demo:latest", Network: "none"},
		{Name: "host-env", HostEnv: true, MountHome: true, Network: "host"},
		{Name: "jupyter", HostEnv: true, MountHome: true, Network: "host", Program: "jupyter-lab", Port: 8888, URL: "/gputop/{job}/lab?token={token}",
			Env: map[string]string{"JUPYTER_IDLE_SECONDS": "7200"}},
	}
	got, err := Builtin()
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if len(got[i].Description) < 10 || len(got[i].Description) > 90 {
			t.Errorf("%s: description %q", got[i].Name, got[i].Description)
		}
		got[i].Description = ""
		if p := &got[i]; p.Name == "jupyter" {
			if line := strings.Join(p.Command, " "); !strings.Contains(line, `--port="$GPUTOP_PORT"`) || !strings.Contains(line, `cull_idle_timeout="$JUPYTER_IDLE_SECONDS"`) {
				t.Errorf("jupyter runs %q", line)
			}
			p.Command = nil
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

func TestGet(t *testing.T) {
	if p, err := Get(Default); err != nil || p.Name != "host-env" || !p.HostEnv {
		t.Errorf("the default is %+v, %v", p, err)
	}
	_, err := Get("gpu\n")
	if want := `no profile "gpu\n"; there are container, cpu, demo, host-env, jupyter`; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestLoad(t *testing.T) {
	got, err := Load(strings.NewReader(`
name: lab
description: the lab's image
image: registry.lab/torch:2
keep_entrypoint: true
mount_home: true
network: private
env:
  HF_HUB_OFFLINE: "1"
  OMP_NUM_THREADS: 4
caches: [.cache/uv]
`), "lab.yaml")
	want := Profile{
		Name: "lab", Description: "the lab's image", Image: "registry.lab/torch:2", KeepEntrypoint: true, MountHome: true, Network: "private",
		Env: map[string]string{"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "4"}, Caches: []string{".cache/uv"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

func TestLoadRefuses(t *testing.T) {
	const good = "name: lab\ndescription: a lab\nimage: a/b\nnetwork: none\n"
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":         {good + "imagee: x\n", `p.yaml:5: unknown field "imagee"`},
		"key twice":           {good + "image: c/d\n", `p.yaml:5: mapping key "image" already defined at [3:1]`},
		"wrong type":          {good + "host_env: [1]\n", "p.yaml:5: "},
		"word for a boolean":  {good + "mount_home: maybe\n", "p.yaml:5: "},
		"bad YAML":            {good + "env: {\n", "p.yaml:5: "},
		"tab":                 {good + "env:\n\tA: b\n", "p.yaml:6: "},
		"empty":               {"", "p.yaml: is empty"},
		"comment only":        {"# nothing\n", "p.yaml: is empty"},
		"a list":              {"- a\n", "p.yaml:1: "},
		"two documents":       {good + "---\n" + good, "p.yaml: holds more than one document"},
		"huge":                {strings.Repeat("#", maxSize+1), "p.yaml: is larger than 64 KiB"},
		"no name":             {strings.Replace(good, "name: lab", "mount_home: true", 1), `p.yaml:1: name: "": want`},
		"bad name":            {strings.Replace(good, "lab", "../lab", 1), `p.yaml:1: name: "../lab": want`},
		"no description":      {strings.Replace(good, "a lab", "''", 1), "p.yaml:2: description: is missing"},
		"long description":    {strings.Replace(good, "a lab", `"a\nb"`, 1), "p.yaml:2: description: must be one line"},
		"bad network":         {strings.Replace(good, "none", "bridge", 1), `p.yaml:4: network: "bridge": want host, private or none`},
		"no image":            {strings.Replace(good, "image: a/b\n", "", 1), "p.yaml:1: image: is missing"},
		"image with a space":  {strings.Replace(good, "a/b", "a b", 1), `p.yaml:3: image: "a b": must not`},
		"image and host_env":  {good + "host_env: true\n", "p.yaml:3: image: host_env"},
		"image and its need":  {good + "needs_image: true\n", "p.yaml:5: needs_image: the profile"},
		"entrypoint of none":  {strings.Replace(good, "image: a/b", "host_env: true", 1) + "keep_entrypoint: true\n", "p.yaml:5: keep_entrypoint: "},
		"bad variable":        {good + "env: {A-B: c}\n", `p.yaml:5: env: "A-B" is no name`},
		"absolute cache":      {good + "caches: [/etc]\n", `p.yaml:5: caches: "/etc": want`},
		"cache outside":       {good + "caches: [a/../../b]\n", `p.yaml:5: caches: "a/../../b": want`},
		"cache of everything": {good + "caches: [.]\n", `p.yaml:5: caches: ".": want`},
		"cache twice":         {good + "caches: [a, a]\n", `p.yaml:5: caches: "a" is there twice`},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Load(strings.NewReader(c.text), "p.yaml")
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %+v, error %v, want %s", p, err, c.want)
			}
		})
	}
	broken := errors.New("broken disk")
	if _, err := Load(iotest.ErrReader(broken), "p.yaml"); !errors.Is(err, broken) {
		t.Errorf("error %v, want one that wraps %v", err, broken)
	}
}
