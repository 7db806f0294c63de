package metrics

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"gputop/engine"
	"gputop/engine/api"
)

var at = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func ref[T any](v T) *T { return &v }

type box struct {
	gpus api.GPUs
	jobs []api.Job
	err  error
}

func (b *box) GPUs(api.Caller) api.GPUs { return b.gpus }

func (b *box) List(_ context.Context, c api.Caller, ended bool, _ int) ([]api.Job, error) {
	if c.Admin || ended {
		return nil, errors.New("more was asked for than anybody may see")
	}
	return b.jobs, b.err
}

func scrape(t *testing.T, b *box) string {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(b, "1.2", func() time.Time { return at }).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	problems, err := promlint.New(strings.NewReader(w.Body.String())).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("against the conventions: %v, %v", problems, err)
	}
	return w.Body.String()
}

func lab() *box {
	g := api.GPU{GPU: engine.GPU{UUID: "GPU-a", Model: "NVIDIA A100-SXM4-40GB", MemoryTotal: ref(40 * engine.GiB), MemoryUsed: ref(12 * engine.GiB), SM: ref(0.85),
		SMSource: engine.SourceGPM, Temperature: ref(61), Power: ref(250.5), Health: engine.HealthOK}, Promised: 40 * engine.GiB, Foreign: engine.GiB}
	g.ClockSM, g.Throttle = ref(1410), []engine.ThrottleReason{engine.ThrottlePowerCap}
	g.XIDs = []engine.XID{{Code: 31, Count: 2}, {Code: 31, Count: 1}}
	g.PCIe = &engine.PCIe{Receive: ref(5e9)}
	g.ECC = &engine.ECC{Enabled: true, Uncorrected: ref(uint64(0))}
	lost := api.GPU{GPU: engine.GPU{UUID: "GPU-b", Index: 1, Model: "NVIDIA A100-SXM4-40GB", MemoryUsed: ref(engine.GiB), Health: engine.HealthLost}}
	lost.Reservations = []api.Reservation{{Reservation: engine.Reservation{Drain: true, From: at.Add(-time.Hour)}}}
	mig := api.GPU{GPU: engine.GPU{UUID: "GPU-c", Index: 2, Model: "NVIDIA A100-SXM4-40GB", Health: engine.HealthOK,
		MIG: []engine.MIGDevice{{UUID: "MIG-a", Profile: "3g.20gb", MemoryTotal: ref(20 * engine.GiB), MemoryUsed: ref(engine.Bytes(0))}}}}
	job := func(id engine.JobID, owner string, s engine.JobState, waited time.Duration) api.Job {
		return api.Job{ID: id, Owner: owner, Class: engine.Medium, State: s, Submitted: at.Add(-waited)}
	}
	running := job(1, "alice", engine.Running, time.Hour)
	running.Grants = []api.Grant{{Device: "GPU-a", Memory: 10 * engine.GiB, Fraction: 0.25}, {Device: "GPU-c", Memory: 40 * engine.GiB, Fraction: 1}}
	running.GPUMemoryUsed = ref(7 * engine.GiB)
	held := job(3, "bob", engine.Pending, 9*time.Hour)
	held.Held = true
	return &box{gpus: api.GPUs{Time: at.Add(-2 * time.Second), Driver: "570.1", Simulated: true, GPUs: []api.GPU{g, lost, mig}},
		jobs: []api.Job{running, job(2, "bob\"\n", engine.Pending, 2*time.Minute), held, job(4, "bob", engine.Succeeded, 0)}}
}

func TestScrape(t *testing.T) {
	got := scrape(t, lab())
	const golden = "testdata/scrape.golden"
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || got != string(want) {
		t.Errorf("%v\n%s", err, got)
	}
}

// What is not known is not told, and an engine that does not answer leaves the cards.
func TestScrapeOfLittle(t *testing.T) {
	b := lab()
	b.err = errors.New("stopping")
	b.gpus.Stale = true
	got := scrape(t, b)
	for _, not := range []string{"gputop_jobs", "gputop_gpu_memory_used_bytes", "gputop_gpu_sm_activity_ratio"} {
		if strings.Contains(got, not) {
			t.Errorf("told: %s", not)
		}
	}
	if !strings.Contains(got, "gputop_sample_stale 1") || !strings.Contains(got, `gputop_gpu_healthy{gpu="0",uuid="GPU-a"} 1`) {
		t.Error(got)
	}
	if got := scrape(t, &box{}); strings.Contains(got, "sample_age") || !strings.Contains(got, "gputop_build_info") {
		t.Errorf("before the first sample: %s", got)
	}
}
