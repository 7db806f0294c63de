package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"
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

// Budget is how many GPU hours may be used in the last days, this one included.
type Budget struct {
	Hours float64 `json:"gpu_hours"`
	Days  int     `json:"days"`
}

// MaxBudgetDays is the longest time of a budget.
const MaxBudgetDays = 90

// ParseBudget reads a budget as it is written: "100 in 7d".
func ParseBudget(s string) (Budget, error) {
	hours, window, ok := strings.Cut(strings.ToLower(s), " in ")
	n, err := strconv.ParseFloat(strings.TrimSpace(hours), 64)
	d, derr := ParseDuration(strings.TrimSpace(window))
	days := int(d / (24 * time.Hour))
	if !ok || err != nil || derr != nil || !(n >= 0 && n <= 1e9) || days < 1 || days > MaxBudgetDays || d%(24*time.Hour) != 0 {
		return Budget{}, fmt.Errorf("%q: write GPU hours and days, up to %d, as: 100 in 7d", s, MaxBudgetDays)
	}
	return Budget{n, days}, nil
}

// String is the budget in words: "100 GPU hours in 7 days".
func (b Budget) String() string { return Count(b.Hours, "GPU hour") + " in " + Count(b.Days, "day") }

// Count is a number of things, for example "1 GPU" or "2.5 GPUs".
func Count[N int | int64 | float64](n N, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%v %s", n, what)
}
