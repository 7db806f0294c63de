package engine

import (
	"fmt"
	"strings"
)

// Quota is how much of the machine somebody, or the members of a group together, may hold at once. What is nil has no
// limit.
type Quota struct {
	// GPUs is a number of whole devices; a share counts as its fraction.
	GPUs *float64 `json:"gpus,omitempty"`
	// Jobs is how many may run at once.
	Jobs *int `json:"jobs,omitempty"`
	// CPUs is processor time in cores, Memory host memory in bytes.
	CPUs   *CPUs  `json:"cpus,omitempty"`
	Memory *Bytes `json:"memory_bytes,omitempty"`
}

// IsZero says that nothing is limited.
func (q Quota) IsZero() bool { return q == Quota{} }

// String is the quota in words, for example "4 GPUs, 10 jobs"; empty when nothing is limited.
func (q Quota) String() string {
	var parts []string
	if q.GPUs != nil {
		parts = append(parts, Count(*q.GPUs, "GPU"))
	}
	if q.Jobs != nil {
		parts = append(parts, Count(*q.Jobs, "job"))
	}
	if q.CPUs != nil {
		parts = append(parts, Count(float64(*q.CPUs), "CPU"))
	}
	if q.Memory != nil {
		parts = append(parts, q.Memory.String()+" of memory")
	}
	return strings.Join(parts, ", ")
}

// Count is a number of things, for example "1 GPU" or "2.5 GPUs".
func Count[N int | int64 | float64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%v %s", n, what)
}
