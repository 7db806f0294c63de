package engine

import "time"

// GPU is one card as a sample saw it. A nil pointer is a value the card, the driver or this mode does not give:
// shown as a dash, never as 0.
type GPU struct {
	UUID  DeviceID `json:"uuid"`
	Index int      `json:"index"` // PCI order, for display only
	// Minor is the number in the card's device node /dev/nvidiaN.
	Minor    int    `json:"minor"`
	Model    string `json:"model"`
	PCIBusID string `json:"pci_bus_id,omitempty"`

	MemoryTotal    *Bytes `json:"memory_total_bytes,omitempty"`
	MemoryUsed     *Bytes `json:"memory_used_bytes,omitempty"`     // without what the driver reserves
	MemoryReserved *Bytes `json:"memory_reserved_bytes,omitempty"` // by the driver
	// MemoryUnified says that the card shares the host's memory.
	MemoryUnified bool `json:"memory_unified,omitempty"`

	// SM is the share of SMs at work, 0 to 1. SMSource says what was measured.
	SM       *float64 `json:"sm,omitempty"`
	SMSource Source   `json:"sm_source,omitempty"`
	// MemoryBandwidth is the share of the memory's bandwidth in use, 0 to 1; by SourceUtilization, the share of time in
	// which any memory was read or written.
	MemoryBandwidth       *float64 `json:"memory_bandwidth,omitempty"`
	MemoryBandwidthSource Source   `json:"memory_bandwidth_source,omitempty"`
	Temperature           *int     `json:"temperature_celsius,omitempty"`
	Power                 *float64 `json:"power_watts,omitempty"`
	PowerLimit            *float64 `json:"power_limit_watts,omitempty"`

	CardDetail
	// Peers are the other cards, as far as it is known how they are connected.
	Peers []Peer `json:"peers,omitempty"`

	MIGMode   bool         `json:"mig_mode,omitempty"`
	MIG       []MIGDevice  `json:"mig,omitempty"`
	Processes []GPUProcess `json:"processes,omitempty"`
	// ProcessesKnown is false where the driver would not say which processes use the card.
	ProcessesKnown bool `json:"processes_known"`

	// Health is HealthOK, or why the card is not to be used.
	Health       Health `json:"health"`
	HealthDetail string `json:"health_detail,omitempty"`
	// FaultXID is the error of the hardware that is all that makes it unhealthy; 0 for none.
	FaultXID int `json:"fault_xid,omitempty"`
}

// Source says how a share of something was measured.
type Source string

// The sources.
const (
	// SourceGPM is the card's own counters: how much of it was at work.
	SourceGPM Source = "gpm"
	// SourceUtilization is the share of time in which anything at all was at work.
	SourceUtilization Source = "utilization"
)

// Usable is the memory a job can be promised: total less what the driver reserves, in bytes; 0 when unknown.
func (g *GPU) Usable() Bytes {
	if g.MemoryTotal == nil {
		return 0
	}
	if g.MemoryReserved == nil {
		return *g.MemoryTotal
	}
	return *g.MemoryTotal - *g.MemoryReserved
}

// Health says whether a card can be used.
type Health string

// The states of health.
const (
	HealthOK           Health = "ok"
	HealthLost         Health = "lost"          // fell off the bus
	HealthNotAnswering Health = "not-answering" // NVML hangs
	HealthFault        Health = "fault"         // a hardware error was reported
)

// MIGDevice is one MIG device of a card.
type MIGDevice struct {
	UUID            DeviceID `json:"uuid"`
	Profile         string   `json:"profile"` // for example "3g.20gb"
	GPUInstance     int      `json:"gpu_instance"`
	ComputeInstance int      `json:"compute_instance"`
	PlacementStart  int      `json:"placement_start"` // first memory slice
	PlacementSize   int      `json:"placement_size"`  // memory slices
	MemoryTotal     *Bytes   `json:"memory_total_bytes,omitempty"`
	MemoryUsed      *Bytes   `json:"memory_used_bytes,omitempty"`
	// MemoryReserved is the driver's, and not in MemoryUsed.
	MemoryReserved *Bytes `json:"memory_reserved_bytes,omitempty"`
	// SM and MemoryBandwidth are shares of the GPU instance, measured by SourceGPM.
	SM              *float64 `json:"sm,omitempty"`
	MemoryBandwidth *float64 `json:"memory_bandwidth,omitempty"`
	// InstanceShared says that other compute instances share the GPU instance: memory, SM and MemoryBandwidth are those
	// of all of them together, and the screen says "instance".
	InstanceShared bool         `json:"instance_shared,omitempty"`
	Processes      []GPUProcess `json:"processes,omitempty"`
}

// GPUProcess is one process with memory on a device. PID is the host's.
type GPUProcess struct {
	PID    int    `json:"pid"`
	Memory *Bytes `json:"memory_bytes,omitempty"`
	// SM is the share of the card's SMs. Drivers tell it now and then only: SMAge is how old it is, in seconds; 0 is new.
	SM    *float64 `json:"sm,omitempty"`
	SMAge float64  `json:"sm_age_seconds,omitempty"`
	Type  string   `json:"type,omitempty"` // "C" compute, "G" graphics, "CG" both
	// Start is the process's start time in clock ticks since boot (/proc/PID/stat), so that a reused PID is seen; UID its
	// real uid; PIDNamespace the inode of its PID namespace, 0 where it cannot be read.
	Start        uint64 `json:"start,omitempty"`
	UID          uint32 `json:"uid"`
	PIDNamespace uint64 `json:"pid_namespace,omitempty"`
	Command      string `json:"command,omitempty"`
}

// ProcessKey names a process on a device for good: a PID alone is given to somebody else in time.
type ProcessKey struct {
	PID    int
	Start  uint64 // GPUProcess.Start
	Device DeviceID
}

// Key names the process on a card or MIG device.
func (p *GPUProcess) Key(device DeviceID) ProcessKey {
	return ProcessKey{PID: p.PID, Start: p.Start, Device: device}
}

// Sample is one look at all cards.
type Sample struct {
	Seq       uint64    `json:"seq"`
	Time      time.Time `json:"time"`
	Simulated bool      `json:"simulated,omitempty"`
	Driver    string    `json:"driver,omitempty"`
	CUDA      string    `json:"cuda,omitempty"`
	GPUs      []GPU     `json:"gpus"`
	// Error is one sentence for a person when there is nothing to show, for example that no driver is installed.
	Error string `json:"error,omitempty"`
}
