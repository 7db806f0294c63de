package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Finder resolves qualified CDI names as a Podman would that reads these directories. The zero value is ready to use.
type Finder struct {
	// Dirs are the spec directories of that Podman, later ones winning; nil is DefaultDirs.
	Dirs []string
	// MaxVersion is the newest CDI version that Podman reads ("0.5.0" for Podman 4.3); empty for all that we know.
	MaxVersion string
	// Groups are a user's groups, for Check; nil asks the system's user database, which may block.
	Groups func(uid uint32) ([]uint32, error)
}

// source is one good spec file. Dir is its place in Finder.Dirs.
type source struct {
	file string
	dir  int
	spec *specs.Spec
}

type loaded struct {
	sources []source
	defects []defect
}

// Resolve is the edits of all the names together: what their files say for every device once, then each device's own,
// in order; a later variable or mount of the same name replaces an earlier one. The error is a *Problem, the first of
// those that Check finds.
func (f Finder) Resolve(names ...string) (Edits, error) {
	edits, problems, _ := f.examine(names)
	if len(problems) > 0 {
		return Edits{}, &problems[0]
	}
	return edits, nil
}

// Check is every reason why these names would not work now for a user's Podman: what Resolve finds, and files which
// that user may not read. None is good news.
func (f Finder) Check(readableBy uint32, names ...string) []Problem {
	_, problems, files := f.examine(names)
	return append(problems, f.unreadable(readableBy, files)...)
}

// examine resolves the names; files are those that define them.
func (f Finder) examine(names []string) (edits Edits, problems []Problem, files []source) {
	l, problems := f.load()
	for _, name := range names {
		src, device, p := l.find(name, f.dirs())
		if p != nil {
			problems = append(problems, *p)
			continue
		}
		first := !slices.ContainsFunc(files, func(s source) bool { return s.file == src.file })
		parts := []*specs.ContainerEdits{&device.ContainerEdits}
		if first {
			files = append(files, src)
			parts = []*specs.ContainerEdits{&src.spec.ContainerEdits, &device.ContainerEdits}
		}
		if p := presence(src.file, name, parts); p != nil {
			problems = append(problems, *p)
		}
		for _, e := range parts {
			edits = merge(edits, fromSpec(e))
		}
	}
	return edits, problems, files
}

func (f Finder) dirs() []string {
	if f.Dirs == nil {
		return DefaultDirs
	}
	return f.Dirs
}

// load reads every spec file there is. Its problems are those that harm every name.
func (f Finder) load() (l loaded, problems []Problem) {
	max := f.MaxVersion
	if max == "" {
		max = specs.CurrentVersion
	}
	for i, dir := range f.dirs() {
		files, d := specFiles(dir)
		if d != nil {
			l.defects = append(l.defects, *d)
		}
		for _, file := range files {
			spec, d := readSpec(file, max)
			switch {
			case d != nil && d.crash:
				problems = append(problems, d.problem("", "remove "+file+", or give it a longer vendor and class"))
			case d != nil:
				l.defects = append(l.defects, *d)
			case spec != nil:
				l.sources = append(l.sources, source{file, i, spec})
			}
		}
	}
	return l, problems
}

// specFiles lists the files of a directory that a reader looks at; a missing directory has none.
func specFiles(dir string) ([]string, *defect) {
	st, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && st.Mode()&fs.ModeSymlink != 0 {
		return nil, &defect{file: dir, code: CodeUnreadable, message: "is a symbolic link, and Podman does not follow one there"}
	}
	entries, readErr := os.ReadDir(dir)
	if err = errors.Join(err, readErr); err != nil {
		return nil, &defect{file: dir, code: CodeUnreadable, message: oneLine(err.Error())}
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".yaml") {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, nil
}

// find is the file and device that a name means. As in the CDI library, a later directory wins, and two files of one
// directory that define the same name kill it, whatever other directories say.
func (l loaded) find(name string, dirs []string) (source, *specs.Device, *Problem) {
	kind, device, p := splitName(name)
	if p != nil {
		return source{}, nil, p
	}
	var best source
	var found *specs.Device
	for _, s := range l.sources {
		if s.spec.Kind != kind {
			continue
		}
		i := slices.IndexFunc(s.spec.Devices, func(d specs.Device) bool { return d.Name == device })
		if i < 0 {
			continue
		}
		if found != nil && s.dir == best.dir {
			return source{}, nil, &Problem{
				Code: CodeConflict, Name: name, File: s.file,
				Message: fmt.Sprintf("defines it, and so does %s; Podman then knows neither", best.file),
				Fix:     fmt.Sprintf("remove one of the two, the one that is out of date: rm %s or rm %s", best.file, s.file),
			}
		}
		best, found = s, &s.spec.Devices[i]
	}
	if found == nil {
		return source{}, nil, l.explain(name, kind, device, dirs)
	}
	return best, found, nil
}

func splitName(name string) (kind, device string, p *Problem) {
	// The library panics on a vendor or class of one letter.
	vendor, class, _ := parser.ParseDevice(name)
	if len(vendor) == 1 || len(class) == 1 {
		return "", "", &Problem{
			Code: CodeBadVendor, Name: name,
			Message: "a vendor or class of one letter crashes Podman's CDI reader",
			Fix:     "use a longer vendor and class",
		}
	}
	vendor, class, device, err := parser.ParseQualifiedName(name)
	if err != nil {
		return "", "", &Problem{
			Code: CodeInvalid, Name: name, Message: "is no qualified CDI name",
			Fix: "write it as vendor/class=device, for example " + GPUKind + "=0",
		}
	}
	return vendor + "/" + class, device, nil
}

// explain says why a name is not found.
func (l loaded) explain(name, kind, device string, dirs []string) *Problem {
	for _, d := range l.defects {
		if d.defines(kind, device) || kind == LeaseKind && filepath.Base(d.file) == leaseFile(device) {
			p := d.problem(name, "")
			return &p
		}
	}
	var known []string
	file := ""
	for _, s := range l.sources {
		if s.spec.Kind == kind {
			file = s.file
			for _, d := range s.spec.Devices {
				known = append(known, d.Name)
			}
		}
	}
	if file != "" && kind != LeaseKind {
		return &Problem{
			Code: CodeUnresolvable, Name: name, File: file, Fix: mend(kind, file),
			Message: "does not know this device, only " + shortList(known) + "; after a MIG change or a new card it is out of date",
		}
	}
	for _, d := range l.defects {
		// A file nothing is known of may be the one; somebody else's lease never is.
		if kind != LeaseKind && (d.kind == kind || d.kind == "" && !strings.HasPrefix(filepath.Base(d.file), ourPrefix)) {
			p := d.problem(name, mend(kind, d.file))
			return &p
		}
	}
	code := CodeNoSpec
	if kind == LeaseKind {
		code = CodeUnresolvable
	}
	return &Problem{
		Code: code, Name: name, Fix: mend(kind, ""),
		Message: fmt.Sprintf("no CDI spec in %s defines it", strings.Join(dirs, " or ")),
	}
}

func (d defect) problem(name, fix string) Problem {
	if fix == "" {
		fix = mend(d.kind, d.file)
	}
	switch {
	case d.code == CodeTooNew && d.kind == GPUKind:
		fix = "sudo nvidia-ctk cdi generate --feature-flag no-additional-gids-for-device-nodes --output=" + d.file +
			" (NVIDIA writes an older version then), or a newer Podman"
	case d.code == CodeTooNew:
		fix = "write it again in an older CDI version, or use a newer Podman"
	case d.code == CodeUnreadable && strings.HasPrefix(filepath.Base(d.file), leasePrefix):
		fix = "nothing: a lease is for the owner of its job alone"
	case d.code == CodeUnreadable:
		fix = "sudo chmod a+r " + d.file
	}
	return Problem{Code: d.code, Name: name, File: d.file, Message: d.message, Fix: fix}
}

// mend is what makes a good spec of this kind. It writes over the file at fault: a second file beside it could be
// hidden by the first, or kill it.
func mend(kind, file string) string {
	switch kind {
	case GPUKind:
		if file == "" || filepath.Ext(file) == "" {
			file = "/etc/cdi/nvidia.yaml"
		}
		return "sudo nvidia-ctk cdi generate --output=" + file
	case SimulatedKind:
		return "restart the gputop daemon, which writes the spec of the SIMULATED cards when it starts"
	case LeaseKind:
		return "requeue the job: every attempt gets a lease of its own"
	}
	return "write the spec again with the tool it comes from"
}

func shortList(names []string) string {
	const most = 8
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// merge adds edits as a runtime does: a variable or mount of the same name takes the place of the earlier one.
func merge(to, add Edits) Edits {
	for _, v := range add.Env {
		key, _, _ := strings.Cut(v, "=")
		if i := slices.IndexFunc(to.Env, func(have string) bool { return strings.HasPrefix(have, key+"=") }); i >= 0 {
			to.Env[i] = v
		} else {
			to.Env = append(to.Env, v)
		}
	}
	for _, m := range add.Mounts {
		to.Mounts = slices.DeleteFunc(to.Mounts, func(have Mount) bool { return have.ContainerPath == m.ContainerPath })
		to.Mounts = append(to.Mounts, m)
	}
	for _, d := range add.DeviceNodes {
		if !slices.Contains(to.DeviceNodes, d) {
			to.DeviceNodes = append(to.DeviceNodes, d)
		}
	}
	to.Hooks += add.Hooks
	return to
}
