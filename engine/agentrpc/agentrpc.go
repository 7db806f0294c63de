// Package agentrpc is the protocol between the engine and a user's agent: newline-delimited JSON frames over one Unix
// socket connection that the agent opens. Both sides bound the size of a frame and the time of a call; the engine
// believes nothing an agent says that it can check by itself.
package agentrpc

import (
	"errors"
	"fmt"
	"time"

	"gputop/engine"
)

// Protocol is the version of this protocol; both sides must have the same.
const Protocol = 1

// MaxFrame is the largest frame either side accepts, in bytes.
const MaxFrame = 1 << 20

// Method names a call from the engine to the agent.
type Method string

// The calls. All but ReadLog answer within seconds; Prepare may take as long as a pull.
const (
	MethodProbe        Method = "probe"         // nil -> RuntimeInfo
	MethodResolveImage Method = "resolve-image" // ResolveImageArgs -> Image
	MethodPrepare      Method = "prepare"       // PrepareArgs -> Image
	MethodCreate       Method = "create"        // ContainerSpec -> Container; an existing one of that name is inspected
	MethodInit         Method = "init"          // Ref -> Container, with PID
	MethodStart        Method = "start"         // Ref -> Container
	MethodInspect      Method = "inspect"       // Ref -> Container
	MethodStop         Method = "stop"          // StopArgs -> nil; answers when the signal is sent
	MethodWarn         Method = "warn"          // WarnArgs -> nil; tells a program that its time is nearly over
	MethodRemove       Method = "remove"        // Ref -> nil; a container that is gone is no error
	MethodReadLog      Method = "read-log"      // ReadLogArgs -> LogChunk
	MethodForget       Method = "forget"        // ForgetArgs -> nil: drops logs and checkpoints of a job, if it has no container
	MethodKept         Method = "kept"          // nil -> KeptJobs
	MethodCheck        Method = "check"         // PrepareArgs -> nil: what of a Prepare needs no Podman, at once
	MethodImages       Method = "images"        // nil -> ImageList
	MethodEnd          Method = "end"           // nil -> nil: the agent ends as soon as no call but ReadLog is under way
	// MethodPing is answered by the connection itself, whatever else is under way: nil -> nil.
	MethodPing Method = "ping"
)

// Notes are what an agent sends unasked.
const (
	NoteExited   Method = "exited"   // Container: it stopped running
	NoteProgress Method = "progress" // Progress of a Prepare
)

// Frame is one line on the wire. A call has ID and Method; an answer has the same ID and Result or Error; a note has
// only Method and Params. A log chunk's data follows its line as it is: as JSON it would cost five times as much.
type Frame struct {
	ID     uint64    `json:"id,omitempty"`
	Method Method    `json:"method,omitempty"`
	Params RawObject `json:"params,omitempty"`
	Result RawObject `json:"result,omitempty"`
	Error  *Error    `json:"error,omitempty"`
	// Attached is how many bytes follow the line, at most MaxFrame.
	Attached int `json:"attached,omitempty"`
	attached []byte
}

// Code sorts errors by what the engine does about them.
type Code string

// The codes.
const (
	CodeNotFound    Code = "not-found"   // no such container or image: a fact
	CodeInvalid     Code = "invalid"     // the job as asked can never run: its owner must change it
	CodeUnavailable Code = "unavailable" // Podman did not answer: unknown, try again
	CodeConflict    Code = "conflict"    // the name is taken by something that is not ours
	CodeFailed      Code = "failed"      // Podman said no
)

// Error is a failed call.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// CodeOf is the code of an error from a call; CodeUnavailable for a lost link or a time-out.
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeUnavailable
}

// Hello is the agent's first frame, as params of a note with the method "hello".
type Hello struct {
	Protocol int         `json:"protocol"`
	Version  string      `json:"version"`
	PID      int         `json:"pid"`
	Runtime  RuntimeInfo `json:"runtime"`
}

// NoteHello opens a connection.
const NoteHello Method = "hello"

// RuntimeInfo is what this user's Podman can do.
type RuntimeInfo struct {
	PodmanVersion string   `json:"podman_version,omitempty"`
	OCIRuntime    string   `json:"oci_runtime,omitempty"` // "crun", "runc"
	CgroupVersion int      `json:"cgroup_version,omitempty"`
	CgroupManager string   `json:"cgroup_manager,omitempty"`
	StorageDriver string   `json:"storage_driver,omitempty"`
	Controllers   []string `json:"controllers,omitempty"` // delegated to this user
	// CDISpecDirs are where this user's Podman looks for CDI specs.
	CDISpecDirs []string `json:"cdi_spec_dirs,omitempty"`
	// Linger says whether the user's processes outlive a logout; nil where there is no systemd-logind.
	Linger *bool `json:"linger,omitempty"`
	// Problem is set when no job of this user can run.
	Problem *Problem `json:"problem,omitempty"`
	// Warnings are sentences worth telling the user at submit.
	Warnings []string `json:"warnings,omitempty"`
}

// Problem is why nothing can run, and the command that mends it.
type Problem struct {
	Code    string `json:"code"` // "no-podman", "podman-too-old", "no-subuid", "no-runtime", "podman-broken"
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// ResolveImageArgs asks what an image name means on this machine, without pulling.
type ResolveImageArgs struct {
	Image string `json:"image"`
	// Archives is the directory of image archives; empty for none.
	Archives string `json:"archives,omitempty"`
}

// Image is an image of the user's store. Found false with no error: not here, and a pull may bring it.
type Image struct {
	Found  bool   `json:"found"`
	ID     string `json:"id,omitempty"`
	Digest string `json:"digest,omitempty"`
	Name   string `json:"name,omitempty"` // in full
	// Archived says of one that is not found that it can be loaded from an archive.
	Archived bool `json:"archived,omitempty"`
}

// ImageList is what the user's store holds, the first MaxImages.
type ImageList struct {
	Images []StoredImage `json:"images"`
}

// MaxImages is how many images a list has at most.
const MaxImages = 1000

// StoredImage is one name of an image in the user's store.
type StoredImage struct {
	Name    string       `json:"name"`
	ID      string       `json:"id"`
	Digest  string       `json:"digest,omitempty"`
	Size    engine.Bytes `json:"size_bytes"` // with what it shares with others
	Created time.Time    `json:"created"`
}

// PrepareArgs makes everything ready that needs no device: pulls the image (or builds the host-environment one) and
// checks directories as the user.
type PrepareArgs struct {
	Job   engine.JobID `json:"job"`
	Image string       `json:"image,omitempty"`
	// Archives is a directory in which images are looked for before a registry is asked; empty for none.
	Archives string         `json:"archives,omitempty"`
	HostEnv  bool           `json:"host_env,omitempty"`
	Workdir  string         `json:"workdir"`
	Mounts   []engine.Mount `json:"mounts,omitempty"`
	Output   string         `json:"output,omitempty"`
	// Program is the first word of the command of a host-environment job, and Path the job's PATH; empty for the account's.
	Program string `json:"program,omitempty"`
	Path    string `json:"path,omitempty"`
	// Later says that work ahead of the job may still make the program, when it is named by its path.
	Later bool `json:"later,omitempty"`
}

// Progress is how far a Prepare is.
type Progress struct {
	Job  engine.JobID `json:"job"`
	Text string       `json:"text"`
}

// ContainerSpec is a container to create. Everything in it was decided by the engine but what only the user's side
// knows: the home directory, supplementary groups, the network helper.
type ContainerSpec struct {
	Name    string           `json:"name"`
	Attempt engine.AttemptID `json:"attempt"`
	ImageID string           `json:"image_id"`
	Command []string         `json:"command"`
	// KeepEntrypoint runs Command as arguments of the image's entrypoint instead of as the program.
	KeepEntrypoint bool              `json:"keep_entrypoint,omitempty"`
	Env            map[string]string `json:"env,omitempty"`
	Workdir        string            `json:"workdir"`
	Mounts         []engine.Mount    `json:"mounts,omitempty"`
	// HostEnv mounts the host's programs read-only and the home directory at its own path.
	HostEnv bool `json:"host_env,omitempty"`
	// MountHome mounts the home directory read-write at its own path.
	MountHome bool `json:"mount_home,omitempty"`
	// Caches are directories relative to the home directory that jobs share: inside they lie below /root, root's home.
	Caches []string `json:"caches,omitempty"`
	// CDIDevices are qualified CDI names, resolved by Podman.
	CDIDevices []string `json:"cdi_devices,omitempty"`
	// Edits are applied directly where Podman cannot see our leases; never together with CDIDevices.
	Edits *Edits `json:"edits,omitempty"`
	// CPUs in cores, Memory in bytes: limits where the controller is delegated. 0 is no limit.
	CPUs   engine.CPUs  `json:"cpus,omitempty"`
	Memory engine.Bytes `json:"memory_bytes,omitempty"`
	// ShmSize is the size of /dev/shm in bytes; 0 is Podman's default.
	ShmSize engine.Bytes `json:"shm_size_bytes,omitempty"`
	// Network is "host", "none", or "private" (falls to host where this machine gives users no private network).
	Network string `json:"network"`
	// Stdin keeps standard input open for who attaches; Tty makes a terminal of it.
	Stdin bool `json:"stdin,omitempty"`
	Tty   bool `json:"tty,omitempty"`
	// Port is where a server in the job listens; 0 for none. On a private network that port of the container is published,
	// on the host's a free one is chosen instead; either way on the loopback address alone, and the program finds the port
	// it has to listen on in GPUTOP_PORT.
	Port int `json:"port,omitempty"`
	// Output is a file of the user's that gets a copy of the job's output; empty for none.
	Output string `json:"output,omitempty"`
	// LogLimit is how much of its output's end is kept, in bytes of the log file; 0 is all of it.
	LogLimit engine.Bytes `json:"log_limit_bytes,omitempty"`
}

// Edits are container edits given directly, in the words of CDI.
type Edits struct {
	Env    []string       `json:"env,omitempty"`
	Mounts []engine.Mount `json:"mounts,omitempty"`
	// Devices are device nodes, host path and container path alike.
	Devices []string `json:"devices,omitempty"`
}

// Ref names a container: by ID where known, else by name.
type Ref struct {
	ID   string `json:"id,omitempty"`
	Name string `json:"name,omitempty"`
}

// Container is what Podman says of a container.
type Container struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	// State is Podman's word: created, initialized, running, paused, stopping, stopped, exited, removing.
	State      string    `json:"state"`
	PID        int       `json:"pid,omitempty"`
	ExitCode   int       `json:"exit_code"`
	OOMKilled  bool      `json:"oom_killed,omitempty"`
	Error      string    `json:"error,omitempty"`
	StartedAt  time.Time `json:"started_at,omitzero"`
	FinishedAt time.Time `json:"finished_at,omitzero"`
	// Port is the machine's loopback port that leads to the job's server; 0 for none.
	Port int `json:"port,omitempty"`
	// Notes are sentences for the job's events, for example that a CPU limit could not be set.
	Notes []string `json:"notes,omitempty"`
}

// Running says whether the container's process exists, paused or not.
func (c Container) Running() bool {
	return c.State == "running" || c.State == "paused" || c.State == "stopping"
}

// StopArgs ends a container: Signal to every process in it, KILL after Grace.
type StopArgs struct {
	Ref
	Signal string        `json:"signal"` // "SIGTERM"
	Grace  time.Duration `json:"grace"`
}

// WarnArgs sends Signal to those processes of a container that catch it; nobody else would live to see it.
type WarnArgs struct {
	Ref
	Signal string `json:"signal"` // "SIGUSR1"
}

// ReadLogArgs reads an attempt's output (stdout and stderr as they came) from a byte offset. With Wait, an agent at
// the end of a running attempt's log waits that long for more.
type ReadLogArgs struct {
	Attempt engine.AttemptID `json:"attempt"`
	// Container is the container's name.
	Container string        `json:"container"`
	Offset    int64         `json:"offset"`
	Max       int           `json:"max"` // bytes, at most 512 KiB
	Wait      time.Duration `json:"wait,omitempty"`
	// Tail starts this many lines before the end instead of at Offset; 0 for none.
	Tail int `json:"tail,omitempty"`
	// File is LogChunk.File of the chunk before, 0 for the first: Offset counts in that file.
	File uint64 `json:"file,omitempty"`
	// JSON asks for LogLines, one a line, instead of the output's bytes.
	JSON bool `json:"json,omitempty"`
}

// LogLine is a piece of output with what is known of it.
type LogLine struct {
	Time    string       `json:"time"` // RFC 3339, as conmon wrote it
	Job     engine.JobID `json:"job"`
	Attempt int          `json:"attempt"`
	Stream  string       `json:"stream"` // stdout or stderr
	Text    string       `json:"text"`
	// Partial says that the line goes on in the next piece of its stream.
	Partial bool `json:"partial,omitempty"`
}

// LogChunk is a piece of output. Next is the offset to go on from.
type LogChunk struct {
	Data []byte `json:"-"` // travels beside the JSON
	Next int64  `json:"next"`
	// File tells log files apart, should Podman begin a new one; 0 when there is none yet.
	File uint64 `json:"file,omitempty"`
	// Dropped says that output between Offset and Data is gone, because the log has a limit.
	Dropped bool `json:"dropped,omitempty"`
}

// DroppedLine stands in a job's output where some of it is gone; limit is what is kept, 0 when that is not known.
func DroppedLine(limit engine.Bytes) string {
	if limit <= 0 {
		return "… earlier output was dropped\n"
	}
	return fmt.Sprintf("… earlier output was dropped: the log is limited to %s\n", limit)
}

// KeptJobs are the jobs of which an agent has logs or checkpoints, the first 10000.
type KeptJobs struct {
	Jobs []engine.JobID `json:"jobs"`
}

// ForgetArgs names a job whose logs and checkpoints may go.
type ForgetArgs struct {
	Job engine.JobID `json:"job"`
}
