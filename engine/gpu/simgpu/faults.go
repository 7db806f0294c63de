package simgpu

import (
	"encoding/json"
	"errors"
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
	// utilization, processes, process_utilization, gpm, mig, minor, pci.
	Fields map[string]nvml.Return `json:"fields,omitempty"`
	// MIGHoles are places in the list of MIG devices that answer NOT_FOUND though later ones are there.
	MIGHoles []int `json:"mig_holes,omitempty"`
	// ProcessMemoryUnknown: processes are listed without what they hold.
	ProcessMemoryUnknown bool `json:"process_memory_unknown,omitempty"`
	// UsedIncludesReserved: memory is reported as some drivers do, with what is reserved counted as used.
	UsedIncludesReserved bool `json:"used_includes_reserved,omitempty"`
	// Unified: the card has no memory of its own and reports a total of 0.
	Unified bool `json:"unified,omitempty"`
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

// faults waits while the card hangs, and says what else is wrong with it.
func (c *card) faults() CardFaults {
	for {
		f := readFaults(c.lib.dir).Cards[c.index]
		if !f.Hang {
			return f
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// enter begins a call about a field.
func (c *card) enter(field string) (CardFaults, nvml.Return) {
	f := c.faults()
	if f.Lost {
		return f, nvml.ERROR_GPU_IS_LOST
	}
	return f, f.Fields[field]
}

func (f CardFaults) hole(i int) bool { return slices.Contains(f.MIGHoles, i) }
