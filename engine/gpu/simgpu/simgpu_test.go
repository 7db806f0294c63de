package simgpu

import (
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev/simdevtest"
)

func TestMain(m *testing.M) { simdevtest.Main(m) }

func parsed(t *testing.T, spec string) Config {
	t.Helper()
	c, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPrepare(t *testing.T) {
	dir := t.TempDir()
	spec := parsed(t, "t4,a100-40gb/mig=3g.20gb+1g.5gb")
	a, err := Prepare(dir, spec, "one")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	seen := map[engine.DeviceID]bool{}
	for _, d := range a {
		kind, _, _ := strings.Cut(string(d.UUID), "-")
		got = append(got, kind+" "+d.ContainerPath)
		if len(d.UUID) != 40 || seen[d.UUID] {
			t.Errorf("UUID %s", d.UUID)
		}
		seen[d.UUID] = true
		if fi, err := os.Stat(d.HostPath); err != nil || fi.Mode() != 0o666 {
			t.Errorf("%s: %v", d.HostPath, err)
		}
		if isMIG := d.Parent != ""; isMIG != (kind == "MIG") || isMIG && d.Parent != a[1].UUID {
			t.Errorf("parent of %s is %q", d.UUID, d.Parent)
		}
	}
	want := []string{"GPU /dev/nvidia0", "GPU /dev/nvidia1", "MIG /dev/nvidia1-mig1", "MIG /dev/nvidia1-mig2"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	again, err := Prepare(dir, spec, "one")
	if err != nil || !reflect.DeepEqual(a, again) {
		t.Errorf("a second time: %v, %v", again, err)
	}
	other, err := Prepare(dir, spec, "two")
	if err != nil || other[0].UUID == a[0].UUID {
		t.Errorf("another instance has the same UUIDs: %v", err)
	}
}

// A reasonable tool may call anything that does not reach past the interface into the real library.
func TestNothingPanics(t *testing.T) {
	l, err := New(t.TempDir(), parsed(t, "h100-80gb/mig=3g.40gb,t4"), "x")
	if err != nil {
		t.Fatal(err)
	}
	callAll(t, l, "before Init", map[string]bool{"Init": true, "InitWithFlags": true})
	if r := l.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	for i := range 2 {
		d, r := l.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		callAll(t, d, "card", nil)
		if i == 0 {
			m, r := d.GetMigDeviceHandleByIndex(0)
			if r != nvml.SUCCESS {
				t.Fatal(r)
			}
			callAll(t, m, "MIG device", nil)
			gi, r := d.GetGpuInstanceById(1)
			if r != nvml.SUCCESS {
				t.Fatal(r)
			}
			callAll(t, gi, "GPU instance", nil)
		}
	}
	callAll(t, l, "library", nil)
}

// callAll calls every method with zero values. GpmMetricsGet gets a request; nil there is a fault of the caller.
func callAll(t *testing.T, v any, what string, skip map[string]bool) {
	t.Helper()
	rv := reflect.ValueOf(v)
	for i := range rv.NumMethod() {
		m := rv.Type().Method(i)
		if skip[m.Name] {
			continue
		}
		var args []reflect.Value
		for j := 1; j < m.Type.NumIn(); j++ {
			a := reflect.Zero(m.Type.In(j))
			if m.Type.In(j) == reflect.TypeFor[*nvml.GpmMetricsGetType]() {
				a = reflect.ValueOf(&nvml.GpmMetricsGetType{})
			}
			args = append(args, a)
		}
		func() {
			defer func() {
				if e := recover(); e != nil {
					t.Errorf("%s: %s panics: %v", what, m.Name, e)
				}
			}()
			rv.Method(i).Call(args)
		}()
	}
}

func TestHeatFollowsLoad(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	dir := t.TempDir()
	spec := parsed(t, "a100-40gb")
	l, err := NewWithClock(dir, spec, "x", func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	devices, err := Prepare(dir, spec, "x")
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	defer l.Shutdown()
	read := func() (heat, watts float64) {
		d, r := l.DeviceGetHandleByIndex(0)
		if r != nvml.SUCCESS {
			t.Fatal(r)
		}
		h, r1 := d.GetTemperature(nvml.TEMPERATURE_GPU)
		w, r2 := d.GetPowerUsage()
		if r1 != nvml.SUCCESS || r2 != nvml.SUCCESS {
			t.Fatal(r1, r2)
		}
		return float64(h), float64(w) / 1000
	}
	if h, w := read(); h != 29 || w != 52 {
		t.Errorf("idle: %v degrees, %v W", h, w)
	}
	p := simdevtest.Start(t, devices[0].HostPath)
	p.SM(1)
	lastH, lastW := 29.0, 52.0
	for range 60 {
		now = now.Add(time.Second)
		h, w := read()
		if h < lastH || h-lastH > 5 || w < lastW {
			t.Fatalf("from %v degrees and %v W to %v and %v in a second", lastH, lastW, h, w)
		}
		lastH, lastW = h, w
	}
	if lastH != 71 || math.Abs(lastW-386) > 1 {
		t.Errorf("after a minute at full load: %v degrees, %v W", lastH, lastW)
	}
}
