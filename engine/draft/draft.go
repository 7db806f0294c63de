// Package draft turns what a person types (flags, a form, a YAML file, #GPUTOP lines of a script) into an engine.Spec,
// and says what is wrong with it in that person's words. It runs as the submitting user and looks at that user's files;
// it must not talk to the daemon. CheckSpec alone touches nothing: the daemon repeats it on every spec it is sent.
package draft

import (
	"errors"
	"fmt"
	"time"

	"gputop/engine"
)

// Fields is a job as it is typed. An empty string is a field that was not given.
type Fields struct {
	Name, Profile, Image           string
	GPUs, GPUMemory, GPUFraction   string
	GPUModel                       string
	Class, TimeLimit, CPUs, Memory string
	Retries, Output, Workdir       string
	// Checkpoint is "stop", or how often the program saves its work.
	Checkpoint string
	StopSignal string
	// Warn is SIGNAL@TIME.
	Warn string
	// Array are indices, and Begin a moment as When reads it.
	Array, Begin string
	// After are jobs to wait for, each as engine.ParseDependencies reads it.
	After []string
	// Group is a Unix group of the caller's.
	Group string
	// Port is where a server in the job listens.
	Port string
	// Restart is "no" or "unless-stopped".
	Restart string
	// Notify is a list of kinds of notices with commas between them.
	Notify string
	// Mounts are src[:dst[:ro|rw]].
	Mounts []string
	// Env are NAME=VALUE, or NAME for the caller's own value.
	Env []string
	// EnvFile holds one of Env per line; # begins a comment line.
	EnvFile string
	Command []string
}

// Defaults are what a job gets that does not say. The zero value is one whole GPU, medium class, 24 hours.
type Defaults struct {
	Profile   string
	Class     engine.Class
	GPUs      int
	TimeLimit time.Duration
	// HasCommand says that the profile runs a program where the job names none.
	HasCommand bool
}

// Caller is who submits, and from where.
type Caller struct {
	Workdir string
	Environ []string
	Home    string
	// Now is for times without a date; zero is the clock's.
	Now time.Time
}

// FieldError is what is wrong with one field. Field is the name of the flag, without dashes ("gpu-fraction"), or
// "command".
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap is the error itself.
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors lists the field errors joined in err.
func FieldErrors(err error) []*FieldError {
	var fe *FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*FieldError
		for _, e := range joined.Unwrap() {
			all = append(all, FieldErrors(e)...)
		}
		return all
	}
	if errors.As(err, &fe) {
		return []*FieldError{fe}
	}
	return nil
}

// problems collects field errors.
type problems []error

func (p *problems) add(field string, err error) {
	if err != nil {
		*p = append(*p, &FieldError{field, err})
	}
}

func (p *problems) addf(field, format string, args ...any) {
	p.add(field, fmt.Errorf(format, args...))
}

// With is f with every field that over sets replaced. Mounts are added; variables too, and the later one of a name wins.
// The three ways to ask for a GPU are one field.
func (f Fields) With(over Fields) Fields {
	if over.GPUs != "" || over.GPUMemory != "" || over.GPUFraction != "" {
		f.GPUs, f.GPUMemory, f.GPUFraction = "", "", ""
	}
	for _, fl := range flags {
		if fl.list != nil {
			to := fl.list(&f)
			*to = append((*to)[:len(*to):len(*to)], *fl.list(&over)...)
		} else if v := *fl.value(&over); v != "" {
			*fl.value(&f) = v
		}
	}
	if len(over.Command) > 0 {
		f.Command = over.Command
	}
	return f
}

// Flag is one field as an option, the same on the command line, in #GPUTOP lines and as a YAML key.
type Flag struct {
	Name, Arg, Usage string
	value            func(*Fields) *string
	list             func(*Fields) *[]string
}

// Repeats says whether the flag may be given more than once.
func (fl Flag) Repeats() bool { return fl.list != nil }

// Value points to the field of a flag that does not repeat.
func (fl Flag) Value(f *Fields) *string { return fl.value(f) }

// List points to the field of a flag that repeats.
func (fl Flag) List(f *Fields) *[]string { return fl.list(f) }

// Flags lists the options, in the order of the help.
func Flags() []Flag { return append([]Flag(nil), flags...) }

var flags = []Flag{
	one("name", "NAME", "a name for lists (default: from the command)", func(f *Fields) *string { return &f.Name }),
	one("profile", "PROFILE", "job profile: what the job finds inside", func(f *Fields) *string { return &f.Profile }),
	one("image", "IMAGE", "container image", func(f *Fields) *string { return &f.Image }),
	one("gpus", "N", "whole GPUs; 0 for none (default 1)", func(f *Fields) *string { return &f.GPUs }),
	one("gpu-mem", "SIZE", "a share of one GPU with this much memory, for example 12GiB", func(f *Fields) *string { return &f.GPUMemory }),
	one("gpu-fraction", "F", "a share of one GPU, for example 0.25", func(f *Fields) *string { return &f.GPUFraction }),
	one("gpu-model", "MODEL", "only on cards of this model, for example a100 or 'rtx 4090'", func(f *Fields) *string { return &f.GPUModel }),
	one("class", "CLASS", "critical, high, medium or low", func(f *Fields) *string { return &f.Class }),
	one("time-limit", "TIME", "stop the job after this long: 30m, 12h, 1d12h, 02:30:00", func(f *Fields) *string { return &f.TimeLimit }),
	one("cpus", "N", "CPU cores (default: the share that goes with the GPUs)", func(f *Fields) *string { return &f.CPUs }),
	one("memory", "SIZE", "host memory (default: the share that goes with the GPUs)", func(f *Fields) *string { return &f.Memory }),
	one("retries", "N", "how often to try again when the program itself fails (default 0)", func(f *Fields) *string { return &f.Retries }),
	one("checkpoint", "WHEN", "the program saves its work in $GPUTOP_CHECKPOINT_DIR and goes on from there: stop (when it is told to stop) or how often, for example 10m", func(f *Fields) *string { return &f.Checkpoint }),
	one("stop-signal", "SIGNAL", "what tells the program to stop (default TERM)", func(f *Fields) *string { return &f.StopSignal }),
	one("warn", "SIGNAL@TIME", "send the program a signal that long before its time limit: usr1@10m", func(f *Fields) *string { return &f.Warn }),
	many("after", "[ok:|failed:|any:]JOB", "start when that job has succeeded, failed or ended; several as 12,14-17 (repeatable)", func(f *Fields) *[]string { return &f.After }),
	one("begin", "TIME", "start at that time at the earliest: 22:00, tomorrow 6:00, sat 8:00, +2h", func(f *Fields) *string { return &f.Begin }),
	one("array", "INDICES", "run it once for each index, which it finds in $GPUTOP_ARRAY_INDEX: 0-99, or 0-99%8 for at most 8 at once", func(f *Fields) *string { return &f.Array }),
	one("output", "FILE", "copy the job's output to this file; %j is the job id, %a the attempt, %i the index in an array", func(f *Fields) *string { return &f.Output }),
	one("notify", "KINDS", "what you are told: started,ended,preempted,waiting,memory,idle,reclaimed, or all, or none", func(f *Fields) *string { return &f.Notify }),
	one("workdir", "DIR", "directory to run in (default: the current one)", func(f *Fields) *string { return &f.Workdir }),
	one("port", "PORT", "the job is a server on this port: a free one of the machine's loopback address leads to it, and GPUTOP_PORT says where to listen", func(f *Fields) *string { return &f.Port }),
	one("restart", "WHEN", "unless-stopped: a service, put back in the queue whenever it ends, and after a reboot, until it is cancelled", func(f *Fields) *string { return &f.Restart }),
	one("group", "GROUP", "a Unix group of yours whose members may look into the job and read its output", func(f *Fields) *string { return &f.Group }),
	many("mount", "SRC[:DST[:ro]]", "another directory or file for the job (repeatable)", func(f *Fields) *[]string { return &f.Mounts }),
	many("env", "NAME[=VALUE]", "a variable for the job; NAME alone takes yours (repeatable)", func(f *Fields) *[]string { return &f.Env }),
	one("env-file", "FILE", "variables from a file, one NAME=VALUE per line", func(f *Fields) *string { return &f.EnvFile }),
}

func one(name, arg, usage string, v func(*Fields) *string) Flag {
	return Flag{Name: name, Arg: arg, Usage: usage, value: v}
}

func many(name, arg, usage string, v func(*Fields) *[]string) Flag {
	return Flag{Name: name, Arg: arg, Usage: usage, list: v}
}

func flagNamed(name string) (Flag, bool) {
	for _, fl := range flags {
		if fl.Name == name {
			return fl, true
		}
	}
	return Flag{}, false
}
