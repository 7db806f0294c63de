package tui

import (
	"reflect"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

func TestCondition(t *testing.T) {
	at := time.Date(2026, 1, 2, 14, 2, 0, 0, time.Local)
	many, none := uint64(3), uint64(0)
	for name, c := range map[string]struct {
		health engine.Health
		d      engine.CardDetail
		want   []string
	}{
		"nothing said": {engine.HealthOK, engine.CardDetail{}, nil},
		"all is well": {engine.HealthOK, engine.CardDetail{Throttle: []engine.ThrottleReason{}, ComputeMode: engine.ComputeDefault,
			ECC: &engine.ECC{Enabled: true, Uncorrected: &none}}, nil},
		"slow": {engine.HealthOK, engine.CardDetail{Throttle: []engine.ThrottleReason{engine.ThrottlePowerCap, engine.ThrottleThermal}},
			[]string{"slowed by power-cap, thermal"}},
		"exclusive":  {engine.HealthOK, engine.CardDetail{ComputeMode: engine.ComputeExclusive}, []string{"compute mode exclusive: whole only, no shares"}},
		"prohibited": {engine.HealthOK, engine.CardDetail{ComputeMode: engine.ComputeProhibited}, []string{"compute mode prohibited: no job can use it"}},
		"a program's error": {engine.HealthOK, engine.CardDetail{XIDs: []engine.XID{{Code: 31, Time: at, Count: 1}}},
			[]string{"Xid 31 at 14:02, an error of a program"}},
		"an error that is the card's health": {engine.HealthFault, engine.CardDetail{XIDs: []engine.XID{{Code: 79, Time: at, Count: 1}}}, nil},
		"memory errors":                      {engine.HealthOK, engine.CardDetail{ECC: &engine.ECC{Enabled: true, Uncorrected: &many}}, []string{"3 uncorrected memory errors"}},
	} {
		if got := condition(&api.GPU{GPU: engine.GPU{Health: c.health, CardDetail: c.d}}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestAReservationToCome(t *testing.T) {
	s := tuitest.TwoCards()
	s.GPUs.GPUs[0].Reservations = []api.Reservation{
		{Reservation: engine.Reservation{From: tuitest.Time.Add(30 * time.Hour)}, Whose: "reserved for nobody yet"},
		{Reservation: engine.Reservation{From: tuitest.Time.Add(20 * time.Hour), To: tuitest.Time.Add(22 * time.Hour)}, Whose: "reserved for group course"},
	}
	r := newRig(t, s, 160, 40).connect()
	r.keys("<shift+tab><shift+tab>")
	want := "reserved for group course from " + tuitest.Time.Add(20*time.Hour).Format("Mon 15:04")
	r.has(want)
	r.hasNot("nobody yet")
}
