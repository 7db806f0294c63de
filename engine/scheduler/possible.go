package scheduler

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gputop/engine"
)

// Possible refuses a request that this box can never serve, in a sentence that follows "the job". Cards that are only
// away for a while count as there. Before the first sample nothing is said about GPUs.
func Possible(s Snapshot, r engine.Request) error {
	if err := shape(r); err != nil {
		return err
	}
	if s.HostCPUs > 0 && r.CPUs > s.HostCPUs {
		return fmt.Errorf("asks for %g CPU cores; this box has %g for jobs", float64(r.CPUs), float64(s.HostCPUs))
	}
	if s.HostMemory > 0 && r.Memory > s.HostMemory {
		return fmt.Errorf("asks for %s of host memory; this box has %s for jobs", r.Memory, s.HostMemory)
	}
	if !r.WantsGPU() || !s.DevicesKnown {
		return nil
	}
	if len(s.Devices) == 0 {
		return fmt.Errorf("asks for a GPU; this box has none that can be seen: gputop top --once says why; or ask for --gpus 0")
	}
	devices, err := ofModel(s.Devices, r.GPUModel)
	if err != nil {
		return err
	}
	return possibleDevices(devices, r)
}

// ofModel are the devices of a model, or all.
func ofModel(devices []Device, model string) ([]Device, error) {
	if model == "" {
		return devices, nil
	}
	var out []Device
	var models []string
	for _, d := range devices {
		if engine.IsModel(engine.ModelNames(d.Model), engine.ModelWords(model)) {
			out = append(out, d)
		}
		if !slices.Contains(models, d.Model) {
			models = append(models, d.Model)
		}
	}
	if len(out) == 0 {
		slices.Sort(models)
		return nil, fmt.Errorf("asks for a GPU of model %q; this box has: %s", model, strings.Join(models, ", "))
	}
	return out, nil
}

// shape checks a request by itself.
func shape(r engine.Request) error {
	kinds := 0
	for _, set := range []bool{r.GPUs != 0, r.GPUMemory != 0, r.GPUFraction != 0} {
		if set {
			kinds++
		}
	}
	cpus := float64(r.CPUs)
	switch {
	case kinds > 1:
		return fmt.Errorf("asks for GPUs in more than one way: give one of --gpus, --gpu-mem and --gpu-fraction")
	case r.GPUs < 0:
		return fmt.Errorf("asks for %d GPUs: give 0 or more", r.GPUs)
	case r.GPUMemory < 0:
		return fmt.Errorf("asks for a negative amount of GPU memory")
	case r.Memory < 0:
		return fmt.Errorf("asks for a negative amount of host memory")
	case math.IsNaN(cpus), math.IsInf(cpus, 0), cpus < 0:
		return fmt.Errorf("asks for %g CPU cores: give a number above 0, for example 4", cpus)
	case r.GPUFraction != 0:
		return r.GPUFraction.Validate()
	}
	return nil
}

func gpusText(r engine.Request) string {
	s := fmt.Sprintf("%d GPUs", r.GPUs)
	if r.GPUModel != "" {
		s += " of model " + r.GPUModel
	}
	return s
}

func possibleDevices(devices []Device, r engine.Request) error {
	var suitable, mig int
	var largest, most engine.Bytes
	for i := range devices {
		d := &devices[i]
		if d.Unavailable == engine.BlockedBySize {
			mig++
			continue
		}
		suitable++
		if d.WholeOnly {
			continue
		}
		largest = max(largest, d.Usable)
		if r.GPUFraction > 0 {
			most = max(most, r.GPUFraction.Of(d.Usable))
		}
	}
	switch {
	case r.GPUs > len(devices):
		return fmt.Errorf("asks for %s; this box has %d", gpusText(r), len(devices))
	case r.GPUs > suitable || suitable == 0:
		return fmt.Errorf("asks for a GPU or a share of one; this box has %d, of which %d cannot be given so (MIG mode, or compute mode prohibited)",
			len(devices), mig)
	case r.GPUs > 0:
		return nil
	case largest == 0:
		return fmt.Errorf("asks for a share of a GPU; no GPU here can be shared (its memory is unknown, or its compute mode exclusive): ask for a whole one with --gpus 1")
	case r.GPUMemory > largest:
		return fmt.Errorf("needs %s on one GPU, the largest has %s", r.GPUMemory, largest)
	case r.GPUFraction > 0 && most <= 0:
		return fmt.Errorf("fraction %g of a GPU is less than 1MiB here", float64(r.GPUFraction))
	}
	return nil
}
