package engine

import "time"

// ReasonCode says why a pending job is not running. It is data; the sentence is made where it is shown.
type ReasonCode string

// The reasons.
const (
	WaitingForDevice     ReasonCode = "WaitingForDevice"     // no device that fits is free
	WaitingForHost       ReasonCode = "WaitingForHost"       // devices fit, but host CPU or memory does not
	BlockedByPriority    ReasonCode = "BlockedByPriority"    // it would fit, but a job ahead of it is waiting for the device
	BlockedBySize        ReasonCode = "BlockedBySize"        // more than the box can ever give; only after devices left
	ReasonPreparing      ReasonCode = "Preparing"            // image or mounts are being looked at
	ReasonHeld           ReasonCode = "Held"                 // by its owner or an admin
	ReasonNotBefore      ReasonCode = "NotBefore"            // waits for its time: that of its owner, or after a retry
	DependencyPending    ReasonCode = "DependencyPending"    // a job that it runs after has not ended
	DeviceNotAnswering   ReasonCode = "DeviceNotAnswering"   // cards that would do are lost or do not answer
	DeviceUnresolvable   ReasonCode = "DeviceUnresolvable"   // no container can be given the card: its CDI spec is missing or stale
	DevicesUnknown       ReasonCode = "DevicesUnknown"       // no sample of the GPUs yet, or none at all
	OverQuota            ReasonCode = "OverQuota"            // its owner, or a group of theirs, holds as much as they may
	BlockedByReservation ReasonCode = "BlockedByReservation" // cards that would do are promised to others for a time
	DeviceDraining       ReasonCode = "DeviceDraining"       // cards that would do are given to no new job
	WaitingForPreempted  ReasonCode = "WaitingForPreempted"  // jobs are being stopped for it; it starts when they are gone
	AgentUnavailable     ReasonCode = "AgentUnavailable"     // the owner's agent or Podman does not answer
)

// Reason is why a job waits.
type Reason struct {
	Code ReasonCode `json:"code"`
	// Needed and Free are amounts of Unit.
	Needed int64  `json:"needed,omitempty"`
	Free   int64  `json:"free,omitempty"`
	Unit   string `json:"unit,omitempty"`
	// Job is the job that is in the way, if one is.
	Job    JobID     `json:"job,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Detail string    `json:"detail,omitempty"`
}

// The words in Reason.Unit.
const (
	UnitDevices = "devices"
	UnitBytes   = "bytes"
	UnitCores   = "cores"
	UnitJobs    = "jobs"
	// UnitMilliGPUs is thousandths of a GPU, for quotas, in which shares count.
	UnitMilliGPUs = "milli-gpus"
)

// Amount is so much of a unit in words: "2 GPUs", "12GiB", "4 CPU cores", "1 job".
func Amount(n int64, unit string) string {
	switch unit {
	case UnitBytes:
		return Bytes(n).String()
	case UnitMilliGPUs:
		return Count(float64(n)/1000, "GPU")
	case UnitCores:
		return Count(n, "CPU core")
	case UnitJobs:
		return Count(n, "job")
	}
	return Count(n, "GPU")
}
