// Package cdi finds and checks the Container Device Interface specs on a machine, and writes and removes our own: one
// lease per attempt and one spec of the simulated devices. It resolves names as Podman's reader does and says in a
// sentence why a name would not resolve. It must not start anything, talk to Podman, or change a file that is not ours.
package cdi

import "strings"

// The kinds of CDI device a job is given.
const (
	GPUKind       = "nvidia.com/gpu" // written by nvidia-ctk
	SimulatedKind = "gputop.sim/gpu" // SIMULATED cards
	LeaseKind     = "gputop/lease"
)

// specVersion is what we write: Podman 4.3 silently skips a file with a newer one.
const specVersion = "0.5.0"

// DefaultDirs is where Podman looks, later directories winning over earlier ones.
var DefaultDirs = []string{"/etc/cdi", "/var/run/cdi"}

// Mount is a file or directory of the host inside the container.
type Mount struct {
	HostPath, ContainerPath string
	ReadOnly                bool
}

// Edits are what a CDI device changes in a container.
type Edits struct {
	Env    []string // "NAME=value"
	Mounts []Mount
	// DeviceNodes are paths of device nodes, the same on the host and in the container.
	DeviceNodes []string
	// Hooks is the number of OCI hooks, which edits given directly to Podman cannot carry.
	Hooks int
}

func (e Edits) empty() bool {
	return len(e.Env) == 0 && len(e.Mounts) == 0 && len(e.DeviceNodes) == 0 && e.Hooks == 0
}

// The codes of a Problem.
const (
	CodeNoSpec       = "no-spec"      // no file defines this kind of device
	CodeUnresolvable = "unresolvable" // the kind is known, the device is not
	CodeConflict     = "conflict"     // two files of one directory define the name, which kills both
	CodeStale        = "stale"        // the spec names a node, mount or hook that is not there
	CodeUnreadable   = "unreadable"   // the file, or what it names, may not be read
	CodeTooNew       = "too-new"      // Podman's reader silently skips a spec of this version
	CodeBadVendor    = "bad-vendor"   // a one-letter vendor or class, which crashes the reader
	CodeInvalid      = "invalid"      // not a CDI spec, or not a CDI name
)

// Problem is why a CDI device cannot be used, for programs (Code) and for people (Message, Fix).
type Problem struct {
	Code string
	Name string // the qualified name that was asked for; empty when a file harms every name
	File string // the spec file at fault; empty when there is none
	// Message says what is wrong; Fix is a command or a sentence that mends it.
	Message, Fix string
}

func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString("CDI")
	if p.Name != "" {
		b.WriteString(" device " + printable(p.Name))
	}
	b.WriteString(": ")
	if p.File != "" {
		b.WriteString(printable(p.File) + ": ")
	}
	b.WriteString(p.Message)
	if p.Fix != "" {
		b.WriteString("; to mend it: " + p.Fix)
	}
	return b.String()
}
