package draft

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gputop/engine"
)

// The checks here look at files, as the user who submits.

const (
	accessX = 1
	accessW = 2
	accessR = 4
)

// maxEnvFile is the largest --env-file read, in bytes.
const maxEnvFile = 1 << 20

// reason is the part of a file error that a person needs: the path is in the sentence already.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "it does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "you may not read it"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

func readableDir(path string) error {
	if path == "" {
		return errors.New("the current directory is gone; give one with --workdir")
	}
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %s", path, reason(err))
	}
	if !st.IsDir() {
		return fmt.Errorf("%s is not a directory", path)
	}
	if syscall.Access(path, accessR|accessX) != nil {
		return fmt.Errorf("%s: you may not read it", path)
	}
	return nil
}

// mounts reads --mount and looks at each source, links resolved: a link to /dev is /dev.
func (c Caller) mounts(p *problems, typed []string) (out []engine.Mount) {
	for _, s := range typed {
		m, err := c.ParseMount(s)
		if err == nil {
			err = checkSource(m.Source)
		}
		if err != nil {
			p.add("mount", err)
			continue
		}
		out = append(out, m)
	}
	return out
}

func checkSource(path string) error {
	if err := checkNotKernel(path); err != nil {
		return err
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return fmt.Errorf("%s: %s", path, reason(err))
	}
	if err := checkNotKernel(real); err != nil {
		return fmt.Errorf("%s is a link: %w", path, err)
	}
	if real == "/" {
		return fmt.Errorf("%s is the whole machine, with /dev in it, which is never mounted: name the directories you need", path)
	}
	st, err := os.Stat(real)
	if err != nil {
		return fmt.Errorf("%s: %s", path, reason(err))
	}
	if st.Mode()&(fs.ModeDevice|fs.ModeCharDevice|fs.ModeNamedPipe) != 0 {
		return fmt.Errorf("%s is a device or a pipe; only directories, files and sockets can be mounted", path)
	}
	want := uint32(accessR)
	if st.IsDir() {
		want |= accessX
	}
	if syscall.Access(real, want) != nil {
		return fmt.Errorf("%s: you may not read it", path)
	}
	return nil
}

// output makes --output a full path and checks that its directory can be written. Names may hold %j and %a, directories
// too, then only the part before is checked.
func (c Caller) output(p *problems, typed, workdir string) string {
	path := typed
	if strings.HasPrefix(path, "~/") {
		path = c.Home + path[1:]
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(workdir, path)
	}
	path = filepath.Clean(path)
	if strings.HasSuffix(typed, "/") {
		p.addf("output", "%s is a directory; name a file, for example train-%%j.log", typed)
		return path
	}
	dir := filepath.Dir(path)
	if strings.Contains(dir, "%") {
		return path
	}
	if st, err := os.Stat(path); err == nil && st.IsDir() {
		p.addf("output", "%s is a directory; name a file, for example train-%%j.log", typed)
		return path
	}
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		p.addf("output", "its directory %s: %s", dir, reason(err))
	case !st.IsDir():
		p.addf("output", "%s is not a directory", dir)
	case syscall.Access(dir, accessW|accessX) != nil:
		p.addf("output", "its directory %s: you may not write there", dir)
	}
	return path
}

// env is what --env-file and --env give; --env wins.
func (c Caller) env(p *problems, f Fields) (env map[string]string, secret []string) {
	env = map[string]string{}
	if f.EnvFile != "" {
		p.add("env-file", c.readEnvFile(c.resolve(f.EnvFile), env))
		secret = slices.Sorted(maps.Keys(env))
	}
	for _, e := range f.Env {
		name, err := c.setEnv(env, e)
		if err == nil {
			err = checkEnvName(name)
		}
		p.add("env", err)
		// A value that was typed is no secret any more; one that was only named may be.
		secret = slices.DeleteFunc(secret, func(n string) bool { return n == name })
		if !strings.Contains(e, "=") {
			secret = append(secret, name)
		}
	}
	if len(env) == 0 {
		return nil, nil
	}
	return env, secret
}

// setEnv reads NAME=VALUE or NAME. Errors never repeat a value.
func (c Caller) setEnv(env map[string]string, e string) (string, error) {
	name, value, ok := strings.Cut(e, "=")
	if !ok {
		if err := checkEnvName(name); err != nil {
			return name, err
		}
		if value, ok = lookup(c.Environ, name); !ok {
			return name, fmt.Errorf("%s is not set here; write %s=VALUE", name, name)
		}
	}
	env[name] = value
	return name, nil
}

func lookup(environ []string, name string) (value string, ok bool) {
	for _, e := range environ {
		if n, v, is := strings.Cut(e, "="); is && n == name {
			value, ok = v, true
		}
	}
	return value, ok
}

func (c Caller) readEnvFile(path string, env map[string]string) error {
	st, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %s", path, reason(err))
	}
	if !st.Mode().IsRegular() || st.Size() > maxEnvFile {
		return fmt.Errorf("%s is not a file of at most %d bytes", path, maxEnvFile)
	}
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("%s: %s", path, reason(err))
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	sc.Buffer(nil, maxEnvFile)
	for n := 1; sc.Scan(); n++ {
		line := strings.TrimLeft(sc.Text(), " \t")
		if line == "" || line[0] == '#' {
			continue
		}
		name, err := c.setEnv(env, line)
		if err == nil {
			err = checkEnvName(name)
		}
		if err != nil {
			delete(env, name)
			return fmt.Errorf("%s line %d: %w", path, n, err)
		}
	}
	return sc.Err()
}
