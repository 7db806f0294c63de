package api

import (
	"context"
	"net/http"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// Diagnosis is what the daemon knows of whether the caller's jobs can run. It holds facts; gputop doctor judges them.
type Diagnosis struct {
	Version string `json:"version"`
	Mode    string `json:"mode"`
	PID     int    `json:"pid"`
	// Simulated says that the cards are, and Sample why no card can be used; empty when they can.
	Simulated bool   `json:"simulated,omitempty"`
	Sample    string `json:"sample,omitempty"`
	// StateDir is where the queue is kept, StateFree the room left there in bytes; nil when unknown.
	StateDir      string        `json:"state_dir,omitempty"`
	StateWritable bool          `json:"state_writable,omitempty"`
	StateFree     *engine.Bytes `json:"state_free_bytes,omitempty"`
	// ConfigProblem is why the configuration file is not what is in force; admins alone read it.
	ConfigProblem string `json:"config_problem,omitempty"`
	// LeaseDir is where leases are written; empty where edits are given directly.
	LeaseDir string          `json:"lease_dir,omitempty"`
	Cards    []CardDiagnosis `json:"cards,omitempty"`
	Agent    AgentDiagnosis  `json:"agent"`
	// Gate is nil in personal mode.
	Gate *GateDiagnosis `json:"gate,omitempty"`
}

// CardDiagnosis is one card, and why no container of the caller can be given it; no problems are good news.
type CardDiagnosis struct {
	Device   engine.DeviceID `json:"device"`
	Index    int             `json:"index"`
	Health   engine.Health   `json:"health"`
	Problems []SpecProblem   `json:"problems,omitempty"`
}

// SpecProblem is what is wrong with a CDI spec, and what mends it.
type SpecProblem struct {
	Code    string `json:"code"`
	File    string `json:"file,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// AgentDiagnosis is the caller's own agent. Root has none.
type AgentDiagnosis struct {
	Connected bool `json:"connected"`
	// Error says why it is not connected.
	Error string `json:"error,omitempty"`
	// OldGroups says that its process has other groups than the caller now has.
	OldGroups bool                  `json:"old_groups,omitempty"`
	Runtime   *agentrpc.RuntimeInfo `json:"runtime,omitempty"`
}

// Diagnose is what the daemon knows of whether the caller's jobs can run. It starts the caller's agent.
func (c *Client) Diagnose(ctx context.Context) (Diagnosis, error) {
	return call[Diagnosis](ctx, c, http.MethodGet, "/v1/doctor", nil)
}
