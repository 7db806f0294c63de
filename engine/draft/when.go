package draft

import (
	"fmt"
	"strings"
	"time"

	"gputop/engine"
)

// When reads a moment as people say it: "now", "+2h", "14:00", "tomorrow 14:00", "thu 14:00", "2026-12-03 14:00" or
// "2026-12-03" (its midnight). A time without a date is the next one after from; the clock is that of from's zone.
func When(text string, from time.Time) (time.Time, error) {
	bad := fmt.Errorf("time %q: write it as 14:00, tomorrow 14:00, thu 14:00, 2026-12-03 14:00, +2h or now", text)
	s := strings.ToLower(strings.Join(strings.Fields(text), " "))
	if s == "now" {
		return from, nil
	}
	if back, ok := strings.CutPrefix(s, "+"); ok {
		d, err := engine.ParseDuration(back)
		if err != nil {
			return time.Time{}, bad
		}
		return from.Add(d), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, s, from.Location()); err == nil {
		return t, nil
	}
	day, clock, two := strings.Cut(s, " ")
	if !two {
		day, clock = "", s
	}
	hm, err := time.Parse("15:04", clock)
	if err != nil {
		return time.Time{}, bad
	}
	// Built from the date, not by adding hours: a day may have 23 or 25.
	on := func(days int) time.Time {
		return time.Date(from.Year(), from.Month(), from.Day()+days, hm.Hour(), hm.Minute(), 0, 0, from.Location())
	}
	next := func(step, days int) time.Time {
		if t := on(days); t.After(from) {
			return t
		}
		return on(days + step)
	}
	switch day {
	case "":
		return next(1, 0), nil
	case "today":
		return on(0), nil
	case "tomorrow":
		return on(1), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, day, from.Location()); err == nil {
		return time.Date(t.Year(), t.Month(), t.Day(), hm.Hour(), hm.Minute(), 0, 0, from.Location()), nil
	}
	for w := time.Sunday; w <= time.Saturday; w++ {
		name := strings.ToLower(w.String())
		if len(day) >= 3 && strings.HasPrefix(name, day) {
			return next(7, (int(w)-int(from.Weekday())+7)%7), nil
		}
	}
	return time.Time{}, bad
}
