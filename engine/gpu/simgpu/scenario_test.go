package simgpu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestScenarioMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"cards: []":                                             "0 cards; a machine has 1 to 8",
		"cards: [{model: t5}]":                                  `cards, entry 1: no model "t5"`,
		"cards: [{modell: t4}]":                                 `unknown field "modell"`,
		"cards: [{model: t4, compute_mode: shared}]":            `cards, entry 1: no compute mode "shared"; it is default, exclusive or prohibited`,
		"cards: [{model: t4}]\nevents: [{card: 1, lost: true}]": "events, entry 1: no card 1; they are 0 to 0",
		"cards: [{model: t4}]\nevents: [{after: soon}]":         `events, entry 1: "soon" is no time; write for example 30s or 5m`,
		"cards: [{model: t4}]\nevents: [{driver: broken}]":      `events, entry 1: no driver fault "broken"; it is version-mismatch, not-loaded or not-found`,
		"cards: [{model: t4}]\nevents: [{mig: [1g.5gb]}]":       "events, entry 1: Tesla T4 has no MIG",
	} {
		path := filepath.Join(t.TempDir(), "s.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(path); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "simulated GPUs "+path+": ") {
			t.Errorf("%s:\n got %v\nwant %s", text, err, want)
		}
	}
	if _, err := Parse(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there was read")
	}
}

// The timetable goes on where it was when a process is replaced: a hang that is over does not come again.
func TestTimetableOutlivesTheProcess(t *testing.T) {
	dir := t.TempDir()
	c, err := parseScenario([]byte("cards: [{model: t4}]\nevents: [{after: 10s, for: 10s, card: 0, lost: true}, {after: 15s, card: 0, xid: 79}]"))
	if err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1_700_000_000_000)
	if err := Begin(dir, now); err != nil {
		t.Fatal(err)
	}
	answer := func(after time.Duration) nvml.Return {
		at := now.Add(after)
		l, err := NewWithClock(dir, c, "x", func() time.Time { return at })
		if err != nil {
			t.Fatal(err)
		}
		if r := l.Init(); r != nvml.SUCCESS {
			t.Fatal(r)
		}
		defer l.Shutdown()
		d, _ := l.DeviceGetHandleByIndex(0)
		_, r := d.GetName()
		set, _ := l.EventSetCreate()
		if d.RegisterEvents(nvml.EventTypeXidCriticalError, set); r == nvml.SUCCESS {
			if _, e := set.Wait(0); e != nvml.ERROR_TIMEOUT {
				t.Errorf("after %s a process is told of errors from before it began: %v", after, e)
			}
		}
		return r
	}
	for after, want := range map[time.Duration]nvml.Return{0: nvml.SUCCESS, 12 * time.Second: nvml.ERROR_GPU_IS_LOST, 25 * time.Second: nvml.SUCCESS} {
		if r := answer(after); r != want {
			t.Errorf("after %s: %v", after, r)
		}
	}
}

// Registering an event that a card does not know registers none at all, as with real ones.
func TestUnknownEventRegistersNothing(t *testing.T) {
	dir := t.TempDir()
	l, err := New(dir, parsed(t, "t4"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if r := l.Init(); r != nvml.SUCCESS {
		t.Fatal(r)
	}
	defer l.Shutdown()
	d, _ := l.DeviceGetHandleByIndex(0)
	set, _ := l.EventSetCreate()
	if r := d.RegisterEvents(nvml.EventTypeXidCriticalError|nvml.EventMigConfigChange, set); r != nvml.ERROR_NOT_SUPPORTED {
		t.Errorf("registered: %v", r)
	}
	if err := SetFaults(dir, Faults{Cards: map[int]CardFaults{0: {XIDs: []int{79}}}}); err != nil {
		t.Fatal(err)
	}
	if _, r := set.Wait(0); r != nvml.ERROR_TIMEOUT {
		t.Errorf("an event came: %v", r)
	}
}
