package simgpu

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// faultsFile is the file in the devices' directory that makes them fail.
const faultsFile = "faults.json"

// Faults are failures to play, for tests and demonstrations. They take effect at the next call and end when the file
// is taken away.
type Faults struct {
	// InitResult is what Init answers, an nvml.Return; 0 for success.
	InitResult nvml.Return `json:"init_result,omitempty"`
	// Cards by number.
	Cards map[int]CardFaults `json:"cards,omitempty"`
}

// CardFaults are the failures of one card.
type CardFaults struct {
	// Lost: the card fell off the bus; every call about it says so.
	Lost bool `json:"lost,omitempty"`
	// Hang: calls about the card do not return.
	Hang bool `json:"hang,omitempty"`
	// Fields maps a field to what asking for it answers. Fields: uuid, name, memory, memory_v2, temperature, power,
	// power_limit, utilization, processes, process_utilization, gpm, mig, minor, pci, pcie_link, pcie_throughput, nvlink,
	// clocks, memory_clock, throttle, fan, ecc, persistence, compute_mode, events.
	Fields map[string]nvml.Return `json:"fields,omitempty"`
	// MIGHoles are places in the list of MIG devices that answer NOT_FOUND though later ones are there.
	MIGHoles []int `json:"mig_holes,omitempty"`
	// ProcessMemoryUnknown: processes are listed without what they hold.
	ProcessMemoryUnknown bool `json:"process_memory_unknown,omitempty"`
	// UsedIncludesReserved: memory is reported as some drivers do, with what is reserved counted as used.
	UsedIncludesReserved bool `json:"used_includes_reserved,omitempty"`
	// Unified: the card has no memory of its own and reports a total of 0.
	Unified bool `json:"unified,omitempty"`
	// XIDs are errors to report, each once: what is added to the list is new.
	XIDs []int `json:"xids,omitempty"`
	// Removed: the card is taken out. A session that knows it finds it lost, a new one does not count it.
	Removed bool `json:"removed,omitempty"`
	// MIG is another layout than the card's own, in force from now on; a session shows what it was opened with.
	MIG []string `json:"mig,omitempty"`
}

// SetFaults puts faults into force in dir; the zero value takes them all away.
func SetFaults(dir string, f Faults) error {
	path := filepath.Join(dir, faultsFile)
	if f.InitResult == nvml.SUCCESS && len(f.Cards) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// readFaults reads the faults in force. A file that makes no sense is no fault.
func readFaults(dir string) Faults {
	var f Faults
	b, err := os.ReadFile(filepath.Join(dir, faultsFile))
	if err != nil || json.Unmarshal(b, &f) != nil {
		return Faults{}
	}
	return f
}

// now is what is wrong with the card: by the file, and by the scenario's timetable.
func (c *card) now() CardFaults {
	f := readFaults(c.lib.dir).Cards[c.index]
	f.Fields = maps.Clone(f.Fields)
	refuse := func(fields []string) {
		for _, name := range fields {
			if f.Fields == nil {
				f.Fields = map[string]nvml.Return{}
			}
			if _, ok := f.Fields[name]; !ok {
				f.Fields[name] = nvml.ERROR_NOT_SUPPORTED
			}
		}
	}
	refuse(c.model.lacks)
	refuse(c.config.Unsupported)
	events, xids := c.lib.events(c.index)
	f.XIDs = append(slices.Clone(f.XIDs), xids...)
	for _, e := range events {
		f.Lost, f.Hang, f.Removed = f.Lost || e.Lost, f.Hang || e.Hang, f.Removed || e.Removed
		refuse(e.Unsupported)
		if e.MIG != nil {
			f.MIG = e.MIG
		}
	}
	return f
}

// faults waits while the card hangs, and says what else is wrong with it.
func (c *card) faults() CardFaults {
	for {
		f := c.now()
		if !f.Hang {
			return f
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// enter begins a call about a field.
func (c *card) enter(field string) (CardFaults, nvml.Return) {
	f := c.faults()
	if f.Lost || f.Removed {
		return f, nvml.ERROR_GPU_IS_LOST
	}
	return f, f.Fields[field]
}

func (f CardFaults) hole(i int) bool { return slices.Contains(f.MIGHoles, i) }
