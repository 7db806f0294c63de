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
	// LimitsOwn tells the jobs' own time limits; the true duration of one that has none.
	LimitsOwn Limits = "own"
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
		case l == LimitsOwn:
			if jobs[i].Limit > 0 {
				out[i] = jobs[i].Limit
			}
		case l == LimitsMissing && missing:
			out[i] = DefaultLimit
		case l != LimitsTrue:
			out[i] = time.Duration(float64(out[i]) * factor)
		}
	}
	return out
}

// Row is a job of a trace, before Standard gives it a class, a user and the time of its arrival.
type Row struct {
	Arrival, Duration time.Duration
	GPUs              int
	Fraction          engine.Fraction
	BestEffort        bool
}

// columns are what is read of a trace.
var columns = []string{"num_gpu", "gpu_milli", "qos", "creation_time", "deletion_time", "scheduled_time"}

// ReadTrace reads the GPU-sharing trace of Alibaba's cluster-trace-gpu-v2023 (a CSV file with a head), and gives back
// the jobs that used a GPU and ended, in order of their arrival. Durations are clipped to between 30 s and a day.
func ReadTrace(r io.Reader) ([]Row, error) {
	in := csv.NewReader(r)
	head, err := in.Read()
	if err != nil {
		return nil, fmt.Errorf("read the trace's head: %w", err)
	}
	at := map[string]int{}
	for i, name := range head {
		at[name] = i
	}
	for _, name := range columns {
		if _, ok := at[name]; !ok {
			return nil, fmt.Errorf("the trace has no column %s: it has to be a file of cluster-trace-gpu-v2023", name)
		}
	}
	var rows []Row
	for {
		f, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the trace: %w", err)
		}
		row, used, err := readRow(func(name string) string { return f[at[name]] })
		if err != nil {
			line, _ := in.FieldPos(0)
			return nil, fmt.Errorf("line %d of the trace: %w", line, err)
		}
		if used {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b Row) int { return cmp.Compare(a.Arrival, b.Arrival) })
	return rows, nil
}

// readRow reads a job by its columns; false when it used no GPU or did not end.
func readRow(column func(string) string) (Row, bool, error) {
	values := map[string]float64{}
	for _, name := range columns {
		text := column(name)
		if name == "qos" || text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil || !(v >= 0 && v <= 1e9) {
			return Row{}, false, fmt.Errorf("%s is %q: want a number", name, text)
		}
		values[name] = v
	}
	if values["num_gpu"] < 1 || column("scheduled_time") == "" || column("deletion_time") == "" {
		return Row{}, false, nil
	}
	r := Row{GPUs: int(values["num_gpu"]), Fraction: 1, Arrival: seconds(values["creation_time"]), BestEffort: column("qos") == "BE"}
	r.Duration = min(max(seconds(values["deletion_time"]-values["scheduled_time"]), 30*time.Second), 24*time.Hour)
	if r.GPUs == 1 {
		r.Fraction = engine.Fraction(values["gpu_milli"] / 1000)
		if err := r.Fraction.Validate(); err != nil {
			return Row{}, false, err
		}
	}
	return r, true, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// users is how many the standard replay has.
const users = 12

// AtLoad draws the arrivals of jobs, in their order, together or apart so that they offer a box of so many GPUs this load.
func AtLoad(jobs []Job, load float64, gpus int) error {
	if len(jobs) < 2 || !(load > 0) || gpus <= 0 {
		return errors.New("a replay needs two jobs, a load above 0 and a GPU")
	}
	work := 0.0
	for i := range jobs {
		work += jobs[i].work()
	}
	first, span := jobs[0].Arrival, jobs[len(jobs)-1].Arrival-jobs[0].Arrival
	if span <= 0 {
		return errors.New("all jobs of the trace arrive at once: no load can be made of them")
	}
	scale := work / (float64(gpus) * load) / span.Seconds()
	for i := range jobs {
		jobs[i].Arrival = seconds((jobs[i].Arrival - first).Seconds() * scale)
	}
	return nil
}

// Standard makes the standard replay of a trace: the last so many jobs (0 is all of them), a tenth of them high, who was
// best effort low, the rest medium; and arrivals drawn together so that they offer a box of so many GPUs this load.
func Standard(rows []Row, last int, load float64, gpus int) ([]Job, error) {
	if last > 0 && last < len(rows) {
		rows = rows[len(rows)-last:]
	}
	out := make([]Job, len(rows))
	for i, r := range rows {
		j := Job{Arrival: r.Arrival, Duration: r.Duration, GPUs: r.GPUs, Fraction: r.Fraction, Class: engine.Medium, User: uint32(i % users)}
		switch {
		case i%10 == 0:
			j.Class = engine.High
		case r.BestEffort:
			j.Class = engine.Low
		}
		out[i] = j
	}
	return out, AtLoad(out, load, gpus)
}
