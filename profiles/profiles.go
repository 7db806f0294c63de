// Package profiles holds the built-in job profiles and reads profiles from YAML. A profile says what a job finds
// inside its container. The package only reads and checks: it must not look at the machine, at users or at images.
package profiles

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

// Default is the profile of a job that names none.
const Default = "host-env"

// Profile is a named job template.
type Profile struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	// Image is the image it brings; NeedsImage says that the job must name one. With HostEnv there is neither: the job runs
	// the host's own programs.
	Image      string `yaml:"image"`
	NeedsImage bool   `yaml:"needs_image"`
	HostEnv    bool   `yaml:"host_env"`
	// GPUs is how many whole GPUs a job gets that does not say; nil leaves that to the daemon.
	GPUs *int `yaml:"gpus"`
	// MountHome mounts the home directory read-write at its own path.
	MountHome bool `yaml:"mount_home"`
	// KeepEntrypoint runs the job's command as arguments of the image's entrypoint instead of as the program.
	KeepEntrypoint bool              `yaml:"keep_entrypoint"`
	Network        string            `yaml:"network"` // "host", "private" or "none"
	Env            map[string]string `yaml:"env"`
	// Caches are directories kept between jobs, relative to the home directory.
	Caches []string `yaml:"caches"`
	// Command is what a job runs that names nothing, and Program the program in it that has to be there.
	Command []string `yaml:"command"`
	Program string   `yaml:"program"`
	// Port is where the job's server listens, as a job's own --port; URL is the path that opens it, with {job} and {token}.
	Port int    `yaml:"port"`
	URL  string `yaml:"url"`
}

//go:embed *.yaml
var builtin embed.FS

// Builtin is the profiles that come with gputop, sorted by name. They are shared: callers change nothing in them.
func Builtin() ([]Profile, error) {
	all, err := parsed()
	return slices.Clone(all), err
}

// parsed reads them once: every submit asks.
var parsed = sync.OnceValues(parseBuiltin)

func parseBuiltin() ([]Profile, error) {
	files, err := builtin.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("list the built-in profiles: %w", err)
	}
	var all []Profile
	for _, entry := range files {
		f, err := builtin.Open(entry.Name())
		if err != nil {
			return nil, fmt.Errorf("open the built-in profile %s: %w", entry.Name(), err)
		}
		p, err := Load(f, entry.Name())
		f.Close()
		if err != nil {
			return nil, err
		}
		if p.Name+".yaml" != entry.Name() {
			return nil, fmt.Errorf("%s: holds the profile %q; name the file after it", entry.Name(), p.Name)
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Profile) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Get is the built-in profile of a name; the error lists the names there are.
func Get(name string) (Profile, error) {
	all, err := parsed()
	if err != nil {
		return Profile{}, err
	}
	var names []string
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
		names = append(names, p.Name)
	}
	return Profile{}, fmt.Errorf("no profile %q; there are %s", clip(name), strings.Join(names, ", "))
}

// maxSize bounds a profile's file, in bytes.
const maxSize = 64 << 10

// Load reads one profile. An unknown key, a key given twice, a wrong type or an impossible value is an error of one
// line that begins with "FILE:LINE:".
func Load(r io.Reader, file string) (Profile, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSize+1))
	if err != nil {
		return Profile{}, fmt.Errorf("%s: read: %w", file, err)
	}
	if len(data) > maxSize {
		return Profile{}, fmt.Errorf("%s: is larger than %d KiB; a profile is some lines of YAML", file, maxSize>>10)
	}
	var p Profile
	d := yaml.NewDecoder(strings.NewReader(string(data)), yaml.Strict())
	err = d.Decode(&p)
	if errors.Is(err, io.EOF) {
		return Profile{}, fmt.Errorf("%s: is empty; it needs at least a name, a description and a network", file)
	}
	if err != nil {
		return Profile{}, located(file, err)
	}
	if err := d.Decode(new(any)); !errors.Is(err, io.EOF) {
		return Profile{}, fmt.Errorf("%s: holds more than one document; give each profile a file of its own", file)
	}
	if key, err := p.check(); err != nil {
		return Profile{}, fmt.Errorf("%s:%d: %s: %w", file, lineOf(data, key), key, err)
	}
	return p, nil
}

// located puts the file and line in front of what the YAML reader says.
func located(file string, err error) error {
	var ye yaml.Error
	if !errors.As(err, &ye) {
		return fmt.Errorf("%s: %w", file, err)
	}
	line := 1
	if t := ye.GetToken(); t != nil && t.Position != nil {
		line = t.Position.Line
	}
	return fmt.Errorf("%s:%d: %s", file, line, strings.Join(strings.Fields(ye.GetMessage()), " "))
}

// lineOf is the line a key stands in; 1 when it is missing.
func lineOf(data []byte, key string) int {
	p, err := yaml.PathString("$." + key)
	if err != nil {
		return 1
	}
	node, err := p.ReadNode(strings.NewReader(string(data)))
	if err != nil || node == nil || node.GetToken() == nil {
		return 1
	}
	return node.GetToken().Position.Line
}

var (
	nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)
	envForm  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// check reports the key whose value cannot be, and why.
func (p Profile) check() (key string, err error) {
	if !nameForm.MatchString(p.Name) {
		return "name", fmt.Errorf("%q: want up to 32 small letters, digits and dashes, a letter first", clip(p.Name))
	}
	if strings.TrimSpace(p.Description) == "" {
		return "description", errors.New("is missing; say in a line what the profile is for")
	}
	if strings.ContainsAny(p.Description, "\n\x1b") {
		return "description", errors.New("must be one line")
	}
	if !slices.Contains([]string{"host", "private", "none"}, p.Network) {
		return "network", fmt.Errorf("%q: want host, private or none", clip(p.Network))
	}
	if key, err := p.checkImage(); err != nil {
		return key, err
	}
	if p.GPUs != nil && *p.GPUs < 0 {
		return "gpus", fmt.Errorf("%d: want 0 or more", *p.GPUs)
	}
	switch {
	case p.Port < 0 || p.Port > 65535:
		return "port", fmt.Errorf("%d: want a number from 1 to 65535", p.Port)
	case p.URL != "" && (p.Port == 0 || !strings.HasPrefix(p.URL, "/")):
		return "url", fmt.Errorf("%q: want a path such as /lab, of a profile with a port", clip(p.URL))
	case p.Program != "" && len(p.Command) == 0:
		return "program", errors.New("is one of the command, which is missing")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		if !envForm.MatchString(name) {
			return "env", fmt.Errorf("%q is no name of an environment variable", clip(name))
		}
		if strings.ContainsRune(p.Env[name], 0) {
			return "env", fmt.Errorf("%s holds a NUL byte", name)
		}
	}
	for i, c := range p.Caches {
		if c == "" || path.IsAbs(c) || path.Clean(c) != c || c == "." || c == ".." || strings.HasPrefix(c, "../") {
			return "caches", fmt.Errorf("%q: want a directory inside the home directory, such as .cache/pip", clip(c))
		}
		if slices.Contains(p.Caches[:i], c) {
			return "caches", fmt.Errorf("%q is there twice", c)
		}
	}
	return "", nil
}

func (p Profile) checkImage() (key string, err error) {
	switch {
	case p.HostEnv && p.Image != "":
		return "image", errors.New("host_env runs the host's own programs and takes no image; drop one of the two")
	case p.HostEnv && p.NeedsImage:
		return "needs_image", errors.New("host_env runs the host's own programs and takes no image; drop one of the two")
	case p.HostEnv && p.KeepEntrypoint:
		return "keep_entrypoint", errors.New("host_env takes no image, so there is no entrypoint to keep")
	case p.Image != "" && p.NeedsImage:
		return "needs_image", errors.New("the profile brings an image of its own; drop one of the two")
	case !p.HostEnv && p.Image == "" && !p.NeedsImage:
		return "image", errors.New("is missing; name an image, or say needs_image: true or host_env: true")
	case strings.ContainsFunc(p.Image, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "image", fmt.Errorf("%q: must not hold spaces or control characters", clip(p.Image))
	}
	return "", nil
}

func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}
