// Package simgpu is SIMULATED GPUs behind NVML's own interface, so that everything above it runs unchanged without a
// card. What they report comes from real processes, in containers or not, that hold memory and SMs of a device's file
// (package simdev); the rest, such as temperature, follows from it. It must not be used to claim anything about real
// hardware.
package simgpu

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

//go:generate go run generate.go

// Device is one simulated device: a card, or a MIG device of one.
type Device struct {
	UUID engine.DeviceID
	// Minor is the number of the card's device node.
	Minor int
	// HostPath is the device's file; ContainerPath is where a container that is given the device finds it.
	HostPath      string
	ContainerPath string
	// Parent is the card of a MIG device; empty for a card.
	Parent engine.DeviceID
}

// Prepare makes the file of every device of c in dir and lists the devices: each card, then its MIG devices. Files
// that are there stay as they are, with whatever running processes hold of them. UUIDs follow from instance, model and
// position, and so survive a restart.
func Prepare(dir string, c Config, instance string) ([]Device, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("prepare simulated GPUs: %w", err)
	}
	var out []Device
	add := func(d Device, model string, capacity, context engine.Bytes) error {
		d.HostPath = filepath.Join(dir, string(d.UUID))
		out = append(out, d)
		return simdev.Create(d.HostPath, simdev.Header{UUID: d.UUID, Model: model, Capacity: capacity, Context: context})
	}
	for i, card := range c.Cards {
		m := models[card.Model]
		id := cardUUID(instance, card.Model, i)
		err := add(Device{UUID: id, Minor: i, ContainerPath: fmt.Sprintf("/dev/nvidia%d", i)}, m.name, m.usable(), m.context)
		if err != nil {
			return nil, err
		}
		seen := map[engine.DeviceID]bool{}
		for _, names := range c.layouts(i) {
			slices, err := m.place(names)
			if err != nil {
				return nil, err
			}
			for k, s := range slices {
				d := Device{UUID: migUUID(id, s.profile, k), Minor: i, Parent: id, ContainerPath: fmt.Sprintf("/dev/nvidia%d-mig%d", i, s.instance)}
				if s.ci > 0 {
					d.ContainerPath += fmt.Sprintf("-ci%d", s.ci)
				}
				if seen[d.UUID] {
					continue
				}
				seen[d.UUID] = true
				if err := add(d, m.name+" MIG "+s.profile, s.memory, m.context); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

func cardUUID(instance, model string, index int) engine.DeviceID {
	return engine.DeviceID("GPU-" + uuid(fmt.Sprintf("%q %q %d", instance, model, index)))
}

func migUUID(card engine.DeviceID, profile string, index int) engine.DeviceID {
	return engine.DeviceID("MIG-" + uuid(fmt.Sprintf("%q %q %d", card, profile, index)))
}

// uuid is a version 8 UUID made from a seed.
func uuid(seed string) string {
	b := sha256.Sum256([]byte(seed))
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
