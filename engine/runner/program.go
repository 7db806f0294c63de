package runner

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/runner/account"
)

// jobView is what of the host's files a host-environment job sees, for the question whether its program is among them:
// the init process in the container would only say that it cannot run it.
type jobView struct {
	workdir string
	path    string // the job's PATH
	// mounts are what is inside, the host's program directories and the home among them.
	mounts []engine.Mount
}

func (a *Agent) jobView(workdir string, mounts []engine.Mount, path string) jobView {
	v := jobView{workdir: workdir, path: path}
	if path == "" {
		v.path = account.Path
	}
	for _, d := range append(slices.Clone(hostProgramDirs), filepath.Clean(a.user.Home), workdir, a.o.StateDir) {
		v.mounts = append(v.mounts, engine.Mount{Source: d, Target: d})
	}
	if real, err := filepath.EvalSymlinks(a.user.Home); err == nil {
		v.mounts = append(v.mounts, engine.Mount{Source: real, Target: real})
	}
	v.mounts = append(v.mounts, mounts...)
	return v
}

// host is the file of the host that a path inside stands for; ok is false when nothing of the host is there.
func (v jobView) host(inside string) (path string, m engine.Mount, ok bool) {
	inside = filepath.Clean(inside)
	for _, c := range v.mounts {
		if t := filepath.Clean(c.Target); within(inside, t) && (!ok || len(t) >= len(filepath.Clean(m.Target))) {
			m, ok = c, true
		}
	}
	if !ok {
		return "", m, false
	}
	rel, err := filepath.Rel(filepath.Clean(m.Target), inside)
	return filepath.Join(m.Source, rel), m, err == nil
}

// The ways a path inside can fail to be a program.
const (
	isProgram = iota
	isMissing
	isOutside // it is on the host, and not in the container
	isNoFile
	isNotExecutable
)

// look says what a path inside is, and for one outside of the container where on the host it lies.
func (v jobView) look(inside string) (state int, where string) {
	path, m, ok := v.host(inside)
	if !ok {
		if _, err := os.Stat(inside); err == nil {
			return isOutside, inside
		}
		return isMissing, inside
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return isMissing, path
	}
	// A link leads to the same path inside, or stays within what is mounted.
	source, serr := filepath.EvalSymlinks(m.Source)
	if _, _, seen := v.host(real); !seen && (serr != nil || !within(real, source)) {
		return isOutside, real
	}
	fi, err := os.Stat(real)
	switch {
	case err != nil:
		return isMissing, real
	case !fi.Mode().IsRegular():
		return isNoFile, real
	case unix.Faccessat(unix.AT_FDCWD, real, unix.X_OK, unix.AT_EACCESS) != nil:
		return isNotExecutable, real
	}
	return isProgram, real
}

// check refuses a program that the job would not find, with what its owner should write instead. later allows one that
// is named by its path and is not there yet.
func (v jobView) check(program string, later bool) error {
	if strings.HasPrefix(program, "nvidia-") {
		return nil // the driver's own come with the device
	}
	if strings.Contains(program, "/") {
		return v.checkPath(program, later)
	}
	outside, closed := "", ""
	for _, dir := range filepath.SplitList(v.path) {
		switch state, where := v.look(v.inside(dir) + "/" + program); state {
		case isProgram:
			return v.checkInterpreter(program, where)
		case isOutside:
			outside = where
		case isNotExecutable:
			closed = where
		}
	}
	switch {
	case outside != "":
		return invalid("%s: it is at %s, which a job does not see; add --mount %s:%[3]s:ro", program, outside, filepath.Dir(outside))
	case closed != "":
		return invalid("%s: %s may not be executed; mend it with: chmod +x %[2]s", program, closed)
	}
	if state, _ := v.look(filepath.Join(v.workdir, program)); state == isProgram || state == isNotExecutable {
		return invalid("%s: no such program on this job's PATH; for the file in the working directory write %s", program, startOf(program))
	}
	return invalid("%s: no such program on this job's PATH%s", program, v.suggest(program))
}

// startOf is how a file of the working directory is run.
func startOf(file string) string {
	if filepath.Ext(file) == ".py" {
		return "python3 " + file
	}
	return "./" + file
}

// inside is an entry of PATH, or a program's path, as a full path; an empty one is the working directory.
func (v jobView) inside(p string) string {
	if filepath.IsAbs(p) {
		return p
	}
	return filepath.Join(v.workdir, p)
}

func (v jobView) checkPath(program string, later bool) error {
	state, where := v.look(v.inside(program))
	switch {
	case state == isProgram:
		return v.checkInterpreter(program, where)
	case state == isMissing && later:
		return nil
	case state == isMissing:
		return invalid("%s: no such program%s", program, v.whereOf(program))
	case state == isOutside:
		return invalid("%s: a job does not see %s; add --mount %s:%[3]s:ro", program, where, filepath.Dir(where))
	case state == isNoFile:
		return invalid("%s: it is not a file that can be run", program)
	}
	return invalid("%s: it may not be executed; mend it with: chmod +x %s", program, where)
}

func (v jobView) whereOf(program string) string {
	if filepath.IsAbs(program) {
		return " on this machine"
	}
	return " in the working directory " + v.workdir
}

// checkInterpreter looks at the first line of a script: the kernel's "no such file" would seem to be about the script.
func (v jobView) checkInterpreter(program, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // a program may be executable and not readable
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n') // the kernel reads no more either
	rest, script := strings.CutPrefix(string(line), "#!")
	if !script {
		return nil
	}
	if strings.HasSuffix(rest, "\r\n") {
		return invalid("%s: its lines end as on Windows, so its interpreter is not found; mend it with: sed -i 's/\\r$//' %s", program, path)
	}
	words := strings.Fields(rest)
	if len(words) == 0 || !filepath.IsAbs(words[0]) {
		return nil
	}
	if state, _ := v.look(words[0]); state == isMissing || state == isOutside {
		return invalid("%s: its first line names %s, which a job does not find", program, words[0])
	}
	return nil
}

// suggest names a program on the PATH that the owner may have meant.
func (v jobView) suggest(program string) string {
	var near []string
	for _, dir := range filepath.SplitList(v.path) {
		host, _, ok := v.host(v.inside(dir))
		if !ok {
			continue
		}
		entries, err := os.ReadDir(host)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if n := e.Name(); alike(program, n) && !slices.Contains(near, n) {
				if state, _ := v.look(filepath.Join(v.inside(dir), n)); state == isProgram {
					near = append(near, n)
				}
			}
		}
	}
	// "python3" for "python" before anything that only looks like it.
	slices.SortFunc(near, func(a, b string) int { return distance(program, a) - distance(program, b) })
	if len(near) == 0 {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", near[0])
}

func alike(a, b string) bool { return distance(a, b) <= 2 }

// distance ranks what may have been meant: 0 the same but for case, 1 with a version's digit behind, 2 one slip of the
// finger away, 3 something else.
func distance(typed, name string) int {
	switch {
	case strings.EqualFold(typed, name):
		return 0
	case name == typed+"3" || typed == name+"3":
		return 1
	case len(typed) >= 4 && oneSlip(typed, name):
		return 2
	}
	return 3
}

// oneSlip says whether a letter was left out, added, replaced or swapped with its neighbour.
func oneSlip(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	switch len(b) - len(a) {
	case 0:
		swapped := i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
		return i < len(a) && (a[i+1:] == b[i+1:] || swapped)
	case 1:
		return a[i:] == b[i+1:]
	}
	return false
}
