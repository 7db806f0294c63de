package scheduler

import (
	"testing"

	"gputop/engine"
)

func TestFits(t *testing.T) {
	s := box(t, `
		gpu 0 40
		gpu 1 40
		held 9 0=40w
		job 1 critical gpus=1`)
	a, _, ok := Fits(s, engine.Request{GPUs: 1}, DefaultPolicy())
	if got := showAllocation(a); !ok || got != " 1=40GiB*" || a.State != engine.Granted {
		t.Fatalf("got %v %q %q", ok, got, a.State)
	}
	if !StillFits(s, Pending{}, a, DefaultPolicy(), epoch) {
		t.Error("what Fits gives does not still fit")
	}
	_, why, ok := Fits(s, engine.Request{GPUs: 2}, DefaultPolicy())
	if got := showReason(why); ok || got != "WaitingForDevice 2/1 devices" {
		t.Errorf("got %v %q", ok, got)
	}
	s.Held = append(s.Held, Held{Job: 1, Allocation: a})
	if StillFits(s, Pending{}, a, DefaultPolicy(), epoch) {
		t.Error("the same card was given twice")
	}
	s.DevicesKnown = false
	if _, why, ok = Fits(s, engine.Request{GPUs: 1}, DefaultPolicy()); ok || why.Code != engine.DevicesUnknown {
		t.Errorf("got %v %v", ok, why)
	}
}

func TestStillFits(t *testing.T) {
	whole := func(ids ...engine.DeviceID) (a engine.Allocation) {
		for _, id := range ids {
			a.Grants = append(a.Grants, engine.Grant{Device: id, Memory: 40 * engine.GiB, Whole: true})
		}
		return a
	}
	share := func(id engine.DeviceID, m engine.Bytes) engine.Allocation {
		return engine.Allocation{Grants: []engine.Grant{{Device: id, Memory: m}}}
	}
	s := box(t, `
		host 4 8
		gpu 0 40
		gpu 1 40
		gpu 2 40 away
		held 9 1=30`)
	for _, c := range []struct {
		name string
		a    engine.Allocation
		want bool
	}{
		{"free card", whole("GPU-0"), true},
		{"same card twice", whole("GPU-0", "GPU-0"), false},
		{"broken card whole", whole("GPU-1"), false},
		{"share in the gap", share("GPU-1", 10*engine.GiB), true},
		{"share too large", share("GPU-1", 11*engine.GiB), false},
		{"card that went away", whole("GPU-2"), false},
		{"card that is not there", whole("GPU-7"), false},
		{"host in bounds", engine.Allocation{CPUs: 4, Memory: 8 * engine.GiB}, true},
		{"too many cores", engine.Allocation{CPUs: 4.001}, false},
		{"too much memory", engine.Allocation{Memory: 8*engine.GiB + 1}, false},
	} {
		if got := StillFits(s, Pending{}, c.a, DefaultPolicy(), epoch); got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}
