package replay

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"gputop/engine"
)

// Limits says what the scheduler is told of how long jobs run.
type Limits string

const (
	// LimitsTrue tells the true duration.
	LimitsTrue Limits = "true"
	// LimitsLoose tells one to five times as long, as people do.
	LimitsLoose Limits = "loose"
	// LimitsMissing tells nothing of six in ten jobs, which then have DefaultLimit, and is loose with the rest.
	LimitsMissing Limits = "missing"
)

// DefaultLimit is the time limit of a job that names none, as in the daemon without configuration.
const DefaultLimit = 24 * time.Hour

// of draws the limits of a workload.
func (l Limits) of(jobs []Job, seed uint64) []time.Duration {
	random := rand.New(rand.NewPCG(seed, 1))
	out := make([]time.Duration, len(jobs))
	for i := range jobs {
		factor, missing := 1+4*random.Float64(), random.Float64() < 0.6
		switch out[i] = jobs[i].Duration; {
		case l == LimitsMissing && missing:
			out[i] = DefaultLimit
		case l != LimitsTrue:
			out[i] = time.Duration(float64(out[i]) * factor)
		}
	}
	return out
}

// ReadTrace reads the GPU-sharing trace of Alibaba's cluster-trace-gpu-v2023 (a CSV file with a head), and gives back
// the jobs that used a GPU and ended, in order of their arrival. Durations are clipped to between 30 s and a day.
// Classes and users are left to Standard.
func ReadTrace(r io.Reader) ([]Job, []bool, error) {
	in := csv.NewReader(r)
	head, err := in.Read()
	if err != nil {
		return nil, nil, fmt.Errorf("read the trace's head: %w", err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	for _, name := range []string{"num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time"} {
		if _, ok := at[name]; !ok {
			return nil, nil, fmt.Errorf("the trace has no column %s: it has to be a file of cluster-trace-gpu-v2023", name)
		}
	}
	type row struct {
		job        Job
		bestEffort bool
	}
	var rows []row
	for {
		f, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read the trace: %w", err)
		}
		line, _ := in.FieldPos(0)
		var bad error
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(f[at[name]], 64)
			if err != nil || v < 0 || v > 1e12 {
				bad = cmp.Or(bad, fmt.Errorf("line %d of the trace: %s is %q: want a number", line, name, f[at[name]]))
			}
			return v
		}
		gpus := number("num_gpu")
		if bad == nil && (gpus < 1 || f[at["scheduled_time"]] == "" || f[at["deletion_time"]] == "") {
			continue
		}
		j := Job{GPUs: int(gpus), Fraction: 1, Arrival: seconds(number("creation_time"))}
		j.Duration = min(max(seconds(number("deletion_time")-number("scheduled_time")), 30*time.Second), 24*time.Hour)
		if j.GPUs == 1 {
			j.Fraction = engine.Fraction(number("gpu_milli") / 1000)
			if err := j.Fraction.Validate(); err != nil {
				bad = cmp.Or(bad, fmt.Errorf("line %d of the trace: %w", line, err))
			}
		}
		if bad != nil {
			return nil, nil, bad
		}
		rows = append(rows, row{j, f[at["qos"]] == "BE"})
	}
	slices.SortStableFunc(rows, func(a, b row) int { return cmp.Compare(a.job.Arrival, b.job.Arrival) })
	jobs, be := make([]Job, len(rows)), make([]bool, len(rows))
	for i := range rows {
		jobs[i], be[i] = rows[i].job, rows[i].bestEffort
	}
	return jobs, be, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// users is how many the standard replay has.
const users = 12

// Standard makes the standard replay of a trace: the last so many jobs (0 is all of them), a tenth of them high, who was
// best effort low, the rest medium; and arrivals drawn together so that they offer a box of so many GPUs this load.
func Standard(jobs []Job, bestEffort []bool, last int, load float64, gpus int) ([]Job, error) {
	if last > 0 && last < len(jobs) {
		jobs, bestEffort = jobs[len(jobs)-last:], bestEffort[len(bestEffort)-last:]
	}
	if len(jobs) < 2 || load <= 0 || gpus <= 0 {
		return nil, errors.New("a replay needs two jobs, a load above 0 and a GPU")
	}
	out := slices.Clone(jobs)
	work := 0.0
	for i := range out {
		j := &out[i]
		switch j.User = uint32(i % users); {
		case i%10 == 0:
			j.Class = engine.High
		case bestEffort[i]:
			j.Class = engine.Low
		default:
			j.Class = engine.Medium
		}
		work += j.work()
	}
	first, span := out[0].Arrival, out[len(out)-1].Arrival-out[0].Arrival
	if span <= 0 {
		return nil, errors.New("all jobs of the trace arrive at once: no load can be made of them")
	}
	scale := work / (float64(gpus) * load) / span.Seconds()
	for i := range out {
		out[i].Arrival = seconds((out[i].Arrival - first).Seconds() * scale)
	}
	return out, nil
}
