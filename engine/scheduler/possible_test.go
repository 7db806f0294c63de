package scheduler

import (
	"math"
	"testing"

	"gputop/engine"
)

func TestPossible(t *testing.T) {
	const two, mig = "host 16 64\ngpu 0 40\ngpu 1 16 away", "gpu 0 40 mig\ngpu 1 40"
	for _, c := range []struct {
		name, box string
		r         engine.Request
		want      string
	}{
		{"nothing asked", two, engine.Request{}, ""},
		{"both cards, one away for a while", two, engine.Request{GPUs: 2}, ""},
		{"more cards than there are", two, engine.Request{GPUs: 9}, "asks for 9 GPUs; this box has 2"},
		{"largest card", two, engine.Request{GPUMemory: 40 * engine.GiB}, ""},
		{"larger than any card", two, engine.Request{GPUMemory: 96 * engine.GiB}, "needs 96GiB on one GPU, the largest has 40GiB"},
		{"half a card", two, engine.Request{GPUFraction: 0.5}, ""},
		{"fraction above one", two, engine.Request{GPUFraction: 1.5},
			"fraction 1.5: must be above 0 and at most 1, for example 0.25 for a quarter of one GPU"},
		{"fraction not a number", two, engine.Request{GPUFraction: engine.Fraction(math.NaN())},
			"fraction NaN: must be above 0 and at most 1, for example 0.25 for a quarter of one GPU"},
		{"fraction of nothing", two, engine.Request{GPUFraction: 1e-9}, "fraction 1e-09 of a GPU is less than 1MiB here"},
		{"two ways at once", two, engine.Request{GPUs: 1, GPUFraction: 0.5},
			"asks for GPUs in more than one way: give one of --gpus, --gpu-mem and --gpu-fraction"},
		{"less than no card", two, engine.Request{GPUs: -1}, "asks for -1 GPUs: give 0 or more"},
		{"negative share", two, engine.Request{GPUMemory: -1}, "asks for a negative amount of GPU memory"},
		{"negative memory", two, engine.Request{Memory: -1}, "asks for a negative amount of host memory"},
		{"cores that are not a number", two, engine.Request{CPUs: engine.CPUs(math.Inf(1))},
			"asks for +Inf CPU cores: give a number above 0, for example 4"},
		{"all cores", two, engine.Request{CPUs: 16, Memory: 64 * engine.GiB}, ""},
		{"too many cores", two, engine.Request{CPUs: 17}, "asks for 17 CPU cores; this box has 16 for jobs"},
		{"too much memory", two, engine.Request{Memory: 65 * engine.GiB}, "asks for 65GiB of host memory; this box has 64GiB for jobs"},
		{"no card", "", engine.Request{GPUs: 1},
			"asks for a GPU; this box has none that can be seen: gputop top --once says why; or ask for --gpus 0"},
		{"not read yet", "unknown", engine.Request{GPUs: 99}, ""},
		{"a card in MIG mode", mig, engine.Request{GPUs: 2},
			"asks for a GPU or a share of one; this box has 2, of which 1 cannot be given so (MIG mode, or compute mode prohibited)"},
		{"memory not told", "gpu 0 0", engine.Request{GPUFraction: 0.5},
			"asks for a share of a GPU; no GPU here can be shared (its memory is unknown, or its compute mode exclusive): ask for a whole one with --gpus 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ""
			if err := Possible(box(t, c.box), c.r); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}
