package policyfile

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/scheduler"
)

func TestRead(t *testing.T) {
	urgent, _ := scheduler.NamedPolicy(scheduler.Urgent)
	changed, _ := scheduler.NamedPolicy(scheduler.Urgent)
	changed.AgeingStep[engine.Low] = 36 * time.Hour
	changed.By, changed.Of = engine.Critical, []engine.Class{engine.Low, engine.Medium}
	changed.Wait, changed.WaitFree, changed.Patience = 10*time.Minute, 0, time.Minute
	changed.Loss, changed.LossPerWait, changed.MinRun = 7200, 0.5, time.Minute
	changed.Most, changed.PerHour, changed.HalfLife = 0, 5, 24*time.Hour
	changed.ShareAhead, changed.Reservations, changed.BackfillDepth = 0, 2, 10
	for text, want := range map[string]scheduler.Policy{
		"":               scheduler.DefaultPolicy(),
		"policy: urgent": urgent,
		`policy: urgent
ageing: {low: 1d12h}
preempt_by: critical
preemptible: [low, medium]
preempt_wait: 10m
preempt_wait_free: 0s
preempt_patience: 1m
preempt_loss: 2h
preempt_loss_per_wait: 0.5
preempt_min_run: 1m
preempt_most: 0
preempt_per_hour: 5
share_half_life: 24h
share_ahead: 0s
reservations: 2
backfill_depth: 10`: changed,
	} {
		got, _, err := Read(strings.NewReader(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s\n%+v\n%+v, %v", text, got, want, err)
		}
	}
	for text, want := range map[string]string{
		"policy: fast":                           `policy: "fast" is none: want one of balanced, urgent, throughput`,
		"policy: urgent\npreempt_waits: 3m":      "[2:1] unknown field",
		"ageing: {criticl: 1h}":                  "ageing: class",
		"ageing: {critical: 1h}":                 "critical does not age",
		"ageing: {low: soon}":                    "ageing: time",
		"preempt_wait: -3m":                      "preempt_wait: time \"-3m\": want 0 or more",
		"preempt_loss: much":                     "preempt_loss: time",
		"preempt_by: medium":                     "preempt_by: \"medium\": want high, critical or none",
		"preemptible: [everybody]":               "preemptible: class",
		"preemptible: [low, high]":               "preemptible: high does not give way: want low or medium",
		"preempt_loss_per_wait: .nan":            "preempt_loss_per_wait: want 0 or more",
		"preempt_most: -1":                       "preempt_most: want 0 or more",
		"reservations: 0":                        "reservations: want 1 or more",
		"preempt_per_hour: 99999999999999999999": "preempt_per_hour",
	} {
		if _, _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
