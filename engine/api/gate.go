package api

import (
	"time"

	"gputop/engine"
)

// GateDiagnosis is what the daemon knows of the device gate and of who goes round the queue.
type GateDiagnosis struct {
	// Mode is observe, warn or enforce.
	Mode string `json:"mode"`
	// Problem is why nothing is closed though the mode is enforce.
	Problem string     `json:"problem,omitempty"`
	Nodes   []GateNode `json:"nodes,omitempty"`
	// Since is from when use outside the queue has been counted.
	Since   time.Time    `json:"since,omitzero"`
	Outside []OutsideUse `json:"outside,omitempty"`
}

// GateNode is the device node of one card as it is now, and as the gate wants it in mode enforce.
type GateNode struct {
	Path   string          `json:"path"`
	Device engine.DeviceID `json:"device"`
	Index  int             `json:"index"` // -1 for a SIMULATED MIG device and a card that is not seen
	// Users hold a grant on it.
	Users []string `json:"users,omitempty"`
	// Closed says that it is open to them, and to nobody else; the rest says what differs.
	Closed bool `json:"closed"`
	// Open is what it lets through where it is not closed at all.
	Open string `json:"open,omitempty"`
	// Missing hold a grant and are not let through; Surplus are let through and hold none.
	Missing []string `json:"missing,omitempty"`
	Surplus []string `json:"surplus,omitempty"`
	// Problem is why it could not be looked at.
	Problem string `json:"problem,omitempty"`
}

// OutsideUse is how one user has used one card outside the queue since the daemon began.
type OutsideUse struct {
	User   string          `json:"user,omitempty"`
	UID    uint32          `json:"uid"`
	Device engine.DeviceID `json:"device"`
	Index  int             `json:"index"`
	// Processes is how many were seen in all, Now how many there are.
	Processes int `json:"processes"`
	Now       int `json:"now"`
	// Memory is what they hold now, Peak the most they have held, in bytes.
	Memory engine.Bytes `json:"memory_bytes"`
	Peak   engine.Bytes `json:"peak_memory_bytes"`
	// For is how long there was at least one.
	For  time.Duration `json:"for_ns"`
	Last time.Time     `json:"last"`
}
