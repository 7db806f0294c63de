package engine

import (
	"slices"
	"time"
)

// CardDetail is what a card tells besides memory, load and heat. As in GPU, nil is a value that it does not give.
type CardDetail struct {
	ClockSM        *int `json:"clock_sm_mhz,omitempty"`
	ClockSMMax     *int `json:"clock_sm_max_mhz,omitempty"`
	ClockMemory    *int `json:"clock_memory_mhz,omitempty"`
	ClockMemoryMax *int `json:"clock_memory_max_mhz,omitempty"`
	// Throttle is why the clocks are below what they could be; empty when nothing holds them back, nil when unknown. An
	// idle card's low clocks are no throttling.
	Throttle []ThrottleReason `json:"throttle_reasons,omitzero"`
	// Fan is the intended speed in percent of the fan's own maximum. Cards cooled by the case's fans have none.
	Fan *int `json:"fan_percent,omitempty"`

	// PCIe is nil on cards that share the host's memory: what they say of a link means nothing.
	PCIe   *PCIe   `json:"pcie,omitempty"`
	NVLink *NVLink `json:"nvlink,omitempty"`
	ECC    *ECC    `json:"ecc,omitempty"`
	// XIDs are the last errors the driver reported of this card, oldest first, since the sampler began to listen. XIDsKnown
	// is false where the driver reports none to anybody.
	XIDs      []XID `json:"xids,omitempty"`
	XIDsKnown bool  `json:"xids_known"`

	// Persistence says that the driver keeps the card ready while nobody uses it.
	Persistence *bool       `json:"persistence,omitempty"`
	ComputeMode ComputeMode `json:"compute_mode,omitempty"`
}

// ThrottleReason says what holds a card's clocks back.
type ThrottleReason string

// The reasons, by the meaning of NVML's bits.
const (
	ThrottlePowerCap     ThrottleReason = "power-cap"       // at its power limit
	ThrottleThermal      ThrottleReason = "thermal"         // too hot
	ThrottleHardware     ThrottleReason = "hardware"        // temperature, power draw or an outside signal, by the hardware
	ThrottleHotHardware  ThrottleReason = "hardware-heat"   // too hot, by the hardware
	ThrottlePowerBrake   ThrottleReason = "power-brake"     // the power supply asks for it
	ThrottleClockSetting ThrottleReason = "clock-setting"   // an admin has set clocks
	ThrottleSync         ThrottleReason = "sync-boost"      // kept in step with other cards
	ThrottleDisplay      ThrottleReason = "display-setting" // a display's clocks
	ThrottleBoardLimit   ThrottleReason = "board-limit"     // the board's regulators
	ThrottleReliability  ThrottleReason = "reliability"     // the voltage it can be run at for years
)

// PCIe is the card's link to the host. Receive and Transmit are seen from the card, in bytes a second.
type PCIe struct {
	Generation    *int     `json:"generation,omitempty"`
	GenerationMax *int     `json:"generation_max,omitempty"`
	Width         *int     `json:"width,omitempty"`
	WidthMax      *int     `json:"width_max,omitempty"`
	Receive       *float64 `json:"receive_bytes_per_second,omitempty"`
	Transmit      *float64 `json:"transmit_bytes_per_second,omitempty"`
}

// NVLink is the card's links to others. Receive and Transmit are of all links together, in bytes a second.
type NVLink struct {
	Active   int      `json:"active"`
	Total    int      `json:"total"`
	Receive  *float64 `json:"receive_bytes_per_second,omitempty"`
	Transmit *float64 `json:"transmit_bytes_per_second,omitempty"`
}

// ECC is the card's error correction. Counts are of memory errors since the driver was loaded.
type ECC struct {
	Enabled     bool    `json:"enabled"`
	Corrected   *uint64 `json:"corrected,omitempty"`
	Uncorrected *uint64 `json:"uncorrected,omitempty"`
}

// ComputeMode says how many processes may compute on a card; empty when unknown.
type ComputeMode string

// The modes.
const (
	ComputeDefault    ComputeMode = "default"
	ComputeExclusive  ComputeMode = "exclusive"  // one process at a time
	ComputeProhibited ComputeMode = "prohibited" // none
)

// XID is an error of a card as the driver numbers it.
type XID struct {
	Code int       `json:"code"`
	Time time.Time `json:"time"`
	// Count is how many of this code came one after the other; Time is the last one's.
	Count int `json:"count"`
}

// applicationXIDs are those which a program can bring about by itself: a card that reports one is well. 13 and 31 are
// faults of a kernel, 43 and 45 a stopped channel and what follows from it, 68 the video decoder, 109 a context switch
// that timed out.
var applicationXIDs = []int{13, 31, 43, 45, 68, 109}

// Application says that a program can bring the error about, and that it says nothing about the card.
func (x XID) Application() bool { return slices.Contains(applicationXIDs, x.Code) }
