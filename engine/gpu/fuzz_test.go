package gpu

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
)

// FuzzAnswers: whatever NVML answers, also what no driver would, the reader neither crashes nor passes nonsense on.
// Whole classes of answers are spoilt by chance: results, all ones, and numbers out of range.
func FuzzAnswers(f *testing.F) {
	for seed := range uint64(40) {
		f.Add(seed, uint8(seed*6))
	}
	f.Fuzz(func(t *testing.T, seed uint64, howOften uint8) {
		cfg, err := simgpu.Parse("h100-80gb/mig=1c.3g.40gb+2c.3g.40gb,rtx4090,gb10")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1_700_000_000, 0)
		lib, err := simgpu.NewWithClock(t.TempDir(), cfg, "fuzz", func() time.Time { return now })
		if err != nil {
			t.Fatal(err)
		}
		s := &spoiler{r: rand.New(rand.NewPCG(seed, 1)), often: int(howOften)}
		c := New(&spoilt{Interface: lib, s: s}, Options{Simulated: true})
		defer c.Close()
		for range 6 {
			now = now.Add(time.Second)
			sample := c.Sample(now)
			sane(t, sample)
			if _, err := json.Marshal(sample); err != nil {
				t.Errorf("a sample that cannot be written: %v", err)
			}
		}
	})
}

// sane fails for what cannot be true of any card.
func sane(t *testing.T, s engine.Sample) {
	t.Helper()
	share := func(what string, v *float64) {
		if v != nil && (math.IsNaN(*v) || *v < 0 || *v > 1) {
			t.Errorf("%s %v", what, *v)
		}
	}
	memory := func(what string, total, used *engine.Bytes) {
		if total != nil && *total < 0 || used != nil && *used < 0 || total != nil && used != nil && *used > *total {
			t.Errorf("%s: %v of %v", what, used, total)
		}
	}
	processes := func(list []engine.GPUProcess) {
		for _, p := range list {
			share("process", p.SM)
			memory("process", nil, p.Memory)
			if p.PID <= 0 {
				t.Errorf("PID %d", p.PID)
			}
		}
	}
	for _, g := range s.GPUs {
		share("SM", g.SM)
		share("bandwidth", g.MemoryBandwidth)
		memory("card", g.MemoryTotal, g.MemoryUsed)
		processes(g.Processes)
		if g.Usable() < 0 {
			t.Errorf("usable %d", g.Usable())
		}
		if (g.SM == nil) != (g.SMSource == "") {
			t.Errorf("SM %v by %q", g.SM, g.SMSource)
		}
		for _, v := range []*int{g.Temperature, g.Fan, g.ClockSM, g.ClockMemory, g.ClockSMMax, g.ClockMemoryMax} {
			if v != nil && (*v < 0 || *v > 200_000) {
				t.Errorf("a number %d", *v)
			}
		}
		for _, m := range g.MIG {
			share("instance", m.SM)
			memory("instance", m.MemoryTotal, m.MemoryUsed)
			processes(m.Processes)
			if m.PlacementStart < 0 || m.PlacementStart+m.PlacementSize > migSlices {
				t.Errorf("placement %d+%d", m.PlacementStart, m.PlacementSize)
			}
		}
	}
}

// spoiler makes other answers of good ones.
type spoiler struct {
	r     *rand.Rand
	often int // of 256
}

var returns = []nvml.Return{nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_UNKNOWN, nvml.ERROR_GPU_IS_LOST, nvml.ERROR_NO_PERMISSION, nvml.ERROR_NOT_FOUND,
	nvml.ERROR_INVALID_ARGUMENT, nvml.ERROR_UNINITIALIZED, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_INSUFFICIENT_SIZE, nvml.ERROR_TIMEOUT, 12345, -1}

func spoil[T any](s *spoiler, v T, r nvml.Return) (T, nvml.Return) {
	if s.r.IntN(256) >= s.often {
		return v, r
	}
	if s.r.IntN(2) == 0 {
		var none T
		return none, returns[s.r.IntN(len(returns))]
	}
	s.value(reflect.ValueOf(&v).Elem())
	return v, nvml.SUCCESS
}

// value fills numbers with what is all ones, 0, negative or random; handles stay.
func (s *spoiler) value(v reflect.Value) {
	n := []uint64{math.MaxUint64, math.MaxUint32, 0, 1 << 63, s.r.Uint64(), s.r.Uint64N(300)}[s.r.IntN(6)]
	switch v.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n))
	case reflect.Uint32, reflect.Uint64, reflect.Uint:
		v.SetUint(n)
	case reflect.Float64:
		v.SetFloat([]float64{math.NaN(), math.Inf(1), -1, 1e300, 50}[s.r.IntN(5)])
	case reflect.String:
		v.SetString([]string{"", "\x1b[31m", "\xff\xfe"}[s.r.IntN(3)])
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				s.value(v.Field(i))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			s.value(v.Index(i))
		}
	case reflect.Slice:
		if v.Len() == 0 && s.r.IntN(2) == 0 {
			v.Set(reflect.MakeSlice(v.Type(), s.r.IntN(20), 20))
		}
		for i := range v.Len() {
			s.value(v.Index(i))
		}
	}
}
