package daemon

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gputop/cdi"
	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/profiles"
)

// containerSpec is the container of an attempt, and writes its lease. Where this user's Podman reads the directory we
// write leases to, devices and lease go by CDI name; elsewhere the same edits go in directly, and the attempt says so.
func (a *attempt) containerSpec(l *link) (agentrpc.ContainerSpec, error) {
	prof, err := profiles.Get(a.spec.Profile)
	if err != nil {
		return agentrpc.ContainerSpec{}, err
	}
	s := agentrpc.ContainerSpec{
		Name: a.rec.Container, Attempt: a.id, ImageID: a.img, Command: a.spec.Command, KeepEntrypoint: prof.KeepEntrypoint,
		Env: map[string]string{}, Workdir: a.spec.Workdir, Mounts: a.spec.Mounts,
		HostEnv: prof.HostEnv && a.spec.Image == "", MountHome: prof.MountHome, Caches: prof.Caches, Network: prof.Network,
		CPUs: a.rec.Allocation.CPUs, Memory: a.rec.Allocation.Memory, ShmSize: a.rec.Allocation.Memory / 2,
		Stdin: a.spec.Stdin, Tty: a.spec.Tty, Port: a.spec.Port,
		Output: expandOutput(a.spec.Output, a.id, a.element), LogLimit: a.d.policy().LogLimit,
	}
	maps.Copy(s.Env, prof.Env)
	maps.Copy(s.Env, a.spec.CallerEnv)
	maps.Copy(s.Env, a.spec.Env)
	if a.token != "" {
		s.Env["GPUTOP_TOKEN"], s.Env["JUPYTER_TOKEN"] = a.token, a.token
	}
	lease := cdi.Edits{Env: a.leaseEnv()}
	names, sim := a.deviceNames()
	byName := slices.Contains(l.info().CDISpecDirs, a.d.o.LeaseDir) && a.d.o.LeaseDir != ""
	switch {
	case byName:
		if len(sim) > 1 {
			// Each device's spec names itself; of a variable that several set, the last one wins.
			lease.Env = append(lease.Env, cdi.SimulatedVariable(sim...))
		}
		name, err := cdi.WriteLease(a.d.o.LeaseDir, cdi.Lease{Name: a.id.LeaseName(a.d.store.Instance()), OwnerUID: a.user.UID, Edits: lease})
		if err != nil {
			return s, fmt.Errorf("write the lease: %w", err)
		}
		s.CDIDevices = append(names, name)
	case a.d.o.Mode == Shared && a.d.o.LeaseDir != "":
		return s, fmt.Errorf("leases are written to %s, and Podman %s of %s reads CDI specs in %s only: start gputopd with --cdi-dir set to a directory it reads",
			a.d.o.LeaseDir, l.info().PodmanVersion, a.user.Name, strings.Join(l.info().CDISpecDirs, ", "))
	default:
		// NVIDIA's own spec is the admin's and any Podman sees it; only what we would have written goes in directly.
		if len(sim) > 0 {
			lease = merge(lease, cdi.SimulatedEdits(sim...))
			names = nil
		}
		s.CDIDevices, s.Edits = names, directEdits(lease)
	}
	if problems := a.d.finderFor(l).Check(a.user.UID, s.CDIDevices...); len(problems) > 0 {
		return s, &problems[0]
	}
	return s, a.noteDevices(s)
}

func (a *attempt) noteDevices(s agentrpc.ContainerSpec) error {
	return a.save(a.d.runCtx, func(c *change) error {
		c.attempt.CDIDevices, c.attempt.DirectEdits = s.CDIDevices, s.Edits != nil
		return nil
	})
}

func (d *Daemon) finder() cdi.Finder { return cdi.Finder{Dirs: d.o.SpecDirs, Groups: d.o.Groups} }

// finderFor finds specs as the Podman of an agent does: 4.3 silently skips those of a newer version.
func (d *Daemon) finderFor(l *link) cdi.Finder {
	f := d.finder()
	if strings.HasPrefix(l.info().PodmanVersion, "4.3.") {
		f.MaxVersion = "0.5.0"
	}
	return f
}

// leaseEnv is what a job finds in its environment about what it was given.
func (a *attempt) leaseEnv() []string {
	env := []string{
		// An image's own value would have NVIDIA's older hook, where that is installed, add every card.
		"NVIDIA_VISIBLE_DEVICES=void",
		"GPUTOP_JOB_ID=" + a.id.Job.String(),
		fmt.Sprintf("GPUTOP_ATTEMPT=%d", a.id.Number),
	}
	env = append(env, elementEnv(a.element)...)
	if len(a.rec.Allocation.Grants) == 0 {
		return env
	}
	g := a.rec.Allocation.Grants[0]
	return append(env,
		fmt.Sprintf("GPUTOP_GPU_MEMORY_BYTES=%d", int64(g.Memory)),
		fmt.Sprintf("GPUTOP_GPU_MEMORY_FRACTION=%.4f", float64(g.Fraction)),
	)
}

// deviceNames are the CDI names of the granted cards, and, where they are simulated, the devices themselves.
func (a *attempt) deviceNames() (names []string, sim []cdi.SimulatedDevice) {
	for _, g := range a.rec.Allocation.Grants {
		i := slices.IndexFunc(a.d.o.Devices, func(d cdi.SimulatedDevice) bool { return d.Name == string(g.Device) })
		if i < 0 {
			names = append(names, cdi.GPUKind+"="+string(g.Device))
			continue
		}
		names = append(names, cdi.SimulatedKind+"="+string(g.Device))
		sim = append(sim, a.d.o.Devices[i])
	}
	return names, sim
}

func merge(a, b cdi.Edits) cdi.Edits {
	return cdi.Edits{Env: append(a.Env, b.Env...), Mounts: append(a.Mounts, b.Mounts...), DeviceNodes: append(a.DeviceNodes, b.DeviceNodes...)}
}

func directEdits(e cdi.Edits) *agentrpc.Edits {
	out := &agentrpc.Edits{Env: e.Env, Devices: e.DeviceNodes}
	for _, m := range e.Mounts {
		out.Mounts = append(out.Mounts, engine.Mount{Source: m.HostPath, Target: m.ContainerPath, ReadOnly: m.ReadOnly})
	}
	return out
}
