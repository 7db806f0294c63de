package runner

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/runner/account"
)

// forbidden are directories of the kernel's: a job that has them sees devices it was not given.
var forbidden = []string{"/dev", "/proc", "/sys"}

// checkMounts looks, as the user, at what a job wants of the host. Every refusal is a sentence for the job's owner.
func checkMounts(workdir string, mounts []engine.Mount) error {
	if err := checkSource("working directory", workdir); err != nil {
		return err
	}
	if fi, err := os.Stat(workdir); err != nil || !fi.IsDir() {
		return invalid("working directory %s is not a directory", workdir)
	}
	for _, m := range mounts {
		if err := checkSource("mount", m.Source); err != nil {
			return err
		}
		if err := checkTarget(m); err != nil {
			return err
		}
	}
	return nil
}

// present leaves out the optional mounts that are not there for this user.
func present(mounts []engine.Mount) []engine.Mount {
	kept := make([]engine.Mount, 0, len(mounts))
	for _, m := range mounts {
		if !m.Optional || checkSource("mount", m.Source) == nil {
			kept = append(kept, m)
		}
	}
	return kept
}

func checkSource(what, path string) error {
	if !filepath.IsAbs(path) {
		return invalid("%s %q: give an absolute path", what, path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return invalid("%s %s: %s", what, path, sentence(err))
	}
	for _, d := range forbidden {
		if within(real, d) || within(d, real) {
			return invalid("%s %s: it is, lies in or contains %s, which would show the job devices it was not given", what, path, d)
		}
	}
	fi, err := os.Stat(real)
	if err != nil {
		return invalid("%s %s: %s", what, path, sentence(err))
	}
	mode := uint32(unix.R_OK)
	if fi.IsDir() {
		mode |= unix.X_OK
	}
	if err := unix.Faccessat(unix.AT_FDCWD, real, mode, unix.AT_EACCESS); err != nil {
		return invalid("%s %s: you may not read it", what, path)
	}
	return nil
}

func checkTarget(m engine.Mount) error {
	t := filepath.Clean(m.Target)
	if !filepath.IsAbs(m.Target) || t == "/" {
		return invalid("mount %s: the place inside must be an absolute path other than /, not %q", m.Source, m.Target)
	}
	for _, d := range forbidden {
		if within(t, d) && t != "/dev/shm" {
			return invalid("mount %s: nothing may be mounted at %s", m.Source, t)
		}
	}
	return nil
}

// checkOutput says whether the output file can be written.
func checkOutput(workdir, output string) error {
	if output == "" {
		return nil
	}
	path := outputPath(workdir, output)
	dir := filepath.Dir(path)
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return invalid("output %s: directory %s: %s", output, dir, sentence(err))
	}
	for _, d := range forbidden {
		if within(real, d) {
			return invalid("output %s: it must not lie in %s", output, d)
		}
	}
	fi, err := os.Stat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return invalid("output %s: %s", output, sentence(err))
	case err == nil && !fi.Mode().IsRegular():
		return invalid("output %s is not a plain file", output)
	case err == nil && unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS) != nil:
		return invalid("output %s: you may not write it", output)
	case err != nil && unix.Faccessat(unix.AT_FDCWD, real, unix.W_OK|unix.X_OK, unix.AT_EACCESS) != nil:
		return invalid("output %s: you may not create files in %s", output, dir)
	}
	return nil
}

func outputPath(workdir, output string) string {
	if filepath.IsAbs(output) {
		return filepath.Clean(output)
	}
	return filepath.Join(workdir, output)
}

// sentence is a file error without its operation and path.
func sentence(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it does not exist on this machine"
	case errors.Is(err, fs.ErrPermission):
		return "you may not read it"
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}

// checkHome returns the physical path of a home directory that may be mounted.
func checkHome(u account.Account) (string, error) {
	home := filepath.Clean(u.Home)
	if !filepath.IsAbs(home) || home == "/" || home == "/root" || within(home, "/usr") || within(home, "/etc") {
		return "", invalid("home directory %q of %s cannot be given to a job: use a profile with an image", u.Home, u.Name)
	}
	if err := checkSource("home directory", home); err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		return "", invalid("home directory %s: %s", home, sentence(err))
	}
	if !account.Owned(real, u.UID) {
		return "", invalid("home directory %s does not belong to %s", home, u.Name)
	}
	return real, nil
}

// jobFile is a file of a job's attempt in one of the state directory's parts.
func (a *Agent) jobFile(part string, id engine.AttemptID, ext string) (string, error) {
	if id.Job <= 0 || id.Number <= 0 {
		return "", invalid("attempt %s does not exist", id)
	}
	return filepath.Join(a.o.StateDir, part, id.String()+ext), nil
}

func (a *Agent) checkpointDir(job engine.JobID) string {
	return filepath.Join(a.o.StateDir, "checkpoints", job.String())
}

// runBounded runs a program until it ends or ctx does.
func runBounded(ctx context.Context, cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	err := cmd.Wait()
	return strings.TrimSpace(out.String()), err
}
