package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

func ref[T any](v T) *T { return &v }

// good is a machine with nothing wrong.
func good() View {
	local := func(p string) Directory { return Directory{Path: p, Writable: true, Free: ref(500 * engine.GiB)} }
	return View{User: "alice", UID: 1001, Client: "1.0", Systemd: true, Driver: Driver{"570.1", "570.1"}, Toolkit: true,
		Nodes:     []Node{{"/dev/nvidia0", 0o660, "gpu", true}, {"/dev/nvidia-uvm", 0o660, "gpu", true}},
		Newuidmap: true, Subuids: true, Subgids: true, Groups: []string{"vision"}, Home: local("/home/alice"), Agent: local("/home/alice/.local/state/gputop"),
		Tun: true, Pasta: true, Catatonit: true,
		Daemon: &api.Diagnosis{Version: "1.0", Mode: "shared", PID: 7, StateDir: "/var/lib/gputop", StateWritable: true, StateFree: ref(40 * engine.GiB), LeaseDir: "/var/run/cdi",
			Cards: []api.CardDiagnosis{{Device: "GPU-a", Health: engine.HealthOK}, {Device: "GPU-b", Index: 1, Health: engine.HealthOK}},
			Agent: api.AgentDiagnosis{Connected: true, Runtime: &agentrpc.RuntimeInfo{PodmanVersion: "5.4.2", OCIRuntime: "crun", CgroupVersion: 2,
				Controllers: []string{"cpu", "memory", "pids"}, StorageDriver: "overlay", CDISpecDirs: []string{"/etc/cdi", "/var/run/cdi"}, Linger: ref(true)}}}}
}

func TestNothingWrong(t *testing.T) {
	var checks []string
	for _, f := range Check(good()) {
		checks = append(checks, f.Check)
		if f.Level != OK || f.Fix != "" || f.Message == "" {
			t.Errorf("%+v", f)
		}
	}
	want := []string{"daemon", "state", "driver", "gpus", "toolkit", "cdi", "nodes", "agent", "podman", "runtime", "subuids", "linger", "cgroup",
		"controllers", "groups", "storage", "home", "network", "init"}
	if !slices.Equal(checks, want) {
		t.Errorf("checks %v, want %v", checks, want)
	}
}

func TestEachFinding(t *testing.T) {
	rt := func(v *View) *agentrpc.RuntimeInfo { return v.Daemon.Agent.Runtime }
	for _, tc := range []struct {
		name   string
		change func(*View)
		want   string // CHECK LEVEL: words of the message | the fix, exactly
	}{
		{"no daemon", func(v *View) {
			v.Daemon, v.DaemonError = nil, "no gputop daemon on /s: nobody answers; look at: systemctl status gputop"
		},
			"daemon problem: nobody answers | systemctl status gputop"},
		{"another version", func(v *View) { v.Client = "2.0" }, "daemon warning: is version 1.0 and this gputop is 2.0 | sudo systemctl restart gputop"},
		{"another version, personal", func(v *View) { v.Client, v.Daemon.Mode = "2.0", "personal" }, "daemon warning: was upgraded alone | kill 7"},
		{"bad configuration", func(v *View) { v.Daemon.ConfigProblem = "[3:1] unknown field" }, "configuration warning: stays in force: [3:1] unknown field"},
		{"state closed", func(v *View) { v.Daemon.StateWritable = false }, "state problem: /var/lib/gputop, cannot be written | ls -ld /var/lib/gputop"},
		{"state's disk full", func(v *View) { v.Daemon.StateFree = ref(engine.MiB) }, "state problem: 1MiB free in /var/lib/gputop | df -h /var/lib/gputop"},
		{"state's disk nearly full", func(v *View) { v.Daemon.StateFree = ref(engine.GiB) }, "state warning: only 1GiB free | df -h /var/lib/gputop"},
		{"no driver", func(v *View) { v.Driver = Driver{} }, "driver problem: no NVIDIA driver is installed | sudo apt-get install nvidia-driver"},
		{"module not loaded", func(v *View) { v.Driver.Kernel = "" }, "driver problem: is not loaded | sudo modprobe nvidia"},
		{"no library", func(v *View) { v.Driver.Library = "" }, "driver problem: is not found | sudo apt-get install libnvidia-ml1"},
		{"upgraded under way", func(v *View) { v.Driver.Library = "575.2" }, "driver problem: the loaded module is 570.1, the library 575.2 | sudo reboot"},
		{"sampler away", func(v *View) { v.Daemon.Sample = "the driver may hang" }, "gpus problem: no GPU can be used: the driver may hang | nvidia-smi"},
		{"no card", func(v *View) { v.Daemon.Cards = nil }, "gpus problem: no GPU is seen | nvidia-smi"},
		{"a card lost", func(v *View) { v.Daemon.Cards[1].Health = engine.HealthLost }, "gpus problem: GPU 1 does not answer | nvidia-smi -q"},
		{"no toolkit", func(v *View) { v.Toolkit = false }, "toolkit problem: (nvidia-ctk) is not installed | sudo apt-get install nvidia-container-toolkit   (from NVIDIA's package repository)"},
		{"stale spec", func(v *View) {
			p := api.SpecProblem{Code: "stale", File: "/etc/cdi/nvidia.yaml", Message: "is out of date", Fix: "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"}
			v.Daemon.Cards[0].Problems, v.Daemon.Cards[1].Problems = []api.SpecProblem{p}, []api.SpecProblem{p}
		}, "cdi problem: given GPU 0: is out of date | sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"},
		{"leases where Podman does not look", func(v *View) { rt(v).CDISpecDirs = []string{"/etc/cdi"} },
			"cdi problem: leases are written to /var/run/cdi, and Podman 5.4.2 reads /etc/cdi only | sudo gputopd serve --shared --cdi-dir /etc/cdi"},
		{"spec closed, no daemon", func(v *View) {
			v.Daemon, v.Runtime, v.Specs = nil, rt(v), []SpecFile{{"/etc/cdi/nvidia.yaml", false}}
		}, "cdi problem: you may not read /etc/cdi/nvidia.yaml | sudo chmod a+r /etc/cdi/nvidia.yaml"},
		{"no spec, no daemon", func(v *View) { v.Daemon, v.Runtime = nil, rt(v) }, "cdi problem: no CDI spec | sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"},
		{"nodes for all", func(v *View) { v.Nodes[0].Mode = 0o666 }, "nodes warning: every user of this machine can open /dev/nvidia0 (mode 0666) without asking the queue | "},
		{"nodes for a group", func(v *View) { v.Nodes[0].Opens = false }, "nodes problem: you may not open /dev/nvidia0 | sudo usermod -aG gpu alice"},
		{"nodes for root", func(v *View) { v.Nodes[0].Opens, v.Nodes[0].Group = false, "root" }, "nodes problem: you may not open /dev/nvidia0 | sudo chmod 0666 /dev/nvidia0"},
		{"no nodes", func(v *View) { v.Nodes = nil }, "nodes problem: there is no /dev/nvidia0 | sudo nvidia-modprobe -c 0 -u"},
		{"no uvm", func(v *View) { v.Nodes = v.Nodes[:1] }, "nodes problem: no /dev/nvidia-uvm | sudo nvidia-modprobe -c 0 -u"},
		{"agent away", func(v *View) { v.Daemon.Agent.Connected, v.Daemon.Agent.Error = false, "systemd-run failed" }, "agent problem: systemd-run failed | journalctl --user -n 50"},
		{"agent's groups", func(v *View) { v.Daemon.Agent.OldGroups = true }, "agent warning: has the groups you had | sudo systemctl restart user@1001.service"},
		{"no podman", func(v *View) {
			*rt(v) = agentrpc.RuntimeInfo{Problem: &agentrpc.Problem{Code: "no-podman", Message: "Podman is not installed", Fix: "sudo apt-get install podman uidmap"}}
		},
			"podman problem: Podman is not installed | sudo apt-get install podman uidmap"},
		{"podman silent", func(v *View) { v.Daemon.Agent.Runtime, v.RuntimeError = nil, "it is not installed" }, "podman problem: it is not installed | sudo apt-get install podman uidmap"},
		{"old podman", func(v *View) { rt(v).PodmanVersion = "3.4.4" }, "podman problem: Podman 3.4.4 is too old | sudo apt-get install podman   (on a newer release)"},
		{"hybrid without runc", func(v *View) { v.HybridCgroup, v.Groups = true, nil }, "runtime problem: runc is not installed | sudo apt-get install runc"},
		{"no runtime", func(v *View) {
			rt(v).Problem = &agentrpc.Problem{Code: "no-runtime", Message: "Podman has no OCI runtime", Fix: "sudo apt-get install crun"}
		},
			"runtime problem: no OCI runtime | sudo apt-get install crun"},
		{"no subuids", func(v *View) { v.Subuids = false }, "subuids problem: alice has no range | sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 alice"},
		{"no subgids", func(v *View) { v.Subgids = false }, "subuids problem: alice has no range | sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 alice"},
		{"no newuidmap", func(v *View) { v.Newuidmap = false }, "subuids problem: newuidmap is not installed | sudo apt-get install uidmap"},
		{"no linger", func(v *View) { rt(v).Linger = ref(false) }, "linger warning: end when you log out | loginctl enable-linger alice"},
		{"cgroup v1", func(v *View) { rt(v).CgroupVersion = 1 }, "cgroup warning: cgroup v1 | " + oneCgroup},
		{"no controllers", func(v *View) { rt(v).Controllers = []string{"memory"} }, "controllers warning: no such limit: cpu, pids | " + delegate},
		{"groups under runc", func(v *View) { rt(v).OCIRuntime = "runc" }, "groups warning: the groups vision is closed | sudo apt-get install crun"},
		{"groups, hybrid", func(v *View) { v.HybridCgroup, v.Runc = true, true }, "groups warning: only crun keeps groups | " + oneCgroup},
		{"old login", func(v *View) { v.NewGroups = []string{"audio"} }, "groups warning: older than your membership in audio | exec su - alice"},
		{"vfs", func(v *View) { rt(v).StorageDriver = "vfs" }, "storage warning: (storage driver vfs) | " +
			`mkdir -p ~/.config/containers && printf '[storage]\ndriver = "overlay"\n' > ~/.config/containers/storage.conf && podman system reset`},
		{"home on NFS", func(v *View) { v.Home.Network = "nfs" }, "home warning: /home/alice is on a network file system (nfs) | " +
			`mkdir -p ~/.config/containers && printf '[storage]\ndriver = "overlay"\nrootless_storage_path = "/var/tmp/alice-containers"\n' > ~/.config/containers/storage.conf`},
		{"home closed", func(v *View) { v.Agent.Writable = false }, "home problem: cannot be written | ls -ld /home/alice/.local/state/gputop"},
		{"home full", func(v *View) { v.Agent.Free = ref(engine.MiB) }, "home problem: checkpoints of your jobs are lost | df -h /home/alice/.local/state/gputop"},
		{"no pasta", func(v *View) { v.Pasta = false }, "network warning: pasta is not installed | sudo apt-get install passt"},
		{"no slirp", func(v *View) { rt(v).PodmanVersion = "4.3.1" }, "network warning: slirp4netns is not installed | sudo apt-get install slirp4netns"},
		{"no tun", func(v *View) { v.Tun = false }, "network warning: /dev/net/tun is closed | sudo chmod 0666 /dev/net/tun"},
		{"no catatonit", func(v *View) { v.Catatonit = false }, "init warning: catatonit is not installed | sudo apt-get install catatonit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := good()
			tc.change(&v)
			head, fix, _ := strings.Cut(tc.want, " | ")
			head, words, _ := strings.Cut(head, ": ")
			n := 0
			for _, f := range Check(v) {
				if fmt.Sprintf("%s %s", f.Check, f.Level) == head {
					n++
					if !strings.Contains(f.Message, words) || f.Fix != fix {
						t.Errorf("%q, mended by %q;\nwant %q, %q", f.Message, f.Fix, words, fix)
					}
				} else if f.Level != OK && v.Daemon != nil {
					t.Errorf("also %+v", f)
				}
			}
			if n != 1 {
				t.Errorf("%d findings %q, want one: %+v", n, head, Check(v))
			}
		})
	}
}

func TestSimulatedCardsNeedNothingOfNVIDIAs(t *testing.T) {
	v := good()
	v.Driver, v.Toolkit, v.Nodes, v.Daemon.Simulated = Driver{}, false, nil, true
	said := false
	for _, f := range Check(v) {
		if f.Level != OK {
			t.Errorf("%+v", f)
		}
		said = said || f.Check == "driver" && strings.Contains(f.Message, "SIMULATED")
	}
	if !said {
		t.Error("nothing says SIMULATED")
	}
}

func TestRootIsToldToAskAsAUser(t *testing.T) {
	v := good()
	v.UID, v.User, v.Daemon.Agent = 0, "root", api.AgentDiagnosis{}
	f := Check(v)
	if last := f[len(f)-1]; last.Check != "account" || !strings.Contains(last.Message, "as an ordinary user") || Problems(f, Problem) != 0 {
		t.Errorf("%+v", f)
	}
}
