package draft

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"gputop/engine"
)

// Limits of a spec.
const (
	maxName        = 128       // bytes
	maxImage       = 512       // bytes
	maxPath        = 4096      // bytes
	maxCommand     = 128 << 10 // bytes, with a NUL after each argument
	maxEnv         = 256       // variables
	maxEnvBytes    = 256 << 10 // names and values
	maxMounts      = 64
	maxGPUs        = 64
	maxGPUMemory   = 16 * engine.TiB
	minMemory      = 16 * engine.MiB
	maxMemory      = 256 * engine.TiB
	maxCPUs        = 4096
	maxRetries     = 100
	maxProfileName = 64 // bytes
)

// CheckSpec holds a spec to the rules that need no look at the machine. The daemon calls it on what it is sent. All
// problems are returned, joined, as *FieldError.
func CheckSpec(s engine.Spec) error {
	var p problems
	p.add("name", checkName(s.Name))
	p.add("profile", checkProfile(s.Profile))
	p.add("image", checkImage(s.Image))
	p.add("command", checkCommand(s.Command))
	p.add("workdir", checkWorkdir(s.Workdir))
	checkEnv(&p, s.Env)
	p.add("env", checkCallerEnv(s.CallerEnv))
	checkMounts(&p, s.Mounts, s.Workdir)
	checkRequest(&p, s.Request)
	if _, err := s.Class.MarshalText(); err != nil {
		p.addf("class", "want critical, high, medium or low")
	}
	if s.TimeLimit <= 0 {
		p.addf("time-limit", "must be more than zero")
	} else if s.TimeLimit > engine.MaxTimeLimit {
		p.addf("time-limit", "%v is more than the %d days allowed", s.TimeLimit, int(engine.MaxTimeLimit.Hours()/24))
	}
	if s.Port < 0 || s.Port > 65535 {
		p.addf("port", "%d: want a number from 1 to 65535", s.Port)
	}
	if s.Tty && (s.Retries > 0 || s.Restart != "") {
		p.addf("retries", "a job with a terminal is not started again, for nobody would be there: leave out --retries and --restart")
	}
	if s.Restart != "" && s.Restart != engine.RestartUnlessStopped {
		p.addf("restart", "%q: want unless-stopped or nothing", s.Restart)
	}
	if s.Restart != "" && s.Retries > 0 {
		p.addf("retries", "a service (--restart unless-stopped) is started again anyway: give one of both")
	}
	if s.Retries < 0 || s.Retries > maxRetries {
		p.addf("retries", "%d: want a number from 0 to %d", s.Retries, maxRetries)
	}
	if s.CheckpointEvery < 0 || s.CheckpointEvery > engine.MaxTimeLimit || s.CheckpointEvery > 0 && !s.Checkpoint {
		p.addf("checkpoint", "%v: want a time of at most %d days", s.CheckpointEvery, int(engine.MaxTimeLimit.Hours()/24))
	}
	if s.Checkpoint && s.Tty {
		p.addf("checkpoint", "a job with a terminal is not started again: nobody would be there")
	}
	p.add("stop-signal", checkStopSignal(s.StopSignal))
	checkWarn(&p, s)
	if s.Array != "" {
		_, err := engine.ParseArray(s.Array)
		p.add("array", err)
		if s.Tty || s.Stdin {
			p.addf("array", "a job that one can attach to is one job")
		}
	}
	p.add("after", engine.CheckDependencies(s.After))
	p.add("output", checkOutput(s.Output))
	p.add("notify", engine.CheckNotify(s.Notify))
	return errors.Join(p...)
}

// checkVisible refuses what would break a line of a list or a terminal.
func checkVisible(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%q is not valid UTF-8", s)
	}
	for _, r := range s {
		switch {
		case r == '\n' || r == '\r':
			return fmt.Errorf("%q holds a line break; write it on one line", s)
		case r == 0x1b:
			return fmt.Errorf("%q holds an escape sequence; use printable characters", s)
		case !unicode.IsPrint(r):
			return fmt.Errorf("%q holds the invisible character %U; use printable characters", s, r)
		}
	}
	return nil
}

func checkName(s string) error {
	if strings.TrimSpace(s) == "" {
		return errors.New("a job needs a name")
	}
	if len(s) > maxName {
		return fmt.Errorf("%d bytes long; at most %d are allowed", len(s), maxName)
	}
	return checkVisible(s)
}

func checkProfile(s string) error {
	if len(s) > maxProfileName {
		return fmt.Errorf("%d bytes long; at most %d are allowed", len(s), maxProfileName)
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r)) {
			return fmt.Errorf("%q: a profile's name has letters, digits, '-', '_' and '.' only", s)
		}
	}
	return nil
}

func checkImage(s string) error {
	if s == "" {
		return nil
	}
	if len(s) > maxImage {
		return fmt.Errorf("%d bytes long; at most %d are allowed", len(s), maxImage)
	}
	if err := checkVisible(s); err != nil {
		return err
	}
	if strings.ContainsAny(s, " \"'\\$`") || strings.HasPrefix(s, "-") {
		return fmt.Errorf("%q is no image name; write it like docker.io/library/python:3.12", s)
	}
	_, err := engine.ImageNames(s)
	return err
}

func checkCommand(command []string) error {
	if len(command) == 0 || command[0] == "" {
		return errors.New("nothing to run; put the command after --, for example: gputop submit -- python train.py")
	}
	size := 0
	for _, a := range command {
		size += len(a) + 1
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("the argument %q holds a NUL byte", a)
		}
		if !utf8.ValidString(a) {
			return fmt.Errorf("the argument %q is not valid UTF-8", a)
		}
	}
	if size > maxCommand {
		return fmt.Errorf("%d bytes long; at most %d are allowed: put the work into a script", size, maxCommand)
	}
	return nil
}

// checkPath wants an absolute path with nothing odd in it.
func checkPath(s string) error {
	if len(s) > maxPath {
		return fmt.Errorf("the path is %d bytes long; at most %d are allowed", len(s), maxPath)
	}
	if err := checkVisible(s); err != nil {
		return err
	}
	if !filepath.IsAbs(s) || filepath.Clean(s) != s {
		return fmt.Errorf("%q is not a full path", s)
	}
	return nil
}

// kernelTrees are never mounted from a path of the user's: they would hand out devices and kernel interfaces that the
// queue has not granted.
var kernelTrees = []string{"/dev", "/proc", "/sys"}

// systemTrees hold the image's own programs: a mount over one of them breaks the container.
var systemTrees = []string{"/", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc", "/boot", "/run", "/var"}

func under(path, tree string) bool { return path == tree || strings.HasPrefix(path, tree+"/") }

func checkNotKernel(path string) error {
	for _, t := range kernelTrees {
		if under(path, t) {
			return fmt.Errorf("%s lies in %s, which is never mounted: devices come from the queue, with --gpus", path, t)
		}
	}
	return nil
}

func checkNotSystem(path string) error {
	for _, t := range systemTrees {
		if path == t {
			return fmt.Errorf("%s would cover the image's own files; choose a directory below it", path)
		}
	}
	return nil
}

func checkWorkdir(s string) error {
	if err := checkPath(s); err != nil {
		return err
	}
	if err := checkNotKernel(s); err != nil {
		return err
	}
	return checkNotSystem(s)
}

// CheckMounts holds mounts to the rules that need no look at the machine.
func CheckMounts(mounts []engine.Mount) error {
	var p problems
	checkMounts(&p, mounts, "")
	for _, e := range FieldErrors(errors.Join(p...)) {
		return e.Err // the first will do
	}
	return nil
}

func checkMounts(p *problems, mounts []engine.Mount, workdir string) {
	if len(mounts) > maxMounts {
		p.addf("mount", "%d mounts; at most %d are allowed", len(mounts), maxMounts)
		return
	}
	seen := map[string]bool{}
	for _, m := range mounts {
		for _, err := range []error{checkPath(m.Source), checkPath(m.Target), checkNotKernel(m.Source), checkNotKernel(m.Target),
			checkNotSystem(m.Target)} {
			if err != nil {
				p.add("mount", err)
				break
			}
		}
		if seen[m.Target] {
			p.addf("mount", "two mounts go to %s", m.Target)
		}
		seen[m.Target] = true
		if m.Target == workdir && m.Source != workdir {
			p.addf("mount", "%s is the job's working directory and can't be replaced", m.Target)
		}
	}
}

// refusedEnv are variables a job may not set, with the reason.
var refusedEnv = map[string]string{
	"NVIDIA_VISIBLE_DEVICES":  "the queue says which GPUs a job gets; ask with --gpus",
	"NVIDIA_GPU_MEMORY_LIMIT": "NVIDIA's own hook reads it and the container would not start; ask with --gpu-mem",
}

func checkEnvName(name string) error {
	for i, r := range name {
		if !(r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || i > 0 && r >= '0' && r <= '9') {
			return fmt.Errorf("%q is no variable name: want letters, digits and '_'", name)
		}
	}
	if name == "" {
		return errors.New("a variable needs a name: write NAME=VALUE")
	}
	if why, ok := refusedEnv[name]; ok {
		return fmt.Errorf("%s can't be set: %s", name, why)
	}
	if strings.HasPrefix(name, "GPUTOP_") {
		return fmt.Errorf("%s can't be set: names that begin with GPUTOP_ are the queue's own", name)
	}
	return nil
}

func checkEnv(p *problems, env map[string]string) {
	if len(env) > maxEnv {
		p.addf("env", "%d variables; at most %d are allowed", len(env), maxEnv)
		return
	}
	names := make([]string, 0, len(env))
	size := 0
	for name, v := range env {
		names, size = append(names, name), size+len(name)+len(v)
	}
	sort.Strings(names)
	for _, name := range names {
		p.add("env", checkEnvName(name))
		// The value is not repeated: it may be a secret.
		if strings.ContainsRune(env[name], 0) || !utf8.ValidString(env[name]) {
			p.addf("env", "the value of %s holds a NUL byte or is not valid UTF-8", name)
		}
	}
	if size > maxEnvBytes {
		p.addf("env", "%d bytes of variables; at most %d are allowed", size, maxEnvBytes)
	}
}

// checkCallerEnv is for what the client captured by itself: only another program than ours sends anything else.
func checkCallerEnv(env map[string]string) error {
	size := 0
	for name, v := range env {
		if !captured(name) {
			return fmt.Errorf("%q is not among the variables taken from the submitting shell; set it with --env", name)
		}
		if strings.ContainsRune(v, 0) || !utf8.ValidString(v) {
			return fmt.Errorf("the value of %s holds a NUL byte or is not valid UTF-8", name)
		}
		size += len(name) + len(v)
	}
	if len(env) > maxEnv || size > maxEnvBytes {
		return fmt.Errorf("%d variables of %d bytes from the submitting shell are too many", len(env), size)
	}
	return nil
}

// maxModel is the longest name of a card's model, in bytes.
const maxModel = 128

func checkModel(r engine.Request) error {
	switch {
	case len(r.GPUModel) > maxModel:
		return fmt.Errorf("%d bytes long; at most %d are allowed", len(r.GPUModel), maxModel)
	case len(engine.ModelWords(r.GPUModel)) == 0:
		return fmt.Errorf("%q: write it as the screen does, or a part of it: a100, 'rtx 4090'", r.GPUModel)
	case !r.WantsGPU():
		return errors.New("the job asks for no GPU")
	}
	return checkVisible(r.GPUModel)
}

func checkRequest(p *problems, r engine.Request) {
	ways := 0
	for _, set := range []bool{r.GPUs != 0, r.GPUMemory != 0, r.GPUFraction != 0} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		p.addf("gpus", "--gpus, --gpu-mem and --gpu-fraction exclude each other: give one")
	}
	if r.GPUs < 0 || r.GPUs > maxGPUs {
		p.addf("gpus", "%d: want a number from 0 to %d", r.GPUs, maxGPUs)
	}
	if r.GPUMemory != 0 && (r.GPUMemory < minMemory || r.GPUMemory > maxGPUMemory) {
		p.addf("gpu-mem", "%v: want from %v to %v, with a unit such as GiB", r.GPUMemory, minMemory, maxGPUMemory)
	}
	if r.GPUModel != "" {
		p.add("gpu-model", checkModel(r))
	}
	if r.GPUFraction != 0 {
		p.add("gpu-fraction", r.GPUFraction.Validate())
	}
	if c := float64(r.CPUs); math.IsNaN(c) || c < 0 || c > maxCPUs || c > 0 && c < 0.01 {
		p.addf("cpus", "%v: want a number of cores from 0.01 to %d", c, maxCPUs)
	}
	if r.Memory != 0 && (r.Memory < minMemory || r.Memory > maxMemory) {
		p.addf("memory", "%v: want from %v to %v, with a unit such as GiB", r.Memory, minMemory, maxMemory)
	}
}

// stopSignals are those that a program can take for a request to stop.
var stopSignals = []string{"SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"}

func checkWarn(p *problems, s engine.Spec) {
	switch {
	case s.Warn == "" && s.WarnBefore == 0:
	case checkStopSignal(s.Warn) != nil:
		p.add("warn", checkStopSignal(s.Warn))
	case s.Warn == "" || s.WarnBefore <= 0:
		p.addf("warn", "want a signal and how long before the time limit: usr1@10m")
	case s.TimeLimit > 0 && s.WarnBefore >= s.TimeLimit:
		p.addf("warn", "%v before the end is before the start of a job with a time limit of %v", s.WarnBefore, s.TimeLimit)
	}
}

func checkStopSignal(s string) error {
	if s != "" && !slices.Contains(stopSignals, s) {
		return fmt.Errorf("%q: want one of %s", s, strings.Join(stopSignals, ", "))
	}
	return nil
}

func checkOutput(s string) error {
	if s == "" {
		return nil
	}
	if strings.HasSuffix(s, "/") {
		return fmt.Errorf("%s is a directory; name a file, for example train-%%j.log", s)
	}
	if err := checkPath(s); err != nil {
		return err
	}
	if err := checkNotKernel(s); err != nil {
		return err
	}
	rest := strings.NewReplacer("%j", "", "%a", "", "%i", "").Replace(s)
	if i := strings.IndexByte(rest, '%'); i >= 0 {
		return fmt.Errorf("%s: only %%j (job id), %%a (attempt) and %%i (index in an array) are known after %%", s)
	}
	return nil
}
