package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// changed is a library of which some answers are others.
type changed struct {
	nvml.Interface
	order  []int // cards in another order; nil for the same
	device func(nvml.Device) nvml.Device
	lacks  map[string]bool // symbols
}

func (l *changed) DeviceGetHandleByIndex(i int) (nvml.Device, nvml.Return) {
	if l.order != nil {
		i = l.order[i]
	}
	d, r := l.Interface.DeviceGetHandleByIndex(i)
	if r == nvml.SUCCESS && l.device != nil {
		d = l.device(d)
	}
	return d, r
}

func (l *changed) Extensions() nvml.ExtendedInterface { return l }

func (l *changed) LookupSymbol(name string) error {
	if l.lacks[name] {
		return nvml.ERROR_FUNCTION_NOT_FOUND
	}
	return l.Interface.Extensions().LookupSymbol(name)
}

// withoutProcesses is a card that names nobody.
type withoutProcesses struct{ nvml.Device }

func (withoutProcesses) GetComputeRunningProcesses() ([]nvml.ProcessInfo, nvml.Return) {
	return nil, nvml.SUCCESS
}
