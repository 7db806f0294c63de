package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	leasePrefix = ourPrefix + "lease-"
	leaseSuffix = ".json"
)

// Lease hands one allocation to one attempt's container, and to nobody but its owner.
type Lease struct {
	// Name is the device name, without the kind.
	Name     string
	OwnerUID uint32
	Edits    Edits
}

// WriteLease writes dir/gputop-lease-NAME.json, readable for its owner alone, and returns the qualified CDI name. It
// replaces an older lease of that name. After an error no temporary is left; the lease is then there whole or not at
// all, so remove it before the devices are given away again.
func WriteLease(dir string, l Lease) (qualified string, err error) {
	return realOps.writeLease(dir, l)
}

func (o fileOps) writeLease(dir string, l Lease) (string, error) {
	if err := checkName(l.Name); err != nil {
		return "", fmt.Errorf("lease: %w", err)
	}
	data, err := encode(LeaseKind, []specs.Device{{Name: l.Name, ContainerEdits: toSpec(l.Edits)}}, []Edits{l.Edits})
	if err != nil {
		return "", fmt.Errorf("lease %s: %w", l.Name, err)
	}
	d, err := makeDir(dir)
	if err != nil {
		return "", fmt.Errorf("lease %s: %w", l.Name, err)
	}
	defer d.Close()
	if err := o.publish(d, leaseFile(l.Name), data, 0o600, &l.OwnerUID); err != nil {
		return "", fmt.Errorf("lease %s: %w", l.Name, err)
	}
	return LeaseKind + "=" + l.Name, nil
}

func leaseFile(name string) string { return leasePrefix + name + leaseSuffix }

// RemoveLease takes a lease away for good; one that is not there is no error.
func RemoveLease(dir, name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("remove lease: %w", err)
	}
	d, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove lease %s: %w", name, err)
	}
	defer d.Close()
	if err := unix.Unlinkat(int(d.Fd()), leaseFile(name), 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove lease %s: %w", filepath.Join(dir, leaseFile(name)), err)
	}
	// Also when it was gone already: an earlier removal may not have reached the disk.
	if err := d.Sync(); err != nil {
		return fmt.Errorf("remove lease %s: sync %s: %w", name, dir, err)
	}
	return nil
}

// ListLeases is the names of the leases in dir, sorted.
func ListLeases(dir string) ([]string, error) {
	d, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	defer d.Close()
	files, err := d.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list leases in %s: %w", dir, err)
	}
	var names []string
	for _, f := range files {
		name, isLease := strings.CutPrefix(f, leasePrefix)
		name, isJSON := strings.CutSuffix(name, leaseSuffix)
		if isLease && isJSON && checkName(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// toSpec is our edits in the words of the CDI specification.
func toSpec(e Edits) specs.ContainerEdits {
	out := specs.ContainerEdits{Env: e.Env}
	for _, m := range e.Mounts {
		out.Mounts = append(out.Mounts, &specs.Mount{HostPath: m.HostPath, ContainerPath: m.ContainerPath, Options: mountOptions(m, isNoexec(m.HostPath))})
	}
	for _, p := range e.DeviceNodes {
		out.DeviceNodes = append(out.DeviceNodes, &specs.DeviceNode{Path: p})
	}
	return out
}

// mountOptions are the options of a bind mount. Any but rw make the runtime remount, and a user namespace may not drop
// there what the source's file system forbids: runc 1.1 fails with EPERM. Debian's /run is noexec.
func mountOptions(m Mount, noexec bool) []string {
	if !m.ReadOnly {
		return []string{"bind", "rw"}
	}
	options := []string{"bind", "ro", "nosuid", "nodev"}
	if noexec {
		options = append(options, "noexec")
	}
	return options
}

func isNoexec(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}

// fromSpec is the edits of a spec in our words. A device node is named by its path in the container.
func fromSpec(e *specs.ContainerEdits) Edits {
	out := Edits{Env: e.Env, Hooks: len(e.Hooks)}
	for _, m := range e.Mounts {
		out.Mounts = append(out.Mounts, Mount{m.HostPath, m.ContainerPath, slices.Contains(m.Options, "ro")})
	}
	for _, d := range e.DeviceNodes {
		out.DeviceNodes = append(out.DeviceNodes, d.Path)
	}
	return out
}

// encode makes the bytes of a spec of ours, and proves that the library reads the same edits back from them.
func encode(kind string, devices []specs.Device, edits []Edits) ([]byte, error) {
	for _, e := range edits {
		if err := e.check(); err != nil {
			return nil, err
		}
	}
	data, err := json.MarshalIndent(&specs.Spec{Version: specVersion, Kind: kind, Devices: devices}, "", "  ")
	if err != nil {
		return nil, err
	}
	raw, err := library.ParseSpec(data)
	if err != nil {
		return nil, err
	}
	if err := validate(raw); err != nil {
		return nil, err
	}
	for i, d := range raw.Devices {
		if got := fromSpec(&d.ContainerEdits); !sameEdits(got, edits[i]) {
			return nil, fmt.Errorf("CDI device %s: its edits do not survive being written: %+v became %+v", d.Name, edits[i], got)
		}
	}
	return append(data, '\n'), nil
}

func sameEdits(a, b Edits) bool {
	return slices.Equal(a.Env, b.Env) && slices.Equal(a.DeviceNodes, b.DeviceNodes) && a.Hooks == b.Hooks &&
		(len(a.Mounts) == 0 && len(b.Mounts) == 0 || reflect.DeepEqual(a.Mounts, b.Mounts))
}
