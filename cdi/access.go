package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gputop/cdi/posixacl"
)

// presence reports what a spec names that is not on this machine, or not as rootless Podman needs it.
func presence(file, name string, parts []*specs.ContainerEdits) *Problem {
	kind, _, _ := strings.Cut(name, "=")
	var gone []string
	problem := func(code, message string) *Problem {
		return &Problem{Code: code, Name: name, File: file, Message: message, Fix: mend(kind, file)}
	}
	look := func(what, path string, device bool) *Problem {
		st, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
			gone = append(gone, what+" "+printable(path))
		case err != nil:
			return problem(CodeUnreadable, fmt.Sprintf("cannot look at its %s %s: %v", what, printable(path), err))
		case device && st.Mode()&fs.ModeDevice == 0:
			gone = append(gone, what+" "+printable(path)+" (is there, but is no device)")
		}
		return nil
	}
	for _, e := range parts {
		for _, d := range e.DeviceNodes {
			if d.HostPath != "" && d.HostPath != d.Path {
				return problem(CodeInvalid, fmt.Sprintf("gives the device node %s another path, %s, in the container; rootless Podman "+
					"needs the two alike", printable(d.HostPath), printable(d.Path)))
			}
			if p := look("device node", d.Path, true); p != nil {
				return p
			}
		}
		for _, m := range e.Mounts {
			// A tmpfs or the like has no source on the host.
			if !filepath.IsAbs(m.HostPath) {
				continue
			}
			if p := look("mount source", m.HostPath, false); p != nil {
				return p
			}
		}
		for _, h := range e.Hooks {
			if p := look("hook", h.Path, false); p != nil {
				return p
			}
		}
	}
	if len(gone) == 0 {
		return nil
	}
	return problem(CodeStale, "is out of date, as after a driver upgrade or a MIG change: it names what is not there: "+shortList(gone))
}

// unreadable reports the files, and their directories, that a user may not read.
func (f Finder) unreadable(uid uint32, files []source) []Problem {
	if uid == 0 || len(files) == 0 {
		return nil
	}
	groups, groupsErr := f.groups(uid)
	var problems []Problem
	for _, s := range files {
		at, err := mayRead(s.file, uid, groups)
		if err == nil && at == "" {
			continue
		}
		if at == s.file {
			at = "its mode and ACL"
		}
		d := defect{file: s.file, kind: s.spec.Kind, code: CodeUnreadable}
		d.message = fmt.Sprintf("uid %d may not read it (%s in the way), so their Podman says \"unresolvable CDI devices\"", uid, at)
		if err != nil {
			d.message = fmt.Sprintf("cannot tell whether uid %d may read it: %v", uid, err)
		}
		if groupsErr != nil {
			d.message += fmt.Sprintf(" (their groups are not known: %v)", groupsErr)
		}
		p := d.problem("", "")
		if filepath.IsAbs(at) {
			p.Fix = "sudo chmod a+rx " + at
		}
		problems = append(problems, p)
	}
	return problems
}

// mayRead says which path on the way to a file stops a user: empty when none does.
func mayRead(file string, uid uint32, groups []uint32) (at string, err error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", err
	}
	// The reader lists the directory by the name it was given, and reaches the file by its real one.
	listed, err := filepath.EvalSymlinks(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	wants := []struct {
		path string
		perm uint16
	}{{real, posixacl.Read}, {listed, posixacl.Read | posixacl.Exec}}
	for _, p := range []string{real, listed} {
		for dir := filepath.Dir(p); ; dir = filepath.Dir(dir) {
			wants = append(wants, struct {
				path string
				perm uint16
			}{dir, posixacl.Exec})
			if dir == "/" {
				break
			}
		}
	}
	slices.Reverse(wants)
	for _, w := range wants {
		var st unix.Stat_t
		if err := unix.Stat(w.path, &st); err != nil {
			return "", &fs.PathError{Op: "stat", Path: w.path, Err: err}
		}
		acl, err := posixacl.Of(w.path, st.Mode)
		if err != nil {
			return "", err
		}
		if !posixacl.Allows(acl, st.Uid, st.Gid, uid, groups, w.perm) {
			if w.path == real {
				return file, nil
			}
			return w.path, nil
		}
	}
	return "", nil
}

func (f Finder) groups(uid uint32) ([]uint32, error) {
	if f.Groups != nil {
		return f.Groups(uid)
	}
	u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return nil, err
	}
	ids, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var groups []uint32
	for _, id := range ids {
		n, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return nil, err
		}
		groups = append(groups, uint32(n))
	}
	return groups, nil
}
