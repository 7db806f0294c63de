package cdi

import (
	"fmt"
	"path/filepath"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

const (
	simulatedPrefix = ourPrefix + "simulated-"
	// SimulatedEnv tells a workload in a container which SIMULATED devices it was given: their paths inside, with ':' between.
	SimulatedEnv = "GPUTOP_SIM_DEVICES"
)

// SimulatedDevice is one SIMULATED card: a regular file of the host that stands for it inside the container.
type SimulatedDevice struct {
	Name                    string // the device name, without the kind: a UUID
	HostPath, ContainerPath string
	Env                     []string
}

// WriteSimulated writes dir/gputop-simulated-INSTANCE.json, readable for everybody, with all the SIMULATED devices of one
// daemon, and returns its path. Daemons beside each other keep their own files by their instance. The version we write has no annotations, so the word SIMULATED stands in each device's
// environment.
//
// The environment of the last device wins in a container: a lease over several must carry SimulatedVariable of them all.
func WriteSimulated(dir, instance string, devs []SimulatedDevice) (path string, err error) {
	if err := checkName(instance); err != nil {
		return "", fmt.Errorf("instance of simulated devices: %w", err)
	}
	file := simulatedPrefix + instance + ".json"
	path = filepath.Join(dir, file)
	var devices []specs.Device
	var edits []Edits
	for _, d := range devs {
		if err := checkName(d.Name); err != nil {
			return "", fmt.Errorf("write %s: %w", path, err)
		}
		e := SimulatedEdits(d)
		devices = append(devices, specs.Device{Name: d.Name, ContainerEdits: toSpec(e)})
		edits = append(edits, e)
	}
	data, err := encode(SimulatedKind, devices, edits)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	d, err := makeDir(dir)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	defer d.Close()
	return path, realOps.publish(d, file, data, 0o644, nil)
}

// SimulatedEdits are the edits of SIMULATED devices together, for a Podman that cannot see our specs. Files are mounted
// rather than given as device nodes: they are regular files.
func SimulatedEdits(devs ...SimulatedDevice) Edits {
	var e Edits
	for _, d := range devs {
		e.Env = append(e.Env, d.Env...)
		e.Mounts = append(e.Mounts, Mount{HostPath: d.HostPath, ContainerPath: d.ContainerPath})
	}
	if len(devs) > 0 {
		e.Env = append(e.Env, SimulatedVariable(devs...), "GPUTOP_SIMULATED=1")
	}
	return e
}

// SimulatedVariable is the environment variable that names the devices given, as "NAME=value".
func SimulatedVariable(devs ...SimulatedDevice) string {
	paths := make([]string, len(devs))
	for i, d := range devs {
		paths[i] = d.ContainerPath
	}
	return SimulatedEnv + "=" + strings.Join(paths, ":")
}
