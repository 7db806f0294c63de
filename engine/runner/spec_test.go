package runner

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

func TestParseVersion(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want version
		cdi  string
		old  bool
	}{
		{"3.4.4", version{3, 4, 4}, "[/etc/cdi /var/run/cdi]", true},
		{"4.3.1", version{4, 3, 1}, "[/etc/cdi /var/run/cdi]", false},
		{"4.9.3+ds1", version{4, 9, 3}, "[/etc/cdi /var/run/cdi]", false},
		{"5.4.2\n", version{5, 4, 2}, "[/etc/cdi /var/run/cdi]", false},
		{"5.5.0-rc1", version{5, 5, 0}, "[/etc/cdi]", false},
		{"5.6", version{5, 6, 0}, "[/etc/cdi /var/run/cdi]", false},
		{"6.0.0", version{6, 0, 0}, "[/etc/cdi /var/run/cdi]", false},
	} {
		v, err := parseVersion(tc.in)
		if err != nil || v != tc.want || fmt.Sprint(v.cdiSpecDirs()) != tc.cdi || v.before(oldestPodman) != tc.old {
			t.Errorf("%q: %v, %v, old %v, %v", tc.in, v, v.cdiSpecDirs(), v.before(oldestPodman), err)
		}
	}
	for _, bad := range []string{"", "5", "x.y", "5.-1", "command not found"} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("%q was read as %v", bad, v)
		}
	}
}

func TestSubordinateIDs(t *testing.T) {
	const file = "alice:100000:65536\n1002:165536:65536\ncarol:1:0\nbroken\n"
	for name, want := range map[string]bool{"alice": true, "bob": true, "carol": false, "dave": false} {
		uid := map[string]uint32{"alice": 1001, "bob": 1002, "carol": 1003, "dave": 1004}[name]
		if got := subordinateIn(file, name, uid); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestLinger(t *testing.T) {
	root := t.TempDir()
	if got := linger(root, "alice"); got != nil {
		t.Errorf("without systemd: %v", *got)
	}
	mkdir(t, root, "run/systemd/system")
	if got := linger(root, "alice"); got == nil || *got {
		t.Errorf("off: %v", got)
	}
	mkdir(t, root, "var/lib/systemd/linger/alice")
	if got := linger(root, "alice"); got == nil || !*got {
		t.Errorf("on: %v", got)
	}
}

func mkdir(t *testing.T, parts ...string) string {
	t.Helper()
	d := filepath.Join(parts...)
	if err := os.MkdirAll(d, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestMountRefusals(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "devices")
	if err := os.Symlink("/dev", link); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, source, target, want string
	}{
		{"fine", dir, "/data", ""},
		{"missing", dir + "/none", "/data", "does not exist"},
		{"relative", "data", "/data", "absolute path"},
		{"the root contains /dev", "/", "/host", "contains /dev"},
		{"/dev", "/dev", "/dev2", "contains /dev"},
		{"in /dev", "/dev/shm", "/x", "contains /dev"},
		{"/proc", "/proc/self", "/x", "contains /proc"},
		{"/sys", "/sys", "/x", "contains /sys"},
		{"a link to /dev", link, "/x", "contains /dev"},
		{"onto a device", dir, "/dev/nvidia0", "nothing may be mounted at /dev/nvidia0"},
		{"onto the root", dir, "/", "other than /"},
		{"dotted target", dir, "/data/../proc", "nothing may be mounted at /proc"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := checkMounts(dir, []engine.Mount{{Source: tc.source, Target: tc.target}})
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || agentrpc.CodeOf(err) != agentrpc.CodeInvalid):
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}
	if err := checkMounts("/proc", nil); err == nil {
		t.Error("working directory /proc was accepted")
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	for out, ok := range map[string]bool{"": true, "a.log": true, dir + "/b.log": true, "none/c.log": false, "loop": false, link + "/d.log": false, ".": false} {
		if err := checkOutput(dir, out); (err == nil) != ok {
			t.Errorf("output %q: %v", out, err)
		}
	}
}

func basePlan() plan {
	return plan{
		spec: agentrpc.ContainerSpec{Name: "gputop-x-7-2", Attempt: engine.AttemptID{Job: 7, Number: 2}, ImageID: "abc",
			Command: []string{"python", "train.py"}, Workdir: "/home/alice/proj", Network: "host",
			Env: map[string]string{"A": "1"}},
		user:    account.Account{User: engine.User{UID: 1000, Name: "alice"}, Home: "/home/alice", Shell: "/bin/bash"},
		runtime: agentrpc.RuntimeInfo{PodmanVersion: "5.4.2", OCIRuntime: "crun", CgroupVersion: 2, Controllers: []string{"cpu", "memory", "pids"}, StorageDriver: "overlay"},
		host:    hostFacts{initPath: "/usr/bin/catatonit", tun: true, netHelpers: map[string]bool{"pasta": true}, memlock: 8 << 20, nofile: 2 << 20},
		logPath: "/state/logs/7.2.log", checkpoints: "/home/alice/.local/state/gputop/checkpoints/7", home: "/home/alice",
		hostDirs: []string{"/usr", "/opt"},
	}
}

// show writes what of a spec decides about isolation and behaviour in a line each.
func show(t *testing.T, p plan) string {
	t.Helper()
	s, notes := buildSpec(p)
	var b strings.Builder
	for _, m := range s.Mounts {
		fmt.Fprintf(&b, "mount %s:%s:%s\n", m.Source, m.Destination, m.Options[len(m.Options)-1])
	}
	for _, o := range s.OverlayVolumes {
		fmt.Fprintf(&b, "overlay %s:%s\n", o.Source, o.Destination)
	}
	for _, d := range s.Devices {
		fmt.Fprintf(&b, "device %s\n", d.Path)
	}
	fmt.Fprintf(&b, "net %s\n", s.NetNS.NSMode)
	if r := s.ResourceLimits; r != nil {
		j, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "limits %s\n", j)
	}
	for _, n := range notes {
		fmt.Fprintf(&b, "note %s\n", n)
	}
	return b.String()
}

func TestBuildSpec(t *testing.T) {
	const checkpoints = "mount /home/alice/.local/state/gputop/checkpoints/7:/home/alice/.local/state/gputop/checkpoints/7:rw\n"
	const work = "mount /home/alice/proj:/home/alice/proj:rw\n"
	const pids = `limits {"pids":{"limit":32768}}` + "\n"
	for _, tc := range []struct {
		name   string
		change func(*plan)
		want   string
	}{
		{"plain", func(*plan) {}, work + checkpoints + "net host\n" + pids},
		{"host environment: one home mount covers workdir and checkpoints", func(p *plan) { p.spec.HostEnv = true },
			"mount /usr:/usr:ro\nmount /opt:/opt:ro\nmount /home/alice:/home/alice:rw\nnet host\n" + pids},
		{"host environment with a vendor's hooks", func(p *plan) {
			p.spec.HostEnv, p.spec.CDIDevices = true, []string{"nvidia.com/gpu=GPU-1", "gputop/lease=x-7-2"}
		}, "mount /opt:/opt:ro\nmount /home/alice:/home/alice:rw\noverlay /usr:/usr\ndevice nvidia.com/gpu=GPU-1\ndevice gputop/lease=x-7-2\nnet host\n" + pids},
		{"simulated lease needs no overlay", func(p *plan) { p.spec.HostEnv, p.spec.CDIDevices = true, []string{"gputop/lease=x-7-2"} },
			"mount /usr:/usr:ro\nmount /opt:/opt:ro\nmount /home/alice:/home/alice:rw\ndevice gputop/lease=x-7-2\nnet host\n" + pids},
		{"home behind a link", func(p *plan) { p.spec.MountHome, p.home = true, "/export/alice"; p.spec.Workdir = "/export/alice/proj" },
			"mount /home/alice:/home/alice:rw\nmount /export/alice:/export/alice:rw\nnet host\n" + pids},
		{"a read-only mount does not cover the workdir", func(p *plan) {
			p.spec.Mounts = []engine.Mount{{Source: "/home/alice", Target: "/home/alice", ReadOnly: true}}
		}, "mount /home/alice:/home/alice:ro\n" + work + checkpoints + "net host\n" + pids},
		{"edits directly", func(p *plan) {
			p.spec.Edits = &agentrpc.Edits{Devices: []string{"/dev/nvidia0"}, Mounts: []engine.Mount{{Source: "/sim/0", Target: "/dev/nvidia0"}}}
		}, work + checkpoints + "mount /sim/0:/dev/nvidia0:rw\ndevice /dev/nvidia0\nnet host\n" + pids},
		{"limits", func(p *plan) { p.spec.CPUs, p.spec.Memory = 2.5, engine.GiB },
			work + checkpoints + "net host\n" + `limits {"memory":{"limit":1073741824},"cpu":{"quota":250000,"period":100000},"pids":{"limit":32768}}` + "\n"},
		{"limits on cgroup v1", func(p *plan) {
			p.spec.CPUs, p.spec.Memory, p.runtime.CgroupVersion, p.runtime.Controllers = 1, 1, 1, nil
		}, work + checkpoints + "net host\nnote no CPU limit: this machine has cgroup v1, where rootless containers get none\nnote no memory limit: this machine has cgroup v1, where rootless containers get none\n"},
		{"cpu not delegated", func(p *plan) { p.spec.CPUs = 1; p.runtime.Controllers = []string{"memory", "pids"} },
			work + checkpoints + "net host\n" + pids + "note no CPU limit: the cpu controller is not delegated to users (systemd: Delegate=cpu for user@.service)\n"},
		{"caches of the home are in root's home", func(p *plan) { p.caches = []string{".cache/pip"} },
			"mount /home/alice/.cache/pip:/root/.cache/pip:rw\n" + work + checkpoints + "net host\n" + pids},
		{"no network", func(p *plan) { p.spec.Network = "none" }, work + checkpoints + "net none\n" + pids},
		{"private", func(p *plan) { p.spec.Network = "private" }, work + checkpoints + "net pasta\n" + pids},
		{"private without tun", func(p *plan) { p.spec.Network, p.host.tun = "private", false },
			work + checkpoints + "net host\n" + pids + "note no private network: /dev/net/tun is closed to users here; the job has the host's network\n"},
		{"private on Podman 4 without its program", func(p *plan) { p.spec.Network, p.runtime.PodmanVersion = "private", "4.3.1" },
			work + checkpoints + "net host\n" + pids + "note no private network: slirp4netns is not installed; the job has the host's network\n"},
		{"no init", func(p *plan) { p.host.initPath = "" },
			work + checkpoints + "net host\n" + pids + "note no init process in the container: catatonit is not installed (sudo apt-get install catatonit)\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := basePlan()
			tc.change(&p)
			if got := show(t, p); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}

func TestSpecNeverGivesMore(t *testing.T) {
	p := basePlan()
	p.spec.HostEnv = true
	p.spec.Env = map[string]string{"PATH": "/mine", "GPUTOP_CHECKPOINT_DIR": "/elsewhere"}
	p.spec.Edits = &agentrpc.Edits{Env: []string{"A=2", "B=x=y"}}
	s, _ := buildSpec(p)
	switch {
	case *s.Privileged, *s.Remove, !*s.NoNewPrivileges, s.RestartPolicy != "no", !*s.Init, s.UserNS.NSMode != "", s.User != "0:0":
		t.Errorf("spec is too generous: %+v", s)
	case s.Annotations["run.oci.keep_original_groups"] != "1":
		t.Error("supplementary groups are lost")
	case s.LogConfiguration.Driver != "k8s-file" || s.LogConfiguration.Path != p.logPath:
		t.Errorf("log %+v", s.LogConfiguration)
	case !slices.Equal(s.Entrypoint, []string{"python"}) || !slices.Equal(s.Command, []string{"train.py"}):
		t.Errorf("runs %q %q", s.Entrypoint, s.Command)
	case s.Labels[LabelJob] != "7" || s.Labels[LabelAttempt] != "2":
		t.Errorf("labels %v", s.Labels)
	}
	want := map[string]string{"PATH": "/mine", "HOME": "/home/alice", "USER": "alice", "LOGNAME": "alice", "SHELL": "/bin/bash", "A": "2", "B": "x=y", "GPUTOP_CHECKPOINT_DIR": p.checkpoints}
	if fmt.Sprint(s.Env) != fmt.Sprint(want) {
		t.Errorf("env %v, want %v", s.Env, want)
	}
	p.spec.KeepEntrypoint, p.runtime.OCIRuntime = true, "runc"
	s, _ = buildSpec(p)
	if s.Entrypoint != nil || len(s.Command) != 2 || len(s.Annotations) != 0 {
		t.Errorf("kept entrypoint: %q %q, annotations %v", s.Entrypoint, s.Command, s.Annotations)
	}
}

func TestHostEnvTar(t *testing.T) {
	root := t.TempDir()
	mkdir(t, root, "usr/bin")
	mkdir(t, root, "opt")
	mkdir(t, root, "etc/ssl")
	mkdir(t, root, "etc/ld.so.conf.d")
	for f, text := range map[string]string{"etc/nsswitch.conf": "passwd: files\n", "etc/ld.so.conf.d/b.conf": "/b\n", "etc/ld.so.conf.d/a.conf": "/a\n", "etc/shadow": "secret"} {
		if err := os.WriteFile(filepath.Join(root, f), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	u := basePlan().user
	data, err := hostEnvTar(root, u)
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := hostEnvTar(root, u); !bytes.Equal(again, data) {
		t.Error("the same host gives another image")
	}
	got := map[string]string{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(r)
		if _, twice := got[h.Name]; twice {
			t.Errorf("%s is there twice", h.Name)
		}
		got[h.Name] = fmt.Sprintf("%c %o %s%s", h.Typeflag, h.Mode, h.Linkname, body)
	}
	for name, want := range map[string]string{
		"bin": "2 777 usr/bin", "usr": "5 755 ", "opt": "5 755 ", "etc/ssl": "5 755 ", "tmp": "5 1777 ", "etc/nsswitch.conf": "0 644 passwd: files\n",
		"etc/ld.so.conf.d/a.conf": "0 644 /a\n", "var/run": "2 777 /run",
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	if _, leaked := got["etc/shadow"]; leaked {
		t.Error("/etc/shadow is in the image")
	}
	if !strings.HasPrefix(got["etc/passwd"], "0 644 alice:x:0:0::/home/alice:/bin/bash\nroot:") {
		t.Errorf("passwd %q", got["etc/passwd"])
	}
}

func TestCachesAreMadeAndALinkToDevicesIsNone(t *testing.T) {
	home := t.TempDir()
	if err := os.Symlink("/dev", filepath.Join(home, "dev")); err != nil {
		t.Fatal(err)
	}
	p := plan{user: account.Account{User: engine.User{UID: uint32(os.Getuid()), Name: "alice"}, Home: home},
		spec: agentrpc.ContainerSpec{Caches: []string{".cache/pip", "dev", "../other"}}}
	p.prepareCaches()
	if !slices.Equal(p.caches, []string{".cache/pip"}) {
		t.Errorf("caches %q", p.caches)
	}
	if fi, err := os.Stat(filepath.Join(home, ".cache/pip")); err != nil || !fi.IsDir() {
		t.Errorf("the cache is not there: %v", err)
	}
	p.spec.MountHome, p.caches = true, nil
	if p.prepareCaches(); p.caches != nil {
		t.Errorf("caches %q besides the whole home", p.caches)
	}
}
