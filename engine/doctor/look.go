package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine/agentrpc"
	"gputop/engine/host"
)

// programTime bounds each program that is asked a question.
const programTime = 20 * time.Second

// searchPath is where programs of the system are looked for, whatever the caller's PATH.
var searchPath = []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"}

// Machine is where Look looks. The zero value with Root "/" is this machine.
type Machine struct {
	// Root is "/" but in tests.
	Root string
	// Ask runs a program and returns its output; nil runs it on this machine.
	Ask func(ctx context.Context, program string, args ...string) (string, error)
}

func (m Machine) path(p string) string { return filepath.Join(m.Root, p) }

func (m Machine) there(p string) bool {
	_, err := os.Stat(m.path(p))
	return err == nil
}

func (m Machine) installed(program string) bool {
	return slices.ContainsFunc(searchPath, func(d string) bool {
		fi, err := os.Stat(m.path(filepath.Join(d, program)))
		return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
	})
}

// run is Ask on this machine. An error carries what the program said.
func run(ctx context.Context, program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		if last := lines[len(lines)-1]; last != "" {
			err = errors.New(last)
		}
	}
	return string(out), err
}

// Look reads what the calling user sees of a machine: everything of a View but the daemon and the client's version. What
// cannot be read is left out.
func Look(ctx context.Context, m Machine) View {
	if m.Ask == nil {
		m.Ask = run
	}
	v := View{UID: os.Getuid(), User: strconv.Itoa(os.Getuid())}
	homeDir, _ := os.UserHomeDir()
	if u, err := user.Current(); err == nil {
		v.User, homeDir = u.Username, firstOf(u.HomeDir, homeDir)
	}
	v.Systemd = m.there("/run/systemd/system")
	v.Driver, v.Toolkit = m.driver(), m.installed("nvidia-ctk")
	v.Specs, v.Nodes, v.Gate = m.specs(), m.nodes(), m.gate()
	if v.UID == 0 {
		return v
	}
	if c, err := os.ReadFile(m.path("/sys/fs/cgroup/unified/cgroup.controllers")); err == nil {
		v.HybridCgroup = strings.TrimSpace(string(c)) != ""
	}
	v.Runc, v.Newuidmap = m.installed("runc"), m.installed("newuidmap")
	v.Subuids, v.Subgids = m.subordinate(ctx, "/etc/subuid", v), m.subordinate(ctx, "/etc/subgid", v, "-g")
	v.Groups, v.NewGroups = m.groups(ctx, v.User)
	if homeDir != "" {
		v.Home = m.directory(homeDir)
		v.Agent = m.directory(filepath.Join(homeDir, ".local", "state", "gputop"))
	}
	if f, err := os.OpenFile(m.path("/dev/net/tun"), os.O_RDWR, 0); err == nil {
		f.Close()
		v.Tun = true
	}
	v.Pasta, v.Slirp = m.installed("pasta"), m.installed("slirp4netns")
	v.Catatonit = slices.ContainsFunc([]string{"/usr/libexec/podman/catatonit", "/usr/local/libexec/podman/catatonit", "/usr/local/lib/podman/catatonit",
		"/usr/lib/podman/catatonit", "/usr/libexec/catatonit/catatonit", "/usr/bin/catatonit"}, m.there)
	return v
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func (m Machine) driver() (d Driver) {
	b, _ := os.ReadFile(m.path("/proc/driver/nvidia/version"))
	// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 …", or "… Open Kernel Module for x86_64  560.35 …".
	line, _, _ := strings.Cut(string(b), "\n")
	for _, w := range strings.Fields(line) {
		if strings.Trim(w, "0123456789.") == "" && strings.Contains(w, ".") {
			d.Kernel = w
			break
		}
	}
	for _, dir := range []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/lib/wsl/lib",
		"/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/local/nvidia/lib64", "/lib/x86_64-linux-gnu", "/run/opengl-driver/lib"} {
		real, err := filepath.EvalSymlinks(m.path(filepath.Join(dir, "libnvidia-ml.so.1")))
		if err != nil {
			continue
		}
		d.Library = "?"
		if v, ok := strings.CutPrefix(filepath.Base(real), "libnvidia-ml.so."); ok && strings.Contains(v, ".") {
			d.Library = v
		}
		break
	}
	return d
}

// specs are the CDI files that name NVIDIA's cards, or cannot be read; not the leases, which are each for one user.
func (m Machine) specs() (out []SpecFile) {
	for _, dir := range []string{"/etc/cdi", "/var/run/cdi"} {
		entries, _ := os.ReadDir(m.path(dir)) // a missing directory has none
		for _, e := range entries {
			ext := filepath.Ext(e.Name())
			if ext != ".json" && ext != ".yaml" || strings.HasPrefix(e.Name(), "gputop-") {
				continue
			}
			p := filepath.Join(dir, e.Name())
			switch b, err := os.ReadFile(m.path(p)); {
			case errors.Is(err, os.ErrPermission):
				out = append(out, SpecFile{Path: p})
			case err == nil && bytes.Contains(b, []byte("nvidia.com/gpu")):
				out = append(out, SpecFile{Path: p, Readable: true})
			}
		}
	}
	return out
}

// nodes are the device nodes of cards and of the driver that a job opens.
func (m Machine) nodes() (out []Node) {
	paths, _ := filepath.Glob(m.path("/dev/nvidia[0-9]*")) // only a bad pattern fails
	for _, p := range append(paths, m.path("/dev/nvidiactl"), m.path("/dev/nvidia-uvm")) {
		fi, err := os.Stat(p)
		if err != nil {
			continue
		}
		inside, _ := filepath.Rel(m.Root, p)
		n := Node{Path: "/" + inside, Mode: fi.Mode(), Opens: unix.Faccessat(unix.AT_FDCWD, p, unix.R_OK|unix.W_OK, unix.AT_EACCESS) == nil}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			if g, err := user.LookupGroupId(strconv.Itoa(int(st.Gid))); err == nil {
				n.Group = g.Name
			}
		}
		out = append(out, n)
	}
	return out
}

// subordinate says whether the user has a range of subordinate ids, in the file or by the name service.
func (m Machine) subordinate(ctx context.Context, file string, v View, flag ...string) bool {
	b, _ := os.ReadFile(m.path(file))
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 3 && (f[0] == v.User || f[0] == strconv.Itoa(v.UID)) && f[2] != "0" {
			return true
		}
	}
	if !m.installed("getsubids") {
		return false
	}
	out, err := m.Ask(ctx, "getsubids", append(flag, v.User)...)
	return err == nil && strings.TrimSpace(out) != ""
}

// groups are the names of this process's supplementary groups, and of those the user has been given since it logged in.
func (m Machine) groups(ctx context.Context, name string) (has, gained []string) {
	fields := func(args ...string) []string {
		out, err := m.Ask(ctx, "id", args...)
		if err != nil {
			return nil
		}
		return strings.Fields(out)
	}
	primary, mine, should := fields("-gn"), fields("-Gn"), fields("-Gn", name)
	for _, g := range mine {
		if !slices.Contains(primary, g) {
			has = append(has, g)
		}
	}
	for _, g := range should {
		if !slices.Contains(mine, g) && mine != nil {
			gained = append(gained, g)
		}
	}
	return has, gained
}

// networkFS are the magic numbers of file systems on another machine (statfs(2)).
var networkFS = map[uint32]string{0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x00c36400: "ceph",
	0x5346414f: "afs", 0x0bd00bd0: "lustre", 0x19830326: "beegfs", 0x47504653: "gpfs"}

// directory looks at a directory, or at the nearest one above that is there.
func (m Machine) directory(path string) Directory {
	d := Directory{Path: path}
	at := m.path(path)
	for {
		if _, err := os.Stat(at); err == nil || at == "/" || at == "." {
			break
		}
		at = filepath.Dir(at)
	}
	d.Writable = unix.Faccessat(unix.AT_FDCWD, at, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
	var st unix.Statfs_t
	if unix.Statfs(at, &st) == nil {
		d.Network = networkFS[uint32(st.Type)]
	}
	if n, err := host.Free(at); err == nil {
		d.Free = &n
	}
	return d
}

// AskPodman asks the user's own Podman, for when no agent has.
func AskPodman(ctx context.Context, m Machine, v *View) {
	if m.Ask == nil {
		m.Ask = run
	}
	if !m.installed("podman") {
		v.RuntimeError = "it is not installed"
		return
	}
	out, err := m.Ask(ctx, "podman", "info", "--format", "json")
	var info struct {
		Host struct {
			CgroupVersion, CgroupManager string
			CgroupControllers            []string
			OCIRuntime                   struct{ Name string }
		}
		Store   struct{ GraphDriverName string }
		Version struct{ Version string }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &info)
	}
	if err != nil {
		v.RuntimeError = fmt.Sprint(err)
		return
	}
	rt := &agentrpc.RuntimeInfo{PodmanVersion: info.Version.Version, OCIRuntime: info.Host.OCIRuntime.Name, CgroupManager: info.Host.CgroupManager,
		Controllers: info.Host.CgroupControllers, StorageDriver: info.Store.GraphDriverName}
	rt.CgroupVersion, _ = strconv.Atoi(strings.TrimPrefix(info.Host.CgroupVersion, "v"))
	if v.Systemd {
		on := m.there("/var/lib/systemd/linger/" + v.User)
		rt.Linger = &on
	}
	v.Runtime = rt
}
