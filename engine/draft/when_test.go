package draft

import (
	"testing"
	"time"
	_ "time/tzdata" // the machine may have none
)

func TestWhen(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	from := time.Date(2026, 10, 22, 13, 30, 0, 0, zone) // a Thursday; clocks go back on Sunday
	for text, want := range map[string]string{
		"now":              "2026-10-22T13:30:00+02:00",
		"+90m":             "2026-10-22T15:00:00+02:00",
		"14:00":            "2026-10-22T14:00:00+02:00",
		"13:30":            "2026-10-23T13:30:00+02:00",
		"9:05":             "2026-10-23T09:05:00+02:00",
		"today 9:00":       "2026-10-22T09:00:00+02:00",
		"Tomorrow  14:00":  "2026-10-23T14:00:00+02:00",
		"thu 14:00":        "2026-10-22T14:00:00+02:00",
		"thursday 13:00":   "2026-10-29T13:00:00+01:00",
		"Mon 8:00":         "2026-10-26T08:00:00+01:00",
		"sunday 14:00":     "2026-10-25T14:00:00+01:00",
		"2026-12-03":       "2026-12-03T00:00:00+01:00",
		"2026-12-03 14:00": "2026-12-03T14:00:00+01:00",
		"soon":             "", "": "", "th 14:00": "", "25:00": "", "thu": "", "+x": "", "thux 14:00": "",
	} {
		got, err := When(text, from)
		if want == "" {
			if err == nil {
				t.Errorf("%q: %s, want an error", text, got)
			}
			continue
		}
		if err != nil || got.Format(time.RFC3339) != want {
			t.Errorf("%q: %s, %v, want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
}
