package runner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"
	"github.com/containers/podman/v5/pkg/bindings/system"
	"golang.org/x/sys/unix"

	"gputop/engine/agentrpc"
)

// oldestPodman is the first release with what jobs need: CDI devices by name, and the container calls used here.
var oldestPodman = version{4, 3, 0}

// programTimeout bounds the small programs a probe asks.
const programTimeout = 20 * time.Second

type version struct{ major, minor, patch int }

// parseVersion reads "4.3.1", also with a suffix such as "5.8.0-rc1" or "4.9.3+ds1".
func parseVersion(s string) (version, error) {
	core, _, _ := strings.Cut(strings.TrimSpace(s), "-")
	core, _, _ = strings.Cut(core, "+")
	f := strings.Split(core, ".")
	var n [3]int
	if len(f) < 2 {
		return version{}, fmt.Errorf("podman version %q: want a number such as 5.4.2", s)
	}
	for i := range min(len(f), 3) {
		v, err := strconv.Atoi(f[i])
		if err != nil || v < 0 {
			return version{}, fmt.Errorf("podman version %q: want a number such as 5.4.2", s)
		}
		n[i] = v
	}
	return version{n[0], n[1], n[2]}, nil
}

func (v version) before(o version) bool {
	return slices.Compare([]int{v.major, v.minor, v.patch}, []int{o.major, o.minor, o.patch}) < 0
}

// cdiSpecDirs are the directories in which that release looks for CDI specs by default.
func (v version) cdiSpecDirs() []string {
	if v.before(version{5, 5, 0}) || !v.before(version{5, 6, 0}) {
		return []string{"/etc/cdi", "/var/run/cdi"}
	}
	return []string{"/etc/cdi"}
}

// probe looks at what this user's Podman can do.
func (a *Agent) probe(ctx context.Context) agentrpc.RuntimeInfo {
	info := a.lookAtRuntime(ctx)
	a.mu.Lock()
	a.runtime = &info
	a.mu.Unlock()
	return info
}

// recentRuntime is the last good probe, or a new one.
func (a *Agent) recentRuntime(ctx context.Context) agentrpc.RuntimeInfo {
	a.mu.Lock()
	r := a.runtime
	a.mu.Unlock()
	if r != nil && r.Problem == nil {
		return *r
	}
	return a.probe(ctx)
}

func (a *Agent) lookAtRuntime(ctx context.Context) agentrpc.RuntimeInfo {
	info := agentrpc.RuntimeInfo{Linger: linger("/", a.user.Name)}
	podman, err := lookPath("podman")
	if err != nil {
		info.Problem = &agentrpc.Problem{Code: "no-podman", Message: "Podman is not installed on this machine",
			Fix: "sudo apt-get install podman uidmap"}
		return info
	}
	ctx, cancel := context.WithTimeout(ctx, serviceStart+programTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, podman, "--version")
	cmd.Env = a.podman.command().Env
	out, err := cmd.Output()
	v, perr := parseVersion(strings.TrimPrefix(strings.TrimSpace(string(out)), "podman version "))
	if err != nil || perr != nil {
		info.Problem = broken(fmt.Errorf("podman --version says %q (%v)", out, err))
		return info
	}
	info.PodmanVersion = fmt.Sprintf("%d.%d.%d", v.major, v.minor, v.patch)
	info.CDISpecDirs = v.cdiSpecDirs()
	if v.before(oldestPodman) {
		info.Problem = tooOld(info.PodmanVersion)
		return info
	}
	if !hasSubordinate(ctx, "/etc/subuid", a.user.Name, a.user.UID, "") || !hasSubordinate(ctx, "/etc/subgid", a.user.Name, a.user.UID, "-g") {
		info.Problem = noSubuid(a.user.Name)
		return info
	}
	var h *define.Info
	err = a.podman.call(ctx, "ask Podman what it can do", func(ctx context.Context) (err error) {
		h, err = system.Info(ctx, nil)
		return err
	})
	if err == nil && h.Host == nil {
		err = fmt.Errorf("podman info came back empty")
	}
	if err != nil {
		info.Problem = broken(err)
		return info
	}
	a.describe(&info, h)
	return info
}

// describe fills in what Podman said.
func (a *Agent) describe(info *agentrpc.RuntimeInfo, h *define.Info) {
	info.CgroupVersion, _ = strconv.Atoi(strings.TrimPrefix(h.Host.CgroupsVersion, "v"))
	info.CgroupManager = h.Host.CgroupManager
	info.Controllers = h.Host.CgroupControllers
	if info.CgroupManager == "systemd" {
		// Podman names those of its own service's cgroup, where systemd enables no more than somebody asked for.
		// Containers get a scope of their own below the user's manager, with all that is delegated to it.
		if c, ok := delegated("/sys/fs/cgroup", a.user.UID); ok {
			info.Controllers = c
		}
	}
	if h.Store != nil {
		info.StorageDriver = h.Store.GraphDriverName
	}
	if h.Host.OCIRuntime != nil {
		info.OCIRuntime = h.Host.OCIRuntime.Name
	}
	if info.OCIRuntime == "crun" && a.host.hybridCgroup {
		info.Problem = &agentrpc.Problem{Code: "no-runtime", Message: "crun does not start containers on this machine, which mounts both cgroup v1 and v2",
			Fix: "sudo apt-get install runc"}
	}
	if info.OCIRuntime == "" {
		info.Problem = &agentrpc.Problem{Code: "no-runtime", Message: "Podman has no OCI runtime to start containers with",
			Fix: "sudo apt-get install crun"}
	}
	if info.StorageDriver == "vfs" {
		info.Warnings = append(info.Warnings, `this account's Podman copies whole images for each container (storage driver vfs): set driver = "overlay" in ~/.config/containers/storage.conf and run "podman system reset"`)
	}
	if info.CgroupVersion == 1 {
		info.Warnings = append(info.Warnings, "this machine has cgroup v1: rootless containers get no CPU or memory limits")
	}
	if info.Linger != nil && !*info.Linger {
		info.Warnings = append(info.Warnings, "your jobs end when you log out: systemd ends what runs for you then (to keep them: loginctl enable-linger "+a.user.Name+")")
	}
	if a.host.initPath == "" {
		info.Warnings = append(info.Warnings, "catatonit is not installed: jobs run without an init process (sudo apt-get install catatonit)")
	}
}

// delegated are the controllers the user's systemd manager may give out; ok is false where there is no such manager.
func delegated(root string, uid uint32) (controllers []string, ok bool) {
	b, err := os.ReadFile(filepath.Join(root, fmt.Sprintf("user.slice/user-%d.slice/user@%d.service/cgroup.controllers", uid, uid)))
	return strings.Fields(string(b)), err == nil
}

func tooOld(have string) *agentrpc.Problem {
	return &agentrpc.Problem{Code: "podman-too-old",
		Message: fmt.Sprintf("Podman %s is too old: gputop needs %d.%d or newer (Ubuntu 22.04 ships 3.4)", have, oldestPodman.major, oldestPodman.minor),
		Fix:     "upgrade to Debian 12, Ubuntu 24.04 or newer"}
}

func noSubuid(name string) *agentrpc.Problem {
	return &agentrpc.Problem{Code: "no-subuid",
		Message: name + " has no range of subordinate user ids, which rootless containers need",
		Fix:     "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + name + "   (a range that no one else has in /etc/subuid)"}
}

func broken(err error) *agentrpc.Problem {
	return &agentrpc.Problem{Code: "podman-broken", Message: "Podman does not work for this user: " + err.Error(),
		Fix: "run: podman info"}
}

// hasSubordinate says whether the user has a subordinate id range, from the file or the name service.
func hasSubordinate(ctx context.Context, file, name string, uid uint32, flag string) bool {
	if data, err := os.ReadFile(file); err == nil && subordinateIn(string(data), name, uid) {
		return true
	}
	getsubids, err := lookPath("getsubids")
	if err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	args := []string{name}
	if flag != "" {
		args = []string{flag, name}
	}
	out, err := exec.CommandContext(ctx, getsubids, args...).Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}

func subordinateIn(text, name string, uid uint32) bool {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) != 3 || f[0] != name && f[0] != strconv.Itoa(int(uid)) {
			continue
		}
		if n, err := strconv.ParseUint(f[2], 10, 32); err == nil && n > 0 {
			return true
		}
	}
	return false
}

// linger says whether the user's processes outlive a logout; nil without systemd. root is "/" but in tests.
func linger(root, name string) *bool {
	if _, err := os.Stat(filepath.Join(root, "run/systemd/system")); err != nil {
		return nil
	}
	_, err := os.Stat(filepath.Join(root, "var/lib/systemd/linger", name))
	on := err == nil
	return &on
}

// hostFacts are what of this machine decides about containers and does not change while an agent lives.
type hostFacts struct {
	hybridCgroup bool
	selinux      bool
	initPath     string
	tun          bool
	netHelpers   map[string]bool
	memlock      uint64 // hard limits of this process
	nofile       uint64
}

func readHostFacts() hostFacts {
	h := hostFacts{netHelpers: map[string]bool{}}
	if c, err := os.ReadFile("/sys/fs/cgroup/unified/cgroup.controllers"); err == nil {
		h.hybridCgroup = strings.TrimSpace(string(c)) != "" // what crun refuses
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err == nil {
		h.selinux = true
	}
	for _, p := range []string{"/usr/libexec/podman/catatonit", "/usr/local/libexec/podman/catatonit", "/usr/local/lib/podman/catatonit",
		"/usr/lib/podman/catatonit", "/usr/libexec/catatonit/catatonit", "/usr/bin/catatonit"} {
		if unix.Access(p, unix.X_OK) == nil {
			h.initPath = p
			break
		}
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err == nil {
		f.Close()
		h.tun = true
	}
	for _, n := range []string{"slirp4netns", "pasta"} {
		_, err := lookPath(n)
		h.netHelpers[n] = err == nil
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r) == nil {
		h.memlock = r.Max
	}
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil {
		h.nofile = r.Max
	}
	return h
}
