// Package doctor says what on this machine keeps jobs from running, or makes them run worse, and which command mends it.
// Check judges a View and nothing else, so that every finding can be tested; Look reads the part of a View that the
// calling user sees, and the daemon's Diagnosis is the rest. The package changes nothing, starts nothing but programs
// that answer a question, and links neither NVML nor Podman.
package doctor

import (
	"io/fs"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // jobs run, and something is worse than it could be
	Problem Level = "problem" // jobs do not run
)

// Finding is one look at one thing.
type Finding struct {
	// Check names what was looked at, in one word.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Message is one sentence, and Fix the command that mends it; empty where nothing is wrong or no command helps.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// View is the machine as the calling user and the daemon see it.
type View struct {
	User string
	UID  int
	// Client is this program's version.
	Client string
	// Daemon is nil when no daemon answers, and DaemonError then says why.
	Daemon      *api.Diagnosis
	DaemonError string

	Systemd bool
	Driver  Driver
	Toolkit bool // nvidia-ctk is installed
	Specs   []SpecFile
	Nodes   []Node
	// Gate is what decides whether the device gate can hold, and whom it would shut out.
	Gate GateView

	// Runtime is what the user's Podman says, asked here; the agent's word in Daemon goes before it. RuntimeError says why
	// there is none.
	Runtime      *agentrpc.RuntimeInfo
	RuntimeError string
	// HybridCgroup: both cgroup versions are mounted in the way that crun refuses.
	HybridCgroup bool
	Runc         bool
	Newuidmap    bool
	Subuids      bool
	Subgids      bool
	// Groups are the user's supplementary groups by name; NewGroups those the user has been given since this login.
	Groups, NewGroups []string
	Home              Directory
	// Agent is where the user's output and checkpoints go.
	Agent     Directory
	Tun       bool
	Pasta     bool
	Slirp     bool
	Catatonit bool
	// Ready are the images that an admin keeps ready; nil when the daemon was not asked.
	Ready []ReadyImage
}

// ReadyImage is an image that an admin wants to be there for everybody.
type ReadyImage struct {
	// Name is its full name, and Archive the file that should hold it.
	Name, Archive string
	// Archived says that the user can read that file, and Closed that it is there and the user cannot.
	Archived, Closed bool
	// Stored says that the user's Podman holds it.
	Stored bool
}

// Driver is what is installed of NVIDIA's driver; versions are empty when not found.
type Driver struct {
	Kernel  string // of the loaded module
	Library string // of libnvidia-ml.so.1, "?" when it is there and its version is not in its name
}

// SpecFile is a CDI spec file that names NVIDIA's devices, or cannot be read.
type SpecFile struct {
	Path     string
	Readable bool
}

// Node is a device node of a card or of the driver.
type Node struct {
	Path string
	Mode fs.FileMode
	// Group is the owning group's name, and Opens whether the user may read and write it.
	Group string
	Opens bool
}

// Directory is a place that must be there, writable and local.
type Directory struct {
	Path string
	// Writable by the user; also when it is not there and can be made.
	Writable bool
	// Network names a network file system, such as "nfs"; empty for a local one.
	Network string
	// Free is the room left for the user, in bytes; nil when unknown.
	Free *engine.Bytes
}

// runtime is the best word on the user's Podman there is.
func (v View) runtime() *agentrpc.RuntimeInfo {
	if v.Daemon != nil && v.Daemon.Agent.Runtime != nil {
		return v.Daemon.Agent.Runtime
	}
	return v.Runtime
}

// simulated says whether the daemon's cards are simulated, so that nothing of NVIDIA's is needed.
func (v View) simulated() bool { return v.Daemon != nil && v.Daemon.Simulated }

// Check judges a view. The order is fixed: what everything else needs comes first.
func Check(v View) []Finding {
	var out []Finding
	for _, check := range []func(View) []Finding{daemon, configuration, state, driver, cards, toolkit, specs, nodes, deviceGate} {
		out = append(out, check(v)...)
	}
	if v.UID == 0 {
		return append(out, Finding{Check: "account", Level: OK,
			Message: "root runs no jobs, so the checks of an account are left out: run gputop doctor as an ordinary user for them"})
	}
	for _, check := range []func(View) []Finding{agent, podman, runtime, subordinate, linger, cgroup, groups, storage, home, network, initProcess, ready} {
		out = append(out, check(v)...)
	}
	return out
}

// Problems counts the findings of a level.
func Problems(f []Finding, l Level) (n int) {
	for _, x := range f {
		if x.Level == l {
			n++
		}
	}
	return n
}

func one(check string, l Level, message, fix string) []Finding {
	return []Finding{{Check: check, Level: l, Message: message, Fix: fix}}
}
