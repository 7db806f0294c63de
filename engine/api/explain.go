package api

import (
	"context"
	"net/http"
	"time"

	"gputop/engine"
)

// Explanation is why a job waits, and whom it could have stopped. A job that does not wait has Job alone.
type Explanation struct {
	Job Job `json:"job"`
	// Of is how many jobs wait, this one among them.
	Of int `json:"of,omitempty"`
	// Preempts is what it does about the running jobs, Due when it will have waited so long that others are stopped for it.
	Preempts engine.Preempting `json:"preempts,omitempty"`
	Due      time.Time         `json:"due,omitzero"`
	// Stopped are the jobs that are being stopped for it.
	Stopped []engine.JobID `json:"stopped,omitempty"`
	// Running are running jobs on what it could use, where its class may have others stopped.
	Running []Candidate `json:"running,omitempty"`
	// Usage is what the job's owner has used of late, in GPU-seconds that decay with HalfLife; Weight is by how much more
	// than others they may.
	Usage    float64       `json:"usage_gpu_seconds"`
	HalfLife time.Duration `json:"half_life_ns"`
	Weight   float64       `json:"weight"`
}

// Candidate is a running job as a waiting one sees it.
type Candidate struct {
	Job    engine.JobID `json:"job"`
	Owner  string       `json:"owner"`
	Class  engine.Class `json:"class"`
	Grants []Grant      `json:"grants,omitempty"`
	// Spared is why it is not stopped for the waiting job; empty when it could be.
	Spared engine.Spared `json:"spared,omitempty"`
	// Until is when it will not be spared for that reason any more; zero when unknown.
	Until time.Time `json:"until,omitzero"`
	// Loss is the work that a stop would throw away, and Allowed how much may be, in GPU-seconds; a negative Allowed is no
	// bound.
	Loss    float64 `json:"loss_gpu_seconds"`
	Allowed float64 `json:"allowed_gpu_seconds"`
}

// Explain says why a job waits.
func (c *Client) Explain(ctx context.Context, id engine.JobID) (Explanation, error) {
	return call[Explanation](ctx, c, http.MethodGet, "/v1/jobs/"+id.String()+"/explain", nil)
}
