package cdi

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// maxSpecSize bounds what is read of a file we did not write, in bytes. A machine's spec is some tens of kilobytes.
const maxSpecSize = 8 << 20

// errCrash is what the library's panic becomes: Podman's copy of it panics too, and no CDI device works.
var errCrash = errors.New("crashes the reader")

// validate is the library's own check of a spec, which it exports only in pieces.
func validate(raw *specs.Spec) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w (%v)", errCrash, r)
		}
	}()
	vendor, class := parser.ParseQualifier(raw.Kind)
	if err := errors.Join(parser.ValidateVendorName(vendor), parser.ValidateClassName(class)); err != nil {
		return err
	}
	if err := specs.ValidateVersion(raw); err != nil {
		return err
	}
	if err := (&library.ContainerEdits{ContainerEdits: &raw.ContainerEdits}).Validate(); err != nil {
		return err
	}
	if len(raw.Devices) == 0 {
		return errors.New("no devices")
	}
	seen := map[string]bool{}
	for i := range raw.Devices {
		d := &raw.Devices[i]
		if err := parser.ValidateDeviceName(d.Name); err != nil {
			return err
		}
		if seen[d.Name] {
			return fmt.Errorf("device %q is there twice", d.Name)
		}
		seen[d.Name] = true
		if err := (&library.ContainerEdits{ContainerEdits: &d.ContainerEdits}).Validate(); err != nil {
			return fmt.Errorf("device %q: %w", d.Name, err)
		}
		if c := d.ContainerEdits; fromSpec(&c).empty() && len(c.AdditionalGIDs) == 0 && c.IntelRdt == nil {
			return fmt.Errorf("device %q: has no edits", d.Name)
		}
	}
	return nil
}

// header is what is read of a spec that the library refuses, to say which names are lost with it.
type header struct {
	Version string `yaml:"cdiVersion"`
	Kind    string `yaml:"kind"`
	Devices []struct {
		Name string `yaml:"name"`
	} `yaml:"devices"`
}

// defect is a file that Podman's reader skips, or that crashes it.
type defect struct {
	file, code, message string
	kind                string // empty when unknown
	devices             []string
	crash               bool
}

func (d defect) defines(kind, device string) bool {
	return d.kind == kind && slices.Contains(d.devices, device)
}

// readSpec reads one file as a reader does that knows versions up to max. Exactly one of its results is set, or none
// when the file is gone.
func readSpec(path, max string) (*specs.Spec, *defect) {
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, &defect{file: path, code: CodeUnreadable, message: fmt.Sprintf("uid %d may not read it", os.Geteuid())}
	}
	if err != nil {
		return nil, &defect{file: path, code: CodeUnreadable, message: err.Error()}
	}
	raw, err := library.ParseSpec(data)
	d := describe(path, raw, data)
	if n, ok := compareVersions(d.version, max); ok && n > 0 {
		d.code = CodeTooNew
		d.message = fmt.Sprintf("is of CDI version %s; this Podman reads up to %s and skips the file without a word", d.version, max)
		return nil, &d.defect
	}
	if err == nil && raw == nil {
		err = errors.New("is empty")
	}
	if err == nil {
		err = validate(raw)
	}
	if err == nil {
		return raw, nil
	}
	d.code, d.message = CodeInvalid, oneLine(err.Error())
	if errors.Is(err, errCrash) {
		d.crash = true
		d.message = "crashes Podman's CDI reader, so no CDI device works while the file is there: " + d.message
		if vendor, class := parser.ParseQualifier(d.kind); len(vendor) == 1 || len(class) == 1 {
			d.code = CodeBadVendor
			d.message = fmt.Sprintf("kind %q has a vendor or class of one letter; that crashes Podman's CDI reader, "+
				"so no CDI device works while the file is there", d.kind)
		}
	}
	return nil, &d.defect
}

type described struct {
	defect
	version string
}

func describe(path string, raw *specs.Spec, data []byte) described {
	d := described{defect: defect{file: path}}
	if raw != nil {
		d.version, d.kind = raw.Version, raw.Kind
		for _, dev := range raw.Devices {
			d.devices = append(d.devices, dev.Name)
		}
		return d
	}
	var h header
	if yaml.Unmarshal(data, &h) != nil {
		return d
	}
	d.version, d.kind = h.Version, h.Kind
	for _, dev := range h.Devices {
		d.devices = append(d.devices, dev.Name)
	}
	return d
}

func readFile(path string) ([]byte, error) {
	// A FIFO must not hold us up.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, errors.New("is not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSpecSize+1))
	if err == nil && len(data) > maxSpecSize {
		err = fmt.Errorf("is larger than %d MiB", maxSpecSize>>20)
	}
	return data, err
}

// compareVersions orders two versions such as "0.5.0"; false when one is no version.
func compareVersions(a, b string) (int, bool) {
	va, okA := parseVersion(a)
	vb, okB := parseVersion(b)
	return slices.Compare(va, vb), okA && okB
}

func parseVersion(s string) ([]int, bool) {
	parts := strings.Split(strings.TrimPrefix(s, "v"), ".")
	v := make([]int, len(parts))
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 {
			return nil, false
		}
		v[i] = n
	}
	return v, len(v) == 3
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
