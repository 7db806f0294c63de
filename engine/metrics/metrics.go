// Package metrics says in Prometheus' words what the screen shows: cards, the queue, and what running jobs hold. It reads
// what any user of the machine may see, changes nothing, and must not keep anything between two scrapes.
package metrics

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"gputop/engine"
	"gputop/engine/api"
)

// Source is what is read at each scrape.
type Source interface {
	GPUs(c api.Caller) api.GPUs
	List(ctx context.Context, c api.Caller, ended bool, limit int) ([]api.Job, error)
}

// anybody sees of jobs what every user does.
var anybody = api.Caller{User: engine.User{UID: 1<<32 - 2, Name: "nobody"}}

// scrapeTime bounds how long a scrape waits for the engine.
const scrapeTime = 5 * time.Second

// Handler answers a scrape. Names follow Prometheus' conventions: base units, ratios from 0 to 1.
func Handler(s Source, version string, now func() time.Time) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(&collector{s, version, now})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 2 * scrapeTime})
}

type collector struct {
	s       Source
	version string
	now     func() time.Time
}

// Describe names nothing beforehand: which values there are depends on the cards.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// gauge is one value of one kind.
type gauge struct {
	desc   *prometheus.Desc
	labels int
}

func kind(name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc("gputop_"+name, help, labels, nil), len(labels)}
}

// The kinds. A label gpu is the card's index in PCI order; uuid names it for good.
var (
	buildInfo  = kind("build_info", "Version of the daemon.", "version")
	sampleAge  = kind("sample_age_seconds", "Age of the newest sample of the cards.")
	stale      = kind("sample_stale", "1 when the sampler has not answered for several periods.")
	gpuInfo    = kind("gpu_info", "A card.", "gpu", "uuid", "model", "driver", "simulated")
	healthy    = kind("gpu_healthy", "1 when a card can be used, 0 when it is lost or faulty.", "gpu", "uuid")
	drained    = kind("gpu_drained", "1 when a card takes no new job.", "gpu", "uuid")
	memTotal   = kind("gpu_memory_total_bytes", "Memory of a card.", "gpu", "uuid")
	memUsed    = kind("gpu_memory_used_bytes", "Memory in use, without what the driver reserves.", "gpu", "uuid")
	memPromise = kind("gpu_memory_promised_bytes", "Memory promised to jobs.", "gpu", "uuid")
	memForeign = kind("gpu_memory_foreign_bytes", "Memory held by processes outside the queue.", "gpu", "uuid")
	smActivity = kind("gpu_sm_activity_ratio", "SMs at work; source says how it was measured.", "gpu", "uuid", "source")
	bandwidth  = kind("gpu_memory_bandwidth_ratio", "Memory bandwidth in use; source says how it was measured.", "gpu", "uuid", "source")
	heat       = kind("gpu_temperature_celsius", "Temperature of a card.", "gpu", "uuid")
	power      = kind("gpu_power_watts", "Power drawn by a card.", "gpu", "uuid")
	powerLimit = kind("gpu_power_limit_watts", "Power limit of a card.", "gpu", "uuid")
	clockSM    = kind("gpu_sm_clock_hertz", "Clock of the SMs.", "gpu", "uuid")
	throttled  = kind("gpu_throttled", "1 for each reason that holds the clocks back.", "gpu", "uuid", "reason")
	pcie       = kind("gpu_pcie_bytes_per_second", "Traffic on the PCIe link.", "gpu", "uuid", "direction")
	nvlink     = kind("gpu_nvlink_bytes_per_second", "Traffic on all NVLinks.", "gpu", "uuid", "direction")
	ecc        = kind("gpu_ecc_uncorrected_errors", "Uncorrected memory errors since the driver was loaded.", "gpu", "uuid")
	xids       = kind("gpu_xid_reports", "Reports of an error (Xid) since the sampler began to listen.", "gpu", "uuid", "xid")
	migTotal   = kind("mig_memory_total_bytes", "Memory of a MIG device.", "gpu", "uuid", "profile")
	migUsed    = kind("mig_memory_used_bytes", "Memory in use on a MIG device.", "gpu", "uuid", "profile")
	migSM      = kind("mig_sm_activity_ratio", "SMs of a MIG device at work.", "gpu", "uuid", "profile")
	jobs       = kind("jobs", "Jobs that wait or run.", "state", "class")
	oldest     = kind("queue_oldest_wait_seconds", "How long the job waits that was submitted first.", "class")
	userGPUs   = kind("user_gpus", "GPUs that somebody's jobs hold, shares as their part.", "user")
	jobMemory  = kind("job_gpu_memory_used_bytes", "GPU memory that the processes of a running job hold.", "job", "user", "class")
	jobPromise = kind("job_gpu_memory_promised_bytes", "GPU memory promised to a running job.", "job", "user", "class")
)

// Collect reads everything anew.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	w := writer{out}
	w.put(buildInfo, 1, c.version)
	gpus := c.s.GPUs(anybody)
	if !gpus.Time.IsZero() {
		w.put(sampleAge, c.now().Sub(gpus.Time).Seconds())
	}
	w.flag(stale, gpus.Stale)
	for i := range gpus.GPUs {
		w.card(&gpus, &gpus.GPUs[i])
	}
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTime)
	defer cancel()
	if list, err := c.s.List(ctx, anybody, false, 0); err == nil {
		w.queue(list, c.now())
	}
}

type writer struct{ out chan<- prometheus.Metric }

func (w writer) put(g gauge, v float64, labels ...string) {
	w.out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, v, labels...)
}

func (w writer) flag(g gauge, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	w.put(g, n, labels...)
}

// maybe puts a value that the card gives; one that it does not is left out, never 0.
func maybe[N engine.Bytes | int | float64 | uint64](w writer, g gauge, v *N, scale float64, labels ...string) {
	if v != nil {
		w.put(g, float64(*v)*scale, labels...)
	}
}

func (w writer) card(all *api.GPUs, g *api.GPU) {
	index, id := strconv.Itoa(g.Index), string(g.UUID)
	w.put(gpuInfo, 1, index, id, g.Model, all.Driver, strconv.FormatBool(all.Simulated))
	w.flag(healthy, g.Health == engine.HealthOK, index, id)
	r := g.HeldBack(all.Time)
	w.flag(drained, r != nil && r.Drain, index, id)
	w.put(memPromise, float64(g.Promised), index, id)
	if all.Stale || g.Health == engine.HealthLost {
		return // what was measured is old
	}
	maybe(w, memTotal, g.MemoryTotal, 1, index, id)
	maybe(w, memUsed, g.MemoryUsed, 1, index, id)
	w.put(memForeign, float64(g.Foreign), index, id)
	maybe(w, smActivity, g.SM, 1, index, id, string(g.SMSource))
	maybe(w, bandwidth, g.MemoryBandwidth, 1, index, id, string(g.MemoryBandwidthSource))
	maybe(w, heat, g.Temperature, 1, index, id)
	maybe(w, power, g.Power, 1, index, id)
	maybe(w, powerLimit, g.PowerLimit, 1, index, id)
	maybe(w, clockSM, g.ClockSM, 1e6, index, id)
	for _, why := range g.Throttle {
		w.put(throttled, 1, index, id, string(why))
	}
	if l := g.PCIe; l != nil {
		maybe(w, pcie, l.Receive, 1, index, id, "receive")
		maybe(w, pcie, l.Transmit, 1, index, id, "transmit")
	}
	if l := g.NVLink; l != nil {
		maybe(w, nvlink, l.Receive, 1, index, id, "receive")
		maybe(w, nvlink, l.Transmit, 1, index, id, "transmit")
	}
	if g.ECC != nil {
		maybe(w, ecc, g.ECC.Uncorrected, 1, index, id)
	}
	reports := map[int]int{}
	for _, x := range g.XIDs {
		reports[x.Code] += x.Count
	}
	for code, n := range reports {
		w.put(xids, float64(n), index, id, strconv.Itoa(code))
	}
	for _, m := range g.MIG {
		maybe(w, migTotal, m.MemoryTotal, 1, index, string(m.UUID), m.Profile)
		maybe(w, migUsed, m.MemoryUsed, 1, index, string(m.UUID), m.Profile)
		maybe(w, migSM, m.SM, 1, index, string(m.UUID), m.Profile)
	}
}

func (w writer) queue(list []api.Job, now time.Time) {
	type stateClass struct {
		state engine.JobState
		class engine.Class
	}
	count := map[stateClass]int{}
	first := map[engine.Class]time.Time{}
	held := map[string]float64{}
	for i := range list {
		j := &list[i]
		if j.State.Final() {
			continue
		}
		count[stateClass{j.State, j.Class}]++
		if t, ok := first[j.Class]; j.State.Queued() && !j.Held && (!ok || j.Submitted.Before(t)) {
			first[j.Class] = j.Submitted
		}
		var promised engine.Bytes
		for _, g := range j.Grants {
			held[j.Owner] += float64(g.Fraction)
			promised += g.Memory
		}
		if len(j.Grants) > 0 {
			labels := []string{j.ID.String(), j.Owner, j.Class.String()}
			w.put(jobPromise, float64(promised), labels...)
			maybe(w, jobMemory, j.GPUMemoryUsed, 1, labels...)
		}
	}
	for k, n := range count {
		w.put(jobs, float64(n), string(k.state), k.class.String())
	}
	for class, t := range first {
		w.put(oldest, now.Sub(t).Seconds(), class.String())
	}
	for user, n := range held {
		w.put(userGPUs, n, user)
	}
}
