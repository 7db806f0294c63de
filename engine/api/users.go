package api

import (
	"context"
	"net/http"
	"time"

	"gputop/engine"
)

// Users says what each person holds of the machine, and may.
type Users struct {
	// Users are the caller, everybody with a job that waits or runs, and everybody with a rule of their own; by name.
	Users []UserTerms `json:"users"`
	// Groups are those whose members share a quota.
	Groups []GroupTerms `json:"groups"`
}

// UserTerms is one person.
type UserTerms struct {
	Name string `json:"name"`
	// Me marks the caller.
	Me   bool `json:"me,omitempty"`
	Held Held `json:"held"`
	// Usage is what the person has used of late, in GPU-seconds that decay; Weight is by how much more than others they may.
	Usage  float64 `json:"usage_gpu_seconds"`
	Weight float64 `json:"weight"`
	// Budget is what the person may use over some days, and InBudget what they have, in GPU-seconds; nil without one.
	Budget   *engine.Budget `json:"gpu_hours_budget,omitempty"`
	InBudget float64        `json:"budget_used_gpu_seconds,omitempty"`
	// Pending counts jobs that wait.
	Pending int          `json:"pending"`
	Quota   engine.Quota `json:"quota"`
	// MaxPending is how many may wait; nil where the person's groups, and so the rules, are not known now.
	MaxPending *int           `json:"max_pending,omitempty"`
	Classes    []engine.Class `json:"classes"`
	// Class and TimeLimit are what a job gets that names none; MaxTimeLimit is 0 where there is no limit.
	Class        engine.Class  `json:"default_class"`
	TimeLimit    time.Duration `json:"default_time_limit_ns"`
	MaxTimeLimit time.Duration `json:"max_time_limit_ns,omitempty"`
	// Images are patterns; nil allows any.
	Images []string `json:"images,omitempty"`
	// Groups name those of GroupTerms whose quota the person's jobs count against.
	Groups []string `json:"groups,omitempty"`
	// From says by key of the configuration which rule a value comes from, for example "group vision".
	From map[string]string `json:"from,omitempty"`
}

// GroupTerms is what the members of a Unix group hold together, and may.
type GroupTerms struct {
	Name  string       `json:"name"`
	Held  Held         `json:"held"`
	Quota engine.Quota `json:"quota"`
	// Unknown says that this machine does not know the group: its rule applies to nobody.
	Unknown bool `json:"unknown,omitempty"`
}

// Held is what running jobs hold.
type Held struct {
	// GPUs is a number of whole devices; a share counts as its fraction.
	GPUs   float64      `json:"gpus"`
	Jobs   int          `json:"jobs"`
	CPUs   engine.CPUs  `json:"cpus"`
	Memory engine.Bytes `json:"memory_bytes"`
}

// Users says what each person holds of the machine, and may.
func (c *Client) Users(ctx context.Context) (Users, error) {
	return call[Users](ctx, c, http.MethodGet, "/v1/users", nil)
}
