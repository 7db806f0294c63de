// Package api is the wire between gputop's programs and its daemon: HTTP/JSON over a Unix socket. It holds the wire
// types, the typed client and the server's routing. What it sends is made for the caller who asks: a job of somebody
// else comes without its command, environment, mounts and image.
package api

import (
	"time"

	"gputop/engine"
)

// Version of the wire protocol. Every answer carries it in the header VersionHeader; a client refuses another.
const Version = 1

// VersionHeader names the header with the wire version.
const VersionHeader = "Gputop-Api"

// Info says who answers.
type Info struct {
	API     int    `json:"api"`
	Version string `json:"version"`
	// Mode is "personal" or "shared".
	Mode string `json:"mode"`
	Host string `json:"host"`
	PID  int    `json:"pid"`
	// Caller is who the daemon takes the caller for, from the socket's peer credentials.
	Caller engine.User `json:"caller"`
	Admin  bool        `json:"admin"`
	// Defaults are what a submit form starts with.
	Defaults Defaults `json:"defaults"`
	// Profiles lists the job profiles by name.
	Profiles []Profile `json:"profiles"`
}

// DefaultsFor is what a job of a profile (empty: the default one) gets that does not say.
func (i Info) DefaultsFor(profile string) Defaults {
	d := i.Defaults
	if profile != "" {
		d.Profile = profile
	}
	for _, p := range i.Profiles {
		if p.Name == d.Profile && p.GPUs != nil {
			d.GPUs = *p.GPUs
		}
		d.HasCommand = d.HasCommand || p.Name == d.Profile && p.HasCommand
	}
	return d
}

// Defaults are what a job gets that does not say.
type Defaults struct {
	Profile   string        `json:"profile"`
	Class     engine.Class  `json:"class"`
	GPUs      int           `json:"gpus"`
	TimeLimit time.Duration `json:"time_limit_ns"`
	// HasCommand says that the profile runs a program where the job names none.
	HasCommand bool `json:"has_command,omitempty"`
}

// Profile is a job template's name and what it is for.
type Profile struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	// Image is the image it brings; NeedsImage says that the job must name one.
	Image      string `json:"image,omitempty"`
	NeedsImage bool   `json:"needs_image,omitempty"`
	// GPUs is how many whole GPUs its jobs get that do not say; nil for Defaults.GPUs.
	GPUs *int `json:"gpus,omitempty"`
	// HasCommand says that it runs a program where the job names none.
	HasCommand bool `json:"has_command,omitempty"`
}

// SubmitRequest is a new job. Amounts are numbers here; the client reads what people type.
type SubmitRequest struct {
	Spec engine.Spec `json:"spec"`
	// DryRun checks and plans, and keeps nothing.
	DryRun bool `json:"dry_run,omitempty"`
	// Element is the place in an array of a job that is run again; the daemon fills it in.
	Element *engine.Element `json:"-"`
}

// SubmitResponse is an accepted job: it is on disk when this is sent.
type SubmitResponse struct {
	Job Job `json:"job"`
	// Last is the id of the last element of an array, of which Job is the first; they follow each other. Without an array it
	// is the job's own.
	Last engine.JobID `json:"last,omitempty"`
	// Warnings are sentences worth showing, for example what a logout will do.
	Warnings []string `json:"warnings,omitempty"`
}

// Job is a job as a caller may see it.
type Job struct {
	ID     engine.JobID    `json:"id"`
	Name   string          `json:"name"`
	Owner  string          `json:"owner"`
	UID    uint32          `json:"uid"`
	Mine   bool            `json:"mine,omitempty"`
	Class  engine.Class    `json:"class"`
	State  engine.JobState `json:"state"`
	Held   bool            `json:"held,omitempty"`
	Reason *engine.Reason  `json:"reason,omitempty"`
	// Position in the queue, from 1; 0 when not queued.
	Position int `json:"position,omitempty"`
	// ExpectedStart is when it should start, by the time limits of what runs and waits before it; zero when nobody can
	// tell.
	ExpectedStart time.Time      `json:"expected_start,omitzero"`
	Request       engine.Request `json:"request"`
	TimeLimit     time.Duration  `json:"time_limit_ns"`
	Submitted     time.Time      `json:"submitted"`
	Started       time.Time      `json:"started,omitzero"`
	Ended         time.Time      `json:"ended,omitzero"`
	Attempt       int            `json:"attempt,omitempty"`
	Grants        []Grant        `json:"grants,omitempty"`
	// GPUMemoryUsed is what its processes hold now on its devices, in bytes; nil when unknown.
	GPUMemoryUsed *engine.Bytes     `json:"gpu_memory_used_bytes,omitempty"`
	Preemptions   int               `json:"preemptions,omitempty"`
	StopReason    engine.StopReason `json:"stop_reason,omitempty"`
	ExitCode      *int              `json:"exit_code,omitempty"`
	Message       string            `json:"message,omitempty"`
	// Progress is what is being prepared just now.
	Progress string `json:"progress,omitempty"`
	// Command is the command line, shortened, for lists; only for those who may see it.
	Command string `json:"command,omitempty"`
	// Group is the Unix group whose members may look into the job and read its output; empty for none.
	Group   string `json:"group,omitempty"`
	GroupID uint32 `json:"-"`
	// Element is its place in an array; nil for a job of its own.
	Element *engine.Element `json:"element,omitempty"`
	// URL opens the job's server from the machine itself; only for the owner, while the job runs.
	URL string `json:"url,omitempty"`
	// Stdin says that one can attach to it, Tty that it has a terminal.
	Stdin bool `json:"stdin,omitempty"`
	Tty   bool `json:"tty,omitempty"`
}

// Grant is a device given to a job.
type Grant struct {
	Device   engine.DeviceID `json:"device"`
	Index    int             `json:"index"` // for display; -1 when the device is not seen now
	Memory   engine.Bytes    `json:"memory_bytes"`
	Fraction engine.Fraction `json:"fraction"`
	Whole    bool            `json:"whole,omitempty"`
}

// JobDetail is everything a caller may see of one job.
type JobDetail struct {
	Job
	// Spec is nil for a job that the caller may not look into.
	Spec *engine.Spec `json:"spec,omitempty"`
	// ImageName is the image's name in full, once it is known what the name meant.
	ImageName   string         `json:"image_name,omitempty"`
	ImageDigest string         `json:"image_digest,omitempty"`
	Attempts    []Attempt      `json:"attempts,omitempty"`
	Events      []engine.Event `json:"events,omitempty"`
}

// Attempt is one try, for display.
type Attempt struct {
	Number      int                    `json:"number"`
	Container   string                 `json:"container,omitempty"`
	ContainerID string                 `json:"container_id,omitempty"`
	Allocation  engine.AllocationState `json:"allocation"`
	Grants      []Grant                `json:"grants,omitempty"`
	// CDIDevices are the names handed to Podman. DirectEdits says that the same edits went in directly, because this
	// Podman cannot see a directory the user may write.
	CDIDevices  []string  `json:"cdi_devices,omitempty"`
	DirectEdits bool      `json:"direct_edits,omitempty"`
	PID         int       `json:"pid,omitempty"`
	Granted     time.Time `json:"granted"`
	Started     time.Time `json:"started,omitzero"`
	Ended       time.Time `json:"ended,omitzero"`
	ExitCode    *int      `json:"exit_code,omitempty"`
	OOMKilled   bool      `json:"oom_killed,omitempty"`
	Message     string    `json:"message,omitempty"`
	// Curve is what it used over its time; nil where it has no GPU or was not seen.
	Curve *engine.Curve `json:"curve,omitempty"`
}

// GPUs is the newest sample, with the jobs on each device.
type GPUs struct {
	Time      time.Time `json:"time"`
	Simulated bool      `json:"simulated,omitempty"`
	Driver    string    `json:"driver,omitempty"`
	CUDA      string    `json:"cuda,omitempty"`
	// Stale says that the sampler has not answered for several periods: the numbers are old.
	Stale bool  `json:"stale,omitempty"`
	GPUs  []GPU `json:"gpus"`
	// Error is one sentence when there is nothing to show.
	Error string `json:"error,omitempty"`
}

// GPU is one card with who is on it. Processes carry their job and owner.
type GPU struct {
	engine.GPU
	Processes []Process `json:"processes,omitempty"`
	// Promised is the memory promised to jobs, in bytes; Foreign what processes outside the queue hold.
	Promised engine.Bytes `json:"promised_bytes"`
	Foreign  engine.Bytes `json:"foreign_bytes"`
	// Reservations are the times in which it is promised to people, or drained, now and later.
	Reservations []Reservation  `json:"reservations,omitempty"`
	Jobs         []engine.JobID `json:"jobs,omitempty"`
}

// Process is one process on a device (a card or a MIG device).
type Process struct {
	engine.GPUProcess
	Device engine.DeviceID `json:"device"`
	User   string          `json:"user,omitempty"`
	// Job is 0 for a process outside the queue.
	Job engine.JobID `json:"job,omitempty"`
}

// StopRequest cancels, preempts, holds, releases or requeues a job.
type StopRequest struct {
	// Reason is a sentence for the job's events.
	Reason string `json:"reason,omitempty"`
	// For is the caller's waiting job for which somebody else's is preempted; 0 for none.
	For engine.JobID `json:"for,omitempty"`
}

// UpdateRequest changes a job; what is nil stays. The three ways to ask for a GPU are one field: at most one of them is
// given, and replaces what the job asked for.
type UpdateRequest struct {
	Name        *string          `json:"name,omitempty"`
	Class       *engine.Class    `json:"class,omitempty"`
	TimeLimit   *time.Duration   `json:"time_limit_ns,omitempty"`
	GPUs        *int             `json:"gpus,omitempty"`
	GPUMemory   *engine.Bytes    `json:"gpu_memory_bytes,omitempty"`
	GPUFraction *engine.Fraction `json:"gpu_fraction,omitempty"`
	CPUs        *engine.CPUs     `json:"cpus,omitempty"`
	Memory      *engine.Bytes    `json:"memory_bytes,omitempty"`
	// Reason is a sentence for the job's events.
	Reason string `json:"reason,omitempty"`
}

// AuditQuery says which lines of the audit trail to read.
type AuditQuery struct {
	// Since leaves out what is older; zero leaves out nothing.
	Since time.Time
	// User leaves out what another name did.
	User string
	// Limit is how many lines at most, the newest ones; 0 for DefaultAudit.
	Limit int
}

// DefaultAudit and MaxAudit are how many lines of the trail one answer has, and may have.
const (
	DefaultAudit = 1000
	MaxAudit     = 20_000
)

// Audit is a piece of the audit trail, newest first.
type Audit struct {
	Entries []engine.AuditEntry `json:"entries"`
	// More says that there are older entries which fit the question.
	More bool `json:"more,omitempty"`
}

// ExecTarget is what an owner's client needs to enter a job's container with the owner's own Podman.
type ExecTarget struct {
	ContainerID string `json:"container_id"`
	Workdir     string `json:"workdir"`
}

// WatchEvent is one line of the watch stream. The first is Snapshot; later ones carry what changed. A state change is
// never left out; a sample may be, when the reader is slow. After a gap a new Snapshot comes.
type WatchEvent struct {
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// Jobs are jobs that are new or changed; Removed are ids that left the live list.
	Jobs    []Job          `json:"jobs,omitempty"`
	Removed []engine.JobID `json:"removed,omitempty"`
	GPUs    *GPUs          `json:"gpus,omitempty"`
	// Notices, beside a Snapshot, are the caller's newest ones; later, those that are new.
	Notices *Notices `json:"notices,omitempty"`
}

// Snapshot is the whole live state: queued and active jobs, the last ended ones, and the cards.
type Snapshot struct {
	Info Info  `json:"info"`
	Jobs []Job `json:"jobs"`
	GPUs GPUs  `json:"gpus"`
}

// Error is what a refused request gets as body.
type Error struct {
	Code    ErrorCode `json:"code"`
	Message string    `json:"message"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
}

// ErrorCode sorts errors for programs; the CLI's exit codes follow it.
type ErrorCode string

// The codes, with the HTTP status each goes with.
const (
	CodeInvalid     ErrorCode = "invalid"     // 400: the request can't be right
	CodeForbidden   ErrorCode = "forbidden"   // 403
	CodeNotFound    ErrorCode = "not-found"   // 404
	CodeConflict    ErrorCode = "conflict"    // 409: not in this state
	CodeTooMany     ErrorCode = "too-many"    // 429
	CodeInternal    ErrorCode = "internal"    // 500
	CodeUnavailable ErrorCode = "unavailable" // 503: nothing was kept; try again
)

func (e *Error) Error() string {
	if e.Hint == "" {
		return e.Message
	}
	return e.Message + "\n" + e.Hint
}
