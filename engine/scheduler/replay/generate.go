package replay

import (
	"math"
	"math/rand/v2"
	"time"

	"gputop/engine"
)

// shapes are what jobs of the family of the standard trace ask for, with how many in a thousand do.
var shapes = []struct {
	gpus     int
	fraction engine.Fraction
	share    int
	best     bool // best effort
}{
	{1, 1, 570, false}, {1, 0.81, 110, true}, {1, 0.47, 90, true}, {1, 0.65, 45, true}, {1, 0.32, 30, true},
	{1, 0.81, 50, false}, {1, 0.47, 40, false}, {1, 0.23, 20, false}, {1, 0.16, 10, false}, {1, 1, 17, true},
	{2, 1, 6, false}, {4, 1, 6, false}, {8, 1, 6, false},
}

// Generate makes a workload of the standard trace's family without the trace: most jobs short and a few a day long,
// shares that do not add up well, some that need half the box or all of it, and arrivals in bursts. The same seed gives
// the same workload.
func Generate(n int, seed uint64) []Row {
	random := rand.New(rand.NewPCG(seed, 2))
	out := make([]Row, n)
	now := 0.0
	pace := 1.0
	for i := range out {
		if i%40 == 0 {
			pace = math.Exp(1.2 * random.NormFloat64())
		}
		now += random.ExpFloat64() * 400 * pace
		pick := random.IntN(1000)
		k := 0
		for pick >= shapes[k].share {
			pick -= shapes[k].share
			k++
		}
		s := &shapes[k]
		length := seconds(math.Exp(6.3 + 1.9*random.NormFloat64()))
		out[i] = Row{Arrival: seconds(now), Duration: min(max(length, 30*time.Second), 24*time.Hour), GPUs: s.gpus,
			Fraction: s.fraction, BestEffort: s.best}
	}
	return out
}
