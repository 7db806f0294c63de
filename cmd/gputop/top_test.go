package main

import (
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// The table says what a number is the number of.
func TestGPUTableSaysWhatIsMeasured(t *testing.T) {
	half := 0.5
	card := func(i int, change func(*engine.GPU)) api.GPU {
		g := api.GPU{GPU: engine.GPU{UUID: engine.DeviceID(rune('a' + i)), Index: i, Model: "Card", Health: engine.HealthOK, SM: &half, SMSource: engine.SourceGPM}}
		change(&g.GPU)
		return g
	}
	gpus := []api.GPU{
		card(0, func(*engine.GPU) {}),
		card(1, func(g *engine.GPU) { g.SMSource, g.MemoryUnified = engine.SourceUtilization, true }),
		card(2, func(g *engine.GPU) { g.ComputeMode = engine.ComputeExclusive }),
		card(3, func(g *engine.GPU) {
			g.SM, g.MIGMode, g.MIG = nil, true, []engine.MIGDevice{{Profile: "1c.3g.40gb", SM: &half, InstanceShared: true}}
		}),
	}
	lines := strings.Split(gpuTable(gpus, time.Time{}).String(), "\n")
	for i, want := range []string{"ON IT", "-", "unified memory, the host's", "compute mode exclusive", "-", "numbers of the instance, which others share"} {
		if !strings.HasSuffix(strings.TrimSpace(lines[i]), want) {
			t.Errorf("line %d: %q does not end on %q", i, lines[i], want)
		}
	}
	if got := smSource(gpus); got != "SM of GPU 1 is the share of time in which any kernel ran." {
		t.Errorf("got %q", got)
	}
	if got := smSource(gpus[:1]); got != "" {
		t.Errorf("all measured: %q", got)
	}
	if got := smSource(gpus[1:2]); got != "SM is the share of time in which any kernel ran." {
		t.Errorf("none measured: %q", got)
	}
}
