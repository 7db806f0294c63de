package replay

import (
	"slices"
	"time"

	"gputop/engine"
)

// Result is what a replay measured. Times are in seconds.
type Result struct {
	Classes []ClassResult `json:"classes"`
	// Makespan is from the first arrival to the last end.
	Makespan float64 `json:"makespan"`
	// UsefulUtilisation is the work of the jobs, once each, over what the GPUs could have done in the makespan.
	UsefulUtilisation float64 `json:"useful_utilisation"`
	// WastedGPUSeconds is work that preempted jobs had to do again; Waste is that over the work of the jobs.
	WastedGPUSeconds float64 `json:"wasted_gpu_seconds"`
	Waste            float64 `json:"waste"`
	Preemptions      int     `json:"preemptions"`
	// Jain is Jain's index of fairness over the users' mean waits: 1 when all are the same.
	Jain float64 `json:"jain"`
}

// ClassResult is how long the jobs of a class waited: end less arrival less duration.
type ClassResult struct {
	Class engine.Class `json:"class"`
	Jobs  int          `json:"jobs"`
	Mean  float64      `json:"mean"`
	P50   float64      `json:"p50"`
	P95   float64      `json:"p95"`
	Max   float64      `json:"max"`
}

// Class is the result of a class; false when it had no jobs.
func (r *Result) Class(c engine.Class) (ClassResult, bool) {
	i := slices.IndexFunc(r.Classes, func(x ClassResult) bool { return x.Class == c })
	if i < 0 {
		return ClassResult{}, false
	}
	return r.Classes[i], true
}

func (r *run) result() Result {
	out := r.out
	waits := map[engine.Class][]float64{}
	byUser, jobsOf := map[uint32]float64{}, map[uint32]float64{}
	work := 0.0
	var last time.Time
	for i := range r.jobs {
		j := &r.jobs[i]
		wait := (r.ended[i].Sub(epoch) - j.Arrival - j.Duration).Seconds()
		waits[j.Class] = append(waits[j.Class], wait)
		byUser[j.User] += wait
		jobsOf[j.User]++
		work += j.work()
		if r.ended[i].After(last) {
			last = r.ended[i]
		}
	}
	for _, c := range engine.Classes {
		if w := waits[c]; len(w) > 0 {
			slices.Sort(w)
			out.Classes = append(out.Classes, ClassResult{c, len(w), mean(w), quantile(w, 0.5), quantile(w, 0.95), w[len(w)-1]})
		}
	}
	out.Makespan = last.Sub(epoch).Seconds()
	out.UsefulUtilisation = work / (float64(r.o.GPUs) * out.Makespan)
	out.Waste = out.WastedGPUSeconds / work
	out.Jain = jain(byUser, jobsOf)
	return out
}

func mean(list []float64) (m float64) {
	for _, v := range list {
		m += v / float64(len(list))
	}
	return m
}

// quantile is the value that so much of a sorted list does not exceed (nearest rank).
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func jain(waits, jobs map[uint32]float64) float64 {
	var sum, squares []float64
	for u, w := range waits {
		x := w / jobs[u]
		sum, squares = append(sum, x), append(squares, x*x)
	}
	slices.Sort(sum) // so that the order of a map does not show
	slices.Sort(squares)
	total, total2 := mean(sum), mean(squares)
	if total2 == 0 {
		return 1
	}
	return total * total / total2
}
