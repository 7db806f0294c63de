package daemon

import (
	"testing"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// A card for one process at a time is given whole and never as a share, one for none not at all.
func TestComputeModeOfACard(t *testing.T) {
	total := 40 * engine.GiB
	for mode, want := range map[engine.ComputeMode]struct {
		whole, share bool
	}{
		"":                       {true, true},
		engine.ComputeDefault:    {true, true},
		engine.ComputeExclusive:  {true, false},
		engine.ComputeProhibited: {false, false},
	} {
		b := newBox(t, 1)
		s := engine.Sample{GPUs: []engine.GPU{{UUID: "GPU-a", Model: "A100", MemoryTotal: &total, ProcessesKnown: true, Health: engine.HealthOK,
			CardDetail: engine.CardDetail{ComputeMode: mode}}}}
		var list []scheduler.Device
		_ = b.d.do(t.Context(), func() {
			b.d.takeSample(s)
			list, _ = b.d.schedulable()
		})
		snap := scheduler.Snapshot{Devices: list, DevicesKnown: true}
		_, _, whole := scheduler.Fits(snap, engine.Request{GPUs: 1}, scheduler.Policy{})
		_, _, share := scheduler.Fits(snap, engine.Request{GPUFraction: 0.5}, scheduler.Policy{})
		if whole != want.whole || share != want.share {
			t.Errorf("%q: whole %v, share %v", mode, whole, share)
		}
	}
}
