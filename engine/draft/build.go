package draft

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
)

// Build makes a spec of f, checked as the calling user. All problems are returned, joined, as *FieldError.
func Build(f Fields, d Defaults, c Caller) (engine.Spec, error) {
	if d == (Defaults{}) {
		d.GPUs = 1
	}
	if d.Class == 0 {
		d.Class = engine.Medium
	}
	if d.TimeLimit == 0 {
		d.TimeLimit = 24 * time.Hour
	}
	var p problems
	s := engine.Spec{
		Name:      f.Name,
		Profile:   profile(f, d),
		Image:     f.Image,
		Command:   f.Command,
		CallerEnv: CaptureEnv(c.Environ),
		Class:     d.Class,
		TimeLimit: d.TimeLimit,
	}
	if s.Name == "" {
		s.Name = NameFor(f.Command)
	}
	s.Request = request(&p, f, d)
	readScalars(&p, f, &s)
	if f.Begin != "" {
		now := c.Now
		if now.IsZero() {
			now = time.Now()
		}
		begin, err := When(f.Begin, now)
		p.add("begin", err)
		s.Begin = begin
	}
	s.Workdir = c.resolve(first(f.Workdir, c.Workdir))
	p.add("workdir", readableDir(s.Workdir))
	s.Mounts = c.mounts(&p, f.Mounts)
	s.Env, s.SecretEnv = c.env(&p, f)
	if f.Output != "" {
		s.Output = c.output(&p, f.Output, s.Workdir)
	}
	static := CheckSpec(s)
	if d.HasCommand && len(s.Command) == 0 {
		static = without("command", static) // the daemon fills it in
	}
	p = append(p, unseen(p, static)...)
	return s, errors.Join(p...)
}

// without is what is wrong with other fields.
func without(field string, err error) error {
	var left problems
	for _, e := range FieldErrors(err) {
		if e.Field != field {
			left = append(left, e)
		}
	}
	return errors.Join(left...)
}

// profile is the one asked for. With an image and no profile the daemon chooses: the default one runs the host's own
// programs, which is not what an image is named for.
func profile(f Fields, d Defaults) string {
	if f.Profile == "" && f.Image != "" {
		return ""
	}
	return first(f.Profile, d.Profile)
}

// unseen is what of the static problems is about a field that has none yet: one complaint per field is enough.
func unseen(p problems, static error) (more problems) {
	had := map[string]bool{}
	for _, e := range FieldErrors(errors.Join(p...)) {
		had[e.Field] = true
	}
	for _, e := range FieldErrors(static) {
		if !had[e.Field] {
			more = append(more, e)
		}
	}
	return more
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// NameFor is a job's name when none is given: the script that an interpreter runs, else the program.
func NameFor(command []string) string {
	if len(command) == 0 {
		return "job"
	}
	name := filepath.Base(command[0])
	for _, a := range command[1:] {
		switch filepath.Ext(a) {
		case ".py", ".sh", ".ipynb", ".jl", ".R":
			if !strings.ContainsAny(a, " \n") {
				return clip(filepath.Base(a))
			}
		}
	}
	return clip(name)
}

// ElementName is the name of one element of an array: "train [3]".
func ElementName(name string, index int) string {
	suffix := fmt.Sprintf(" [%d]", index)
	r := []rune(name)
	for len(string(r))+len(suffix) > maxName {
		r = r[:len(r)-1]
	}
	return string(r) + suffix
}

// clip makes a derived name one that checkName takes.
func clip(s string) string {
	s = strings.ToValidUTF8(s, "?")
	for len(s) > maxName {
		r := []rune(s)
		s = string(r[:len(r)-1])
	}
	if checkVisible(s) != nil || strings.TrimSpace(s) == "" {
		return "job"
	}
	return s
}

func request(p *problems, f Fields, d Defaults) (r engine.Request) {
	var err error
	ways := 0
	if f.GPUs != "" {
		ways++
		if r.GPUs, err = strconv.Atoi(strings.TrimSpace(f.GPUs)); err != nil {
			p.addf("gpus", "%q: want a whole number such as 1; for a part of a GPU use --gpu-mem or --gpu-fraction", f.GPUs)
		}
	}
	if f.GPUMemory != "" {
		ways++
		r.GPUMemory, err = engine.ParseBytes(f.GPUMemory)
		p.add("gpu-mem", err)
	}
	if f.GPUFraction != "" {
		ways++
		r.GPUFraction, err = engine.ParseFraction(f.GPUFraction)
		p.add("gpu-fraction", err)
	}
	switch {
	case ways == 0:
		r.GPUs = d.GPUs
	case ways > 1:
		p.addf("gpus", "--gpus, --gpu-mem and --gpu-fraction exclude each other: give one")
	}
	r.GPUModel = strings.Join(strings.Fields(f.GPUModel), " ")
	if f.CPUs != "" {
		n, err := strconv.ParseFloat(strings.TrimSpace(f.CPUs), 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n <= 0 {
			p.addf("cpus", "%q: want a number of cores such as 4 or 0.5", f.CPUs)
		} else {
			r.CPUs = engine.CPUs(n)
		}
	}
	if f.Memory != "" {
		r.Memory, err = engine.ParseBytes(f.Memory)
		p.add("memory", err)
	}
	return r
}

func readScalars(p *problems, f Fields, s *engine.Spec) {
	var err error
	if f.Class != "" {
		if s.Class, err = engine.ParseClass(strings.ToLower(strings.TrimSpace(f.Class))); err != nil {
			p.addf("class", "%q: want critical, high, medium or low", f.Class)
		}
	}
	if f.TimeLimit != "" {
		s.TimeLimit, err = engine.ParseDuration(f.TimeLimit)
		p.add("time-limit", err)
		if s.TimeLimit > engine.MaxTimeLimit {
			p.addf("time-limit", "%s is more than the %d days allowed", f.TimeLimit, int(engine.MaxTimeLimit.Hours()/24))
		}
	}
	if f.Port != "" {
		if s.Port, err = strconv.Atoi(strings.TrimSpace(f.Port)); err != nil {
			p.addf("port", "%q: want a number from 1 to 65535", f.Port)
		}
	}
	switch f.Restart {
	case "", "no":
	case string(engine.RestartUnlessStopped):
		s.Restart = engine.RestartUnlessStopped
	default:
		p.addf("restart", "%q: want no or unless-stopped", f.Restart)
	}
	s.Group = strings.TrimSpace(f.Group)
	if f.Retries != "" {
		if s.Retries, err = strconv.Atoi(strings.TrimSpace(f.Retries)); err != nil {
			p.addf("retries", "%q: want a whole number such as 2", f.Retries)
		}
	}
	if f.Checkpoint != "" {
		s.Checkpoint = true
		if word := strings.ToLower(strings.TrimSpace(f.Checkpoint)); word != checkpointAtStop {
			if s.CheckpointEvery, err = engine.ParseDuration(word); err != nil || s.CheckpointEvery <= 0 {
				p.addf("checkpoint", "%q: want %s, or how often as a time such as 10m", f.Checkpoint, checkpointAtStop)
			}
		}
	}
	s.StopSignal = signalName(f.StopSignal)
	if f.Warn != "" {
		sig, before, _ := strings.Cut(f.Warn, "@")
		s.Warn = signalName(sig)
		if s.WarnBefore, err = engine.ParseDuration(before); err != nil || s.WarnBefore <= 0 || s.Warn == "" {
			p.addf("warn", "%q: write it SIGNAL@TIME, for example usr1@10m", f.Warn)
		}
	}
	s.Array = strings.TrimSpace(f.Array)
	for _, text := range f.After {
		list, err := engine.ParseDependencies(text)
		p.add("after", err)
		s.After = append(s.After, list...)
	}
	if f.Notify != "" {
		s.Notify, err = engine.ParseNotify(f.Notify)
		p.add("notify", err)
	}
}

// checkpointAtStop is the word for a program that saves its work when it is told to stop.
const checkpointAtStop = "stop"

// signalName is a signal's full name: usr1 is SIGUSR1.
func signalName(s string) string {
	s = strings.ToUpper(strings.TrimSpace(s))
	if s != "" && !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return s
}

// resolve makes a path full: ~ is the home, anything relative is below the caller's directory.
func (c Caller) resolve(path string) string {
	if path == "~" || strings.HasPrefix(path, "~/") {
		path = c.Home + path[1:]
	}
	if path == "" {
		return ""
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(c.Workdir, path)
	}
	return filepath.Clean(path)
}

// ParseMount reads src[:dst[:ro|rw]]; src alone is mounted at its own path.
func (c Caller) ParseMount(s string) (engine.Mount, error) {
	parts := strings.Split(s, ":")
	bad := fmt.Errorf("%q: write it SRC, SRC:DST or SRC:DST:ro", s)
	if parts[0] == "" || len(parts) > 3 {
		return engine.Mount{}, bad
	}
	m := engine.Mount{Source: c.resolve(parts[0])}
	m.Target = m.Source
	if len(parts) > 1 {
		if last := parts[len(parts)-1]; last == "ro" || last == "rw" {
			m.ReadOnly = last == "ro"
			parts = parts[:len(parts)-1]
		} else if len(parts) == 3 {
			return engine.Mount{}, bad
		}
	}
	if len(parts) == 2 {
		if !filepath.IsAbs(parts[1]) {
			return engine.Mount{}, fmt.Errorf("%q: the path inside the job must begin with /", s)
		}
		m.Target = filepath.Clean(parts[1])
	}
	return m, nil
}
