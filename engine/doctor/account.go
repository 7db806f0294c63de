package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

// delegate is how an admin gives users' systemd managers the controllers that limits need.
const delegate = `sudo mkdir -p /etc/systemd/system/user@.service.d && printf '[Service]\nDelegate=cpu cpuset io memory pids\n' | ` +
	`sudo tee /etc/systemd/system/user@.service.d/delegate.conf && sudo systemctl daemon-reload`

// oneCgroup is how an admin has the machine boot with cgroup v2 alone.
const oneCgroup = `sudo sed -i 's/^GRUB_CMDLINE_LINUX="/&systemd.unified_cgroup_hierarchy=1 /' /etc/default/grub && sudo update-grub && sudo reboot`

func agent(v View) []Finding {
	if v.Daemon == nil {
		return nil
	}
	a := v.Daemon.Agent
	switch {
	case !a.Connected:
		return one("agent", Problem, "your agent, which runs your containers, is not connected: "+a.Error, "journalctl --user -n 50")
	case a.OldGroups && v.Systemd:
		return one("agent", Warning, "your agent has the groups you had when your systemd manager started; restarting that ends your jobs",
			fmt.Sprintf("sudo systemctl restart user@%d.service", v.UID))
	case a.OldGroups:
		return one("agent", Warning, "your agent has groups you no longer have, or lacks new ones; it is replaced when no call is under way", "")
	}
	return one("agent", OK, "your agent is connected", "")
}

func podman(v View) []Finding {
	rt := v.runtime()
	switch {
	case rt == nil:
		return one("podman", Problem, "Podman does not answer: "+v.RuntimeError, "sudo apt-get install podman uidmap")
	case rt.Problem != nil && rt.Problem.Code != "no-subuid" && rt.Problem.Code != "no-runtime": // told by their own checks
		return one("podman", Problem, rt.Problem.Message, rt.Problem.Fix)
	case tooOld(rt.PodmanVersion):
		return one("podman", Problem, "Podman "+rt.PodmanVersion+" is too old: gputop needs 4.3 or newer, as in Debian 12 and Ubuntu 24.04",
			"sudo apt-get install podman   (on a newer release)")
	}
	s := "Podman " + rt.PodmanVersion
	if len(rt.CDISpecDirs) > 0 {
		s += ", which reads CDI specs in " + strings.Join(rt.CDISpecDirs, " and ")
	}
	return one("podman", OK, s, "")
}

// tooOld says whether a Podman is older than 4.3; one whose version cannot be read is not.
func tooOld(version string) bool {
	f := strings.SplitN(version, ".", 3)
	if len(f) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(f[0])
	minor, err2 := strconv.Atoi(f[1])
	return err1 == nil && err2 == nil && (major < 4 || major == 4 && minor < 3)
}

func runtime(v View) []Finding {
	rt := v.runtime()
	switch {
	case rt == nil || rt.PodmanVersion == "":
		return nil
	case v.HybridCgroup && !v.Runc:
		return one("runtime", Problem, "crun starts no container on this machine, which mounts both cgroup v1 and v2, and runc is not installed",
			"sudo apt-get install runc")
	case rt.Problem != nil && rt.Problem.Code == "no-runtime":
		return one("runtime", Problem, rt.Problem.Message, rt.Problem.Fix)
	case v.HybridCgroup:
		return one("runtime", OK, "runc, since this machine mounts both cgroup v1 and v2, which crun refuses", "")
	case rt.OCIRuntime == "":
		return nil // Podman was not asked: its own finding says why
	}
	return one("runtime", OK, rt.OCIRuntime+" starts the containers", "")
}

func subordinate(v View) []Finding {
	var out []Finding
	if !v.Newuidmap {
		out = one("subuids", Problem, "newuidmap is not installed, with which rootless containers get their ids", "sudo apt-get install uidmap")
	}
	if !v.Subuids || !v.Subgids {
		return append(out, one("subuids", Problem, v.User+" has no range of subordinate ids, which rootless containers need; take one that nobody has in /etc/subuid",
			"sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "+v.User)...)
	}
	if out == nil {
		out = one("subuids", OK, "subordinate user and group ids are there", "")
	}
	return out
}

func linger(v View) []Finding {
	rt := v.runtime()
	switch {
	case !v.Systemd:
		return one("linger", OK, "no systemd here: a logout ends nothing of yours", "")
	case rt == nil || rt.Linger == nil:
		return nil
	case !*rt.Linger:
		return one("linger", Warning, "your jobs end when you log out, since systemd ends what runs for you then", "loginctl enable-linger "+v.User)
	}
	return one("linger", OK, "your jobs go on when you log out", "")
}

func cgroup(v View) []Finding {
	rt := v.runtime()
	if rt == nil || rt.CgroupVersion == 0 {
		return nil
	}
	if rt.CgroupVersion == 1 {
		return one("cgroup", Warning, "this machine has cgroup v1: containers of users get no CPU, memory or process limits", oneCgroup)
	}
	out := one("cgroup", OK, "cgroup v2", "")
	var missing []string
	for _, c := range []string{"cpu", "memory", "pids"} {
		if !contains(rt.Controllers, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return append(out, one("controllers", Warning, "not delegated to your containers, so that there is no such limit: "+strings.Join(missing, ", "), delegate)...)
	}
	return append(out, one("controllers", OK, "cpu, memory and pids are delegated to your containers", "")...)
}

func groups(v View) []Finding {
	rt := v.runtime()
	var out []Finding
	if len(v.NewGroups) > 0 {
		out = one("groups", Warning, "this login is older than your membership in "+strings.Join(v.NewGroups, ", ")+": log out and in again", "exec su - "+v.User)
	}
	switch {
	case len(v.Groups) == 0 || rt == nil || rt.OCIRuntime == "":
		return out
	case rt.OCIRuntime != "crun" || v.HybridCgroup:
		fix := "sudo apt-get install crun"
		if v.HybridCgroup {
			fix = oneCgroup // crun does not start here
		}
		return append(out, one("groups", Warning, "what you reach only through the groups "+strings.Join(v.Groups, ", ")+
			" is closed to your jobs: only crun keeps groups, and the runtime here is runc", fix)...)
	}
	return append(out, one("groups", OK, "your jobs keep the groups "+strings.Join(v.Groups, ", "), "")...)
}

func storage(v View) []Finding {
	rt := v.runtime()
	switch {
	case rt == nil || rt.StorageDriver == "":
		return nil
	case rt.StorageDriver == "vfs":
		return one("storage", Warning, "your Podman copies whole images for each container (storage driver vfs), which is slow; changing it drops your images and containers",
			`mkdir -p ~/.config/containers && printf '[storage]\ndriver = "overlay"\n' > ~/.config/containers/storage.conf && podman system reset`)
	}
	return one("storage", OK, "storage driver "+rt.StorageDriver, "")
}

func home(v View) []Finding {
	if v.Home.Network != "" {
		return one("home", Warning, fmt.Sprintf("your home %s is on a network file system (%s), where Podman's images do not work well; keep them on a local disk", v.Home.Path, v.Home.Network),
			fmt.Sprintf(`mkdir -p ~/.config/containers && printf '[storage]\ndriver = "overlay"\nrootless_storage_path = "/var/tmp/%s-containers"\n' > ~/.config/containers/storage.conf`, v.User))
	}
	return directory("home", "your own part of the state", v.Agent, "is full: output and checkpoints of your jobs are lost")
}

func network(v View) []Finding {
	rt := v.runtime()
	if rt == nil || rt.PodmanVersion == "" {
		return nil
	}
	helper, there := "pasta", v.Pasta
	pkg := "passt"
	if strings.HasPrefix(rt.PodmanVersion, "4.") {
		helper, pkg, there = "slirp4netns", "slirp4netns", v.Slirp
	}
	switch {
	case !there:
		return one("network", Warning, helper+" is not installed: jobs that want a network of their own have the host's", "sudo apt-get install "+pkg)
	case !v.Tun:
		return one("network", Warning, "/dev/net/tun is closed to you: jobs that want a network of their own have the host's", "sudo chmod 0666 /dev/net/tun")
	}
	return one("network", OK, helper+" gives a job a network of its own", "")
}

func initProcess(v View) []Finding {
	if !v.Catatonit {
		return one("init", Warning, "catatonit is not installed: jobs run without an init process, and may not hear SIGTERM", "sudo apt-get install catatonit")
	}
	return one("init", OK, "catatonit is there", "")
}
