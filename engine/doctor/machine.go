package doctor

import (
	"fmt"
	"io/fs"
	"strings"

	"gputop/engine"
)

// Room below which a directory of state is worth a word, and below which it is a problem, in bytes.
const (
	littleRoom = 2 * engine.GiB
	noRoom     = 100 * engine.MiB
)

func daemon(v View) []Finding {
	d := v.Daemon
	if d == nil {
		message, fix, _ := strings.Cut(v.DaemonError, "; look at: ")
		return one("daemon", Problem, message, fix)
	}
	if d.Version != v.Client {
		fix := "sudo systemctl restart gputop"
		if d.Mode == "personal" {
			fix = fmt.Sprintf("kill %d", d.PID) // the next command starts the new one; jobs go on
		}
		return one("daemon", Warning, fmt.Sprintf("the daemon is version %s and this gputop is %s: one of them was upgraded alone", d.Version, v.Client), fix)
	}
	return one("daemon", OK, fmt.Sprintf("gputopd %s answers, in %s mode", d.Version, d.Mode), "")
}

func state(v View) []Finding {
	if v.Daemon == nil || v.Daemon.StateDir == "" {
		return nil
	}
	return directory("state", "gputop's state", Directory{Path: v.Daemon.StateDir, Writable: v.Daemon.StateWritable, Free: v.Daemon.StateFree}, "is full: nothing can be submitted")
}

func configuration(v View) []Finding {
	if v.Daemon == nil || v.Daemon.ConfigProblem == "" {
		return nil
	}
	return one("configuration", Warning, "the file was not taken, and what was read before stays in force: "+v.Daemon.ConfigProblem, "")
}

// directory judges a place that gputop writes to.
func directory(check, what string, d Directory, full string) []Finding {
	switch {
	case !d.Writable:
		return one(check, Problem, fmt.Sprintf("%s, %s, cannot be written", what, d.Path), "ls -ld "+d.Path)
	case d.Free == nil:
		return one(check, OK, fmt.Sprintf("%s is %s", what, d.Path), "")
	case *d.Free < noRoom:
		return one(check, Problem, fmt.Sprintf("the disk with %s (%s free in %s) %s", what, d.Free, d.Path, full), "df -h "+d.Path)
	case *d.Free < littleRoom:
		return one(check, Warning, fmt.Sprintf("the disk with %s has only %s free in %s", what, d.Free, d.Path), "df -h "+d.Path)
	}
	return one(check, OK, fmt.Sprintf("%s, %s, is writable and has %s free", what, d.Path, d.Free), "")
}

func driver(v View) []Finding {
	k, l := v.Driver.Kernel, v.Driver.Library
	switch {
	case v.simulated():
		return one("driver", OK, "the cards are SIMULATED: no NVIDIA driver is needed", "")
	case k == "" && l == "":
		return one("driver", Problem, "no NVIDIA driver is installed: there is no /proc/driver/nvidia/version and no libnvidia-ml.so.1 "+
			"(without a card, gputop --simulate a100-40gb:1 shows it at work)", "sudo apt-get install nvidia-driver")
	case k == "":
		return one("driver", Problem, "NVIDIA's library is installed and its kernel module is not loaded", "sudo modprobe nvidia")
	case l == "":
		return one("driver", Problem, "NVIDIA's kernel module "+k+" is loaded and its library libnvidia-ml.so.1 is not found", "sudo apt-get install libnvidia-ml1")
	case l != "?" && l != k:
		return one("driver", Problem, fmt.Sprintf("the driver was upgraded under way: the loaded module is %s, the library %s", k, l), "sudo reboot")
	}
	return one("driver", OK, "NVIDIA driver "+k, "")
}

func cards(v View) []Finding {
	d := v.Daemon
	switch {
	case d == nil:
		return nil
	case d.Sample != "":
		return one("gpus", Problem, "no GPU can be used: "+d.Sample, "nvidia-smi")
	case len(d.Cards) == 0:
		return one("gpus", Problem, "no GPU is seen", "nvidia-smi")
	}
	var out []Finding
	for _, c := range d.Cards {
		if c.Health != engine.HealthOK {
			out = append(out, one("gpus", Problem, fmt.Sprintf("GPU %d does not answer as it should (%s)", c.Index, c.Health), "nvidia-smi -q")...)
		}
	}
	if len(out) > 0 {
		return out
	}
	s := fmt.Sprintf("%d seen, all healthy", len(d.Cards))
	if d.Simulated {
		s += "; SIMULATED"
	}
	return one("gpus", OK, s, "")
}

func toolkit(v View) []Finding {
	switch {
	case v.simulated():
		return nil
	case !v.Toolkit:
		return one("toolkit", Problem, "NVIDIA's container toolkit (nvidia-ctk) is not installed: nothing describes the cards to containers",
			"sudo apt-get install nvidia-container-toolkit   (from NVIDIA's package repository)")
	}
	return one("toolkit", OK, "nvidia-ctk is installed", "")
}

// specs judges the CDI specs: by what the daemon found for each card, and without it by the files.
func specs(v View) []Finding {
	d := v.Daemon
	if d == nil {
		return specFiles(v)
	}
	var out []Finding
	seen := map[string]bool{}
	for _, c := range d.Cards {
		for _, p := range c.Problems {
			// One old file is at fault for every card: it is told once.
			if key := p.Code + p.File + p.Fix; !seen[key] {
				seen[key] = true
				out = append(out, one("cdi", Problem, fmt.Sprintf("no container can be given GPU %d: %s", c.Index, p.Message), p.Fix)...)
			}
		}
	}
	if out == nil && d.Simulated && d.LeaseDir == "" {
		return one("cdi", OK, "SIMULATED cards go into containers directly: no CDI spec is needed", "")
	}
	if out == nil && len(d.Cards) > 0 {
		out = one("cdi", OK, "every card resolves to a CDI device that you can read", "")
	}
	if rt := v.runtime(); rt != nil && d.LeaseDir != "" && len(rt.CDISpecDirs) > 0 && !contains(rt.CDISpecDirs, d.LeaseDir) {
		out = append(out, one("cdi", Problem, fmt.Sprintf("leases are written to %s, and Podman %s reads %s only", d.LeaseDir, rt.PodmanVersion,
			strings.Join(rt.CDISpecDirs, ", ")), "sudo gputopd serve --shared --cdi-dir "+rt.CDISpecDirs[0])...)
	}
	return out
}

func specFiles(v View) []Finding {
	for _, f := range v.Specs {
		if !f.Readable {
			return one("cdi", Problem, "you may not read "+f.Path, "sudo chmod a+r "+f.Path)
		}
	}
	switch {
	case len(v.Specs) > 0:
		return one("cdi", OK, v.Specs[0].Path+" describes NVIDIA's cards; whether it is up to date, the daemon would know", "")
	case v.Driver.Kernel != "":
		return one("cdi", Problem, "no CDI spec describes NVIDIA's cards", "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
	}
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// nodes judges who may open the cards on the host. What the device gate has closed is its own business.
func nodes(v View) []Finding {
	if len(v.Nodes) == 0 {
		if v.Driver.Kernel != "" && !v.simulated() {
			return one("nodes", Problem, "the driver is loaded and there is no /dev/nvidia0", "sudo nvidia-modprobe -c 0 -u")
		}
		return nil
	}
	var open, closed []string
	uvm, group := false, ""
	for _, n := range v.Nodes {
		uvm = uvm || n.Path == "/dev/nvidia-uvm"
		switch {
		case v.gated(n.Path):
		case !n.Opens:
			closed, group = append(closed, n.Path), n.Group
		case n.Mode.Perm()&0o006 == 0o006:
			open = append(open, n.Path)
		}
	}
	var out []Finding
	if !uvm {
		out = append(out, one("nodes", Problem, "there is no /dev/nvidia-uvm, which CUDA needs", "sudo nvidia-modprobe -c 0 -u")...)
	}
	if len(closed) > 0 && v.UID != 0 {
		fix := "sudo usermod -aG " + group + " " + v.User
		if group == "root" || group == "" {
			fix = "sudo chmod 0666 " + strings.Join(closed, " ")
		}
		out = append(out, one("nodes", Problem, "you may not open "+strings.Join(closed, ", ")+", and neither may your jobs", fix)...)
	}
	if len(open) > 0 {
		fix := ""
		if v.Daemon != nil && v.Daemon.Gate != nil && v.Daemon.Gate.Mode != "enforce" {
			fix = "echo 'gate: enforce' | sudo tee -a /etc/gputop/config.yaml   (read docs/gate.md first)"
		}
		out = append(out, one("nodes", Warning, fmt.Sprintf("every user of this machine can open %s (mode %s) without asking the queue: "+
			"a job in its container is given its own card alone, and nothing holds back a program outside",
			shortList(open), perm(v.Nodes, open[0])), fix)...)
	}
	if out == nil {
		out = one("nodes", OK, fmt.Sprintf("%d device nodes, and no card that everybody can open", len(v.Nodes)), "")
	}
	return out
}

func perm(nodes []Node, path string) string {
	for _, n := range nodes {
		if n.Path == path {
			return fmt.Sprintf("%04o", n.Mode&fs.ModePerm)
		}
	}
	return "?"
}

func shortList(s []string) string {
	if len(s) > 3 {
		return fmt.Sprintf("%s, %s and %d more", s[0], s[1], len(s)-2)
	}
	return strings.Join(s, ", ")
}
