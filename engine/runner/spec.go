package runner

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containers/podman/v5/pkg/specgen"
	spec "github.com/opencontainers/runtime-spec/specs-go"
	nettypes "go.podman.io/common/libnetwork/types"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/runner/account"
)

// Labels by which a container is known as an attempt's.
const (
	LabelJob     = "gputop.job"
	LabelAttempt = "gputop.attempt"
	// LabelPort is the loopback port of the machine that the job's server was given on the host's network.
	LabelPort = "gputop.port"
)

const (
	// maxPIDs is the limit of processes and threads in one container, against runaway forks.
	maxPIDs = 32768
	// cfsPeriod is the kernel's default period of a CPU quota, in microseconds.
	cfsPeriod = 100_000
)

// plan is all that decides what a container looks like; buildSpec reads nothing else.
type plan struct {
	spec    agentrpc.ContainerSpec
	user    account.Account
	runtime agentrpc.RuntimeInfo
	host    hostFacts
	logPath string
	// logSize is the size at which conmon drops the whole log and begins anew, in bytes.
	logSize int64
	// checkpoints is the job's directory that is kept across attempts.
	checkpoints string
	// hostDirs are the host's directories for a host-environment container; home is the physical path of the home.
	hostDirs []string
	home     string
	// freePort is a loopback port that nobody listened on just now; 0 where none is wanted.
	freePort int
	// caches are those of the job's cache directories that are there, relative to home.
	caches []string
}

// buildSpec makes Podman's specification and the notes on what could not be had.
func buildSpec(p plan) (*specgen.SpecGenerator, []string) {
	s := specgen.NewSpecGenerator(p.spec.ImageID, false)
	c := p.spec
	s.Name = c.Name
	s.Labels = map[string]string{LabelJob: c.Attempt.Job.String(), LabelAttempt: strconv.Itoa(c.Attempt.Number)}
	if c.KeepEntrypoint {
		s.Command = c.Command
	} else if len(c.Command) > 0 {
		s.Entrypoint, s.Command = c.Command[:1], c.Command[1:]
	}
	s.WorkDir = c.Workdir
	s.Env = environment(p)
	no, yes := false, true
	s.Privileged, s.Remove, s.NoNewPrivileges = &no, &no, &yes
	s.RestartPolicy, s.Systemd, s.User = "no", "false", "0:0"
	s.LogConfiguration = &specgen.LogConfig{Driver: "k8s-file", Path: p.logPath, Size: p.logSize}
	s.Annotations = map[string]string{}
	if p.runtime.OCIRuntime == "crun" {
		// Without it the lab's group-readable directories are closed to the job.
		s.Annotations["run.oci.keep_original_groups"] = "1"
	}
	if p.host.selinux {
		// Relabelling a home directory would take it from everybody else.
		s.SelinuxOpts = []string{"disable"}
	}
	s.Stdin, s.Terminal = &c.Stdin, &c.Tty
	if c.ShmSize > 0 {
		n := int64(c.ShmSize)
		s.ShmSize = &n
	}
	s.Rlimits = rlimits(p.host)
	mounts(p, s)
	for _, d := range c.CDIDevices {
		s.Devices = append(s.Devices, spec.LinuxDevice{Path: d})
	}
	if c.Edits != nil {
		for _, d := range c.Edits.Devices {
			s.Devices = append(s.Devices, spec.LinuxDevice{Path: d})
		}
	}
	notes := limits(p, s)
	if note := network(p, s); note != "" {
		notes = append(notes, note)
	}
	if note := publish(p, s); note != "" {
		notes = append(notes, note)
	}
	if p.host.initPath != "" {
		s.Init, s.InitPath = &yes, p.host.initPath
	} else {
		notes = append(notes, "no init process in the container: catatonit is not installed (sudo apt-get install catatonit)")
	}
	return s, notes
}

// environment is the job's own over what a login would give; direct edits win, as CDI's do.
func environment(p plan) map[string]string {
	env := map[string]string{}
	if p.spec.HostEnv || p.spec.MountHome {
		env["HOME"], env["USER"], env["LOGNAME"] = p.user.Home, p.user.Name, p.user.Name
	}
	if p.spec.HostEnv {
		env["SHELL"], env["PATH"] = p.user.Shell, account.Path
	}
	maps.Copy(env, p.spec.Env)
	env["GPUTOP_CHECKPOINT_DIR"] = p.checkpoints
	if p.spec.Edits != nil {
		for _, e := range p.spec.Edits.Env {
			k, v, _ := strings.Cut(e, "=")
			env[k] = v
		}
	}
	return env
}

// mounts fills in what of the host is inside. A later mount of the same target replaces an earlier one.
func mounts(p plan, s *specgen.SpecGenerator) {
	var all []engine.Mount
	add := func(m engine.Mount) {
		m.Target = filepath.Clean(m.Target)
		all = slices.DeleteFunc(all, func(o engine.Mount) bool { return o.Target == m.Target })
		all = append(all, m)
	}
	same := func(path string) {
		if !covered(all, path) {
			add(engine.Mount{Source: path, Target: path})
		}
	}
	if p.spec.HostEnv {
		for _, d := range p.hostDirs {
			if d == "/usr" && wantsWritableUsr(p) {
				s.OverlayVolumes = append(s.OverlayVolumes, &specgen.OverlayVolume{Source: d, Destination: d})
				continue
			}
			add(engine.Mount{Source: d, Target: d, ReadOnly: true})
		}
	}
	if p.spec.HostEnv || p.spec.MountHome {
		add(engine.Mount{Source: p.user.Home, Target: p.user.Home})
		// A home behind a link is entered by both names.
		same(p.home)
	}
	for _, c := range p.caches {
		add(engine.Mount{Source: filepath.Join(p.home, c), Target: filepath.Join("/root", c)})
	}
	for _, m := range p.spec.Mounts {
		add(m)
	}
	same(p.spec.Workdir)
	same(p.checkpoints)
	if p.spec.Edits != nil {
		for _, m := range p.spec.Edits.Mounts {
			add(m)
		}
	}
	for _, m := range all {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		s.Mounts = append(s.Mounts, spec.Mount{Type: "bind", Source: m.Source, Destination: m.Target, Options: []string{"rbind", "rprivate", mode}})
	}
}

// wantsWritableUsr says whether a vendor's CDI hooks will make links under /usr. A throw-away overlay costs about a
// tenth of a second at start and at removal, so others get a plain read-only mount.
func wantsWritableUsr(p plan) bool {
	vendor := slices.ContainsFunc(p.spec.CDIDevices, func(d string) bool { return !strings.HasPrefix(d, "gputop/") })
	return vendor && p.runtime.StorageDriver == "overlay"
}

// covered says whether path is there already, writable and at its own place.
func covered(all []engine.Mount, path string) bool {
	best := engine.Mount{ReadOnly: true}
	for _, m := range all {
		if within(path, m.Target) && len(m.Target) > len(best.Target) {
			best = m
		}
	}
	return best.Source == best.Target && !best.ReadOnly
}

// within says whether path is dir or lies in it.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// rlimits raise what jobs run into to the hard limits this user has; more would be refused.
func rlimits(h hostFacts) []spec.POSIXRlimit {
	var out []spec.POSIXRlimit
	if h.memlock > 0 {
		out = append(out, spec.POSIXRlimit{Type: "memlock", Hard: h.memlock, Soft: h.memlock})
	}
	if h.nofile > 0 {
		out = append(out, spec.POSIXRlimit{Type: "nofile", Hard: h.nofile, Soft: min(h.nofile, 1<<20)})
	}
	return out
}

// limits sets what of CPU, memory and process limits this user's cgroup can hold.
func limits(p plan, s *specgen.SpecGenerator) (notes []string) {
	why := func(controller string) string {
		switch {
		case p.runtime.CgroupVersion != 2:
			return "this machine has cgroup v1, where rootless containers get none"
		case !slices.Contains(p.runtime.Controllers, controller):
			return fmt.Sprintf("the %s controller is not delegated to users (systemd: Delegate=%s for user@.service)", controller, controller)
		}
		return ""
	}
	r := &spec.LinuxResources{}
	if p.spec.CPUs > 0 {
		if w := why("cpu"); w != "" {
			notes = append(notes, "no CPU limit: "+w)
		} else {
			quota, period := int64(float64(p.spec.CPUs)*cfsPeriod), uint64(cfsPeriod)
			r.CPU = &spec.LinuxCPU{Quota: &quota, Period: &period}
		}
	}
	if p.spec.Memory > 0 {
		if w := why("memory"); w != "" {
			notes = append(notes, "no memory limit: "+w)
		} else {
			n := int64(p.spec.Memory)
			r.Memory = &spec.LinuxMemory{Limit: &n}
		}
	}
	if why("pids") == "" {
		r.Pids = &spec.LinuxPids{Limit: maxPIDs}
	}
	if r.CPU != nil || r.Memory != nil || r.Pids != nil {
		s.ResourceLimits = r
	}
	return notes
}

// publish gives the job's server a port of the machine's, on the loopback address.
func publish(p plan, s *specgen.SpecGenerator) (note string) {
	if p.spec.Port == 0 {
		return ""
	}
	listen := p.spec.Port
	switch s.NetNS.NSMode {
	case specgen.NoNetwork:
		return "no port: the job has no network"
	case specgen.Host:
		if p.freePort == 0 {
			return "no port: none was free"
		}
		listen = p.freePort
		s.Labels[LabelPort] = strconv.Itoa(listen)
	default:
		// Podman chooses the port outside: two jobs never want the same.
		s.PortMappings = []nettypes.PortMapping{{HostIP: "127.0.0.1", ContainerPort: uint16(listen)}}
	}
	s.Env["GPUTOP_PORT"] = strconv.Itoa(listen)
	return ""
}

// network picks the network; a private one needs a helper program and the tun device.
func network(p plan, s *specgen.SpecGenerator) (note string) {
	switch p.spec.Network {
	case "none":
		s.NetNS.NSMode = specgen.NoNetwork
		return ""
	case "private":
		mode, helper := specgen.Pasta, "pasta"
		if v, err := parseVersion(p.runtime.PodmanVersion); err == nil && v.before(version{5, 0, 0}) {
			mode, helper = specgen.Slirp, "slirp4netns"
		}
		switch {
		case !p.host.tun:
			note = "no private network: /dev/net/tun is closed to users here; the job has the host's network"
		case !p.host.netHelpers[helper]:
			note = "no private network: " + helper + " is not installed; the job has the host's network"
		default:
			s.NetNS.NSMode = mode
			return ""
		}
	}
	s.NetNS.NSMode = specgen.Host
	return note
}
