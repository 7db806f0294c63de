package engine

import "time"

// Request is what a job asks for. At most one of GPUs, GPUMemory and GPUFraction is set; none of them is a job
// without a GPU.
type Request struct {
	// GPUs is a number of whole devices.
	GPUs int `json:"gpus,omitempty"`
	// GPUMemory is a share of one device, in bytes, contexts inside it.
	GPUMemory Bytes `json:"gpu_memory_bytes,omitempty"`
	// GPUFraction is a share of one device, in (0, 1] of (total - reserved).
	GPUFraction Fraction `json:"gpu_fraction,omitempty"`
	// GPUModel are words that the model of each of its cards has, as IsModel compares them; empty for any model.
	GPUModel string `json:"gpu_model,omitempty"`
	// CPUs is processor time in cores; 0 takes the share that goes with the GPUs.
	CPUs CPUs `json:"cpus,omitempty"`
	// Memory is host memory in bytes; 0 takes the share that goes with the GPUs.
	Memory Bytes `json:"memory_bytes,omitempty"`
}

// WantsGPU says whether any GPU is asked for.
func (r Request) WantsGPU() bool { return r.GPUs > 0 || r.IsShare() }

// IsShare says whether a part of one device is asked for.
func (r Request) IsShare() bool { return r.GPUMemory > 0 || r.GPUFraction > 0 }

// Mount is one directory or file of the host inside the container.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
	// Optional leaves it out where the user cannot read it: a site's mounts are for who may.
	Optional bool `json:"optional,omitempty"`
}

// Spec is what a user submits. It never changes once acknowledged, except through gputop update.
type Spec struct {
	Name    string `json:"name"`
	Profile string `json:"profile"`
	// Image is the image as the user or the profile named it; empty for a profile that brings its own.
	Image   string            `json:"image,omitempty"`
	Command []string          `json:"command"`
	Workdir string            `json:"workdir"`
	Env     map[string]string `json:"env,omitempty"`
	// SecretEnv names the variables of Env that came from a file or were given by name alone: their values are shown to
	// nobody.
	SecretEnv []string `json:"secret_env,omitempty"`
	// CallerEnv is what the client captured of the submitting shell (PATH, virtual environment, locale) for profiles
	// that run the host's own programs. Env wins over it.
	CallerEnv map[string]string `json:"caller_env,omitempty"`
	Mounts    []Mount           `json:"mounts,omitempty"`
	Request   Request           `json:"request"`
	Class     Class             `json:"class"`
	// TimeLimit is how long an attempt may run, in nanoseconds on the wire.
	TimeLimit time.Duration `json:"time_limit_ns"`
	// Retries is how often a failed program is tried again.
	Retries int `json:"retries,omitempty"`
	// Group is a Unix group of the owner's whose members may look into the job and read its output; GroupID is its number,
	// which the daemon fills in.
	Group   string `json:"group,omitempty"`
	GroupID uint32 `json:"group_id,omitempty"`
	// Stdin keeps the program's standard input open for who attaches, Tty makes it a terminal.
	Stdin bool `json:"stdin,omitempty"`
	Tty   bool `json:"tty,omitempty"`
	// Port is where a server in the job listens: see agentrpc.ContainerSpec.Port. 0 for none.
	Port int `json:"port,omitempty"`
	// Attended ends the job when nobody has been attached for a while.
	Attended bool `json:"attended,omitempty"`
	// Restart says what follows when the program ends by itself: nothing, or RestartUnlessStopped.
	Restart Restart `json:"restart,omitempty"`
	// Output is a file of the user's to which the job's output is copied; %j is the job id, %a the attempt.
	Output string `json:"output,omitempty"`
	// Checkpoint says that the program saves its work in the job's checkpoint directory, when it is told to stop or, with
	// CheckpointEvery, that often, and goes on from there when it is run again.
	Checkpoint      bool          `json:"checkpoint,omitempty"`
	CheckpointEvery time.Duration `json:"checkpoint_every_ns,omitempty"`
	// StopSignal is what tells the program to stop, for example "SIGUSR1"; empty for SIGTERM.
	StopSignal string `json:"stop_signal,omitempty"`
	// Warn is sent to the program WarnBefore its time limit, for example "SIGUSR1"; empty for no warning.
	Warn       string        `json:"warn,omitempty"`
	WarnBefore time.Duration `json:"warn_before_ns,omitempty"`
	// Array are the indices for each of which the job is run, as in ParseArray; empty for once.
	Array string `json:"array,omitempty"`
	// After are the jobs that have to end before it starts, and Begin is when it may, at the earliest.
	After []Dependency `json:"after,omitempty"`
	Begin time.Time    `json:"begin,omitzero"`
	// Notify is what its owner wants to be told: kinds of notices, or all or none alone; empty for the default.
	Notify []string `json:"notify,omitempty"`
}

// Restart says when a job is put back in the queue although its program has ended.
type Restart string

// RestartUnlessStopped is a service: whatever way its program ends, and after a reboot, it goes back to the queue, until
// somebody cancels it. Its time limit gives others a turn.
const RestartUnlessStopped Restart = "unless-stopped"

// Job is a submitted job and where it stands.
type Job struct {
	ID        JobID     `json:"id"`
	Owner     User      `json:"owner"`
	Spec      Spec      `json:"spec"`
	State     JobState  `json:"state"`
	Submitted time.Time `json:"submitted"`
	// Queued is when it last entered the queue; preemption keeps it, so that a job comes back at its old place.
	Queued time.Time `json:"queued"`
	// Started is when the program of its newest attempt began; zero before.
	Started time.Time `json:"started,omitzero"`
	// Ended is when it reached a final state.
	Ended time.Time `json:"ended,omitzero"`
	// Promised says that others were stopped for it, or are being: what they free is its own, and it goes before all
	// others. It ends with the start, and when the job asks for something else.
	Promised bool `json:"promised,omitempty"`
	// Element is its place in an array; nil for a job of its own.
	Element *Element `json:"element,omitempty"`
	// Prepared says that its image and mounts were found good; cleared when they have to be looked at again.
	Prepared bool `json:"prepared,omitempty"`
	// Held keeps it out of the queue's turn until it is released. HeldBy is who held it; HeldByAdmin that an admin did,
	// somebody else's job: then its owner may not release it.
	Held        bool   `json:"held,omitempty"`
	HeldBy      string `json:"held_by,omitempty"`
	HeldByAdmin bool   `json:"held_by_admin,omitempty"`
	// ImageName in full, ImageID and ImageDigest are what the image's name meant when it was prepared.
	ImageName   string `json:"image_name,omitempty"`
	ImageID     string `json:"image_id,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	// Token is what opens the job's server; for its owner's eyes.
	Token string `json:"token,omitempty"`
	// Attempts counts the attempts begun; the current one is Attempts.
	Attempts int `json:"attempts"`
	// Failures counts attempts in which the program itself failed; Faults those lost to the infrastructure.
	Failures    int `json:"failures,omitempty"`
	Faults      int `json:"faults,omitempty"`
	Preemptions int `json:"preemptions,omitempty"`
	// Displaced counts those of them that were for another job.
	Displaced int `json:"displaced,omitempty"`
	// Restarts counts how often a service was put back in the queue; ShortRuns how often in a row it ended at once.
	Restarts  int `json:"restarts,omitempty"`
	ShortRuns int `json:"short_runs,omitempty"`
	// StopReason is why a job that is stopping was told to.
	StopReason StopReason `json:"stop_reason,omitempty"`
	// ExitCode is the program's, once the job ended with one; Signal-killed programs have 128+n.
	ExitCode *int `json:"exit_code,omitempty"`
	// Message says in a sentence why the job ended as it did, when there is more to say than the state.
	Message string `json:"message,omitempty"`
	// NotBefore keeps a retried job out of the queue for a while.
	NotBefore time.Time `json:"not_before,omitzero"`
}

// StopReason is why a running job is being stopped.
type StopReason string

// Reasons to stop an attempt.
const (
	StopCancelled StopReason = "cancelled"
	StopPreempted StopReason = "preempted"
	StopTimeLimit StopReason = "time-limit"
	StopMemory    StopReason = "gpu-memory" // it held more than its share
	StopLostCard  StopReason = "card-lost"  // a card of its own fell off the bus
)

// MaxFaults is how often a job is tried again when the infrastructure, not the program, failed.
const MaxFaults = 3

// Attempt is one try at running a job.
type Attempt struct {
	ID AttemptID `json:"id"`
	// Container is the container's name, stored before it is created; ContainerID follows.
	Container   string `json:"container"`
	ContainerID string `json:"container_id,omitempty"`
	// BootID is the machine's boot in which the attempt was started: nothing found after another boot is believed.
	BootID string `json:"boot_id"`
	// PID and PIDStart name the container's first process: the host's number and its start time in clock ticks.
	PID      int    `json:"pid,omitempty"`
	PIDStart uint64 `json:"pid_start,omitempty"`
	// PIDNamespace is the inode of the container's PID namespace, which maps a GPU process to its job.
	PIDNamespace uint64     `json:"pid_namespace,omitempty"`
	Allocation   Allocation `json:"allocation"`
	// Devices by CDI name, or true in DirectEdits where this Podman cannot see our leases.
	CDIDevices  []string  `json:"cdi_devices,omitempty"`
	DirectEdits bool      `json:"direct_edits,omitempty"`
	Granted     time.Time `json:"granted"`
	Started     time.Time `json:"started,omitzero"`
	// StartedBoot is Started on CLOCK_BOOTTIME in nanoseconds: time limits are taken on it.
	StartedBoot int64     `json:"started_boot,omitempty"`
	Ended       time.Time `json:"ended,omitzero"`
	ExitCode    *int      `json:"exit_code,omitempty"`
	OOMKilled   bool      `json:"oom_killed,omitempty"`
	Message     string    `json:"message,omitempty"`
	// Curve is what it used over its time, on its GPUs; nil where it has none or was not seen.
	Curve *Curve `json:"curve,omitempty"`
	// Warned says that it was told that its time is nearly over.
	Warned bool `json:"warned,omitempty"`
	// StoppedFor is the waiting job that gets what the attempt frees; 0 when it was not stopped for one.
	StoppedFor JobID `json:"stopped_for,omitempty"`
	// Port is the machine's loopback port that leads to the job's server, as the owner's agent says; 0 for none.
	Port int `json:"port,omitempty"`
}

// Grant is one device, or a share of it, given to an attempt.
type Grant struct {
	Device DeviceID `json:"device"`
	// Memory is what is promised of the device, in bytes: all of it when Whole.
	Memory Bytes `json:"memory_bytes"`
	// Fraction is Memory over (total - reserved).
	Fraction Fraction `json:"fraction"`
	Whole    bool     `json:"whole,omitempty"`
}

// Allocation is what an attempt holds.
type Allocation struct {
	State  AllocationState `json:"state"`
	Grants []Grant         `json:"grants,omitempty"`
	CPUs   CPUs            `json:"cpus"`
	Memory Bytes           `json:"memory_bytes"`
}

// Event is one line of a job's story.
type Event struct {
	Time time.Time `json:"time"`
	Job  JobID     `json:"job"`
	Kind string    `json:"kind"`
	Text string    `json:"text,omitempty"`
}
