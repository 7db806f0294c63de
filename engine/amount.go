package engine

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is an amount of memory in bytes.
type Bytes int64

// Binary units.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
	TiB Bytes = 1 << 40
)

var byteUnits = map[string]Bytes{
	"": 1, "b": 1,
	"k": KiB, "kib": KiB, "kb": 1000,
	"m": MiB, "mib": MiB, "mb": 1000 * 1000,
	"g": GiB, "gib": GiB, "gb": 1000 * 1000 * 1000,
	"t": TiB, "tib": TiB, "tb": 1000 * 1000 * 1000 * 1000,
}

// ParseBytes reads an amount such as "12GiB", "512M" or "1.5g". A lone K, M, G or T is binary, as in Slurm and Podman;
// KB, MB, GB are decimal.
func ParseBytes(s string) (Bytes, error) {
	bad := func(why string) (Bytes, error) {
		return 0, fmt.Errorf("memory %q: %s; write a number and a unit, for example 12GiB, 512MiB or 40G", s, why)
	}
	t := strings.TrimSpace(s)
	i := 0
	for i < len(t) && (t[i] >= '0' && t[i] <= '9' || t[i] == '.') {
		i++
	}
	if i == 0 {
		return bad("no number")
	}
	n, err := strconv.ParseFloat(t[:i], 64)
	if err != nil {
		return bad("not a number")
	}
	unit, ok := byteUnits[strings.ToLower(strings.TrimSpace(t[i:]))]
	if !ok {
		return bad(fmt.Sprintf("unknown unit %q", t[i:]))
	}
	v := n * float64(unit)
	if v >= math.MaxInt64 {
		return bad("too large")
	}
	if v <= 0 {
		return bad("must be more than zero")
	}
	return Bytes(v), nil
}

// String is the amount with a binary unit and at most one decimal: "12GiB", "1.5GiB", "300MiB".
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{TiB, "TiB"}, {GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size {
			s := strconv.FormatFloat(float64(b)/float64(u.size), 'f', 1, 64)
			return strings.TrimSuffix(s, ".0") + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// Fraction is a share of one device's memory, in (0, 1].
type Fraction float64

// ParseFraction reads a share such as "0.25" or "25%".
func ParseFraction(s string) (Fraction, error) {
	t := strings.TrimSpace(s)
	scale := 1.0
	if strings.HasSuffix(t, "%") {
		t, scale = strings.TrimSuffix(t, "%"), 100
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil {
		return 0, fmt.Errorf("fraction %q: want a number above 0 and at most 1, for example 0.25 or 25%%", s)
	}
	f /= scale
	if err := Fraction(f).Validate(); err != nil {
		return 0, err
	}
	return Fraction(f), nil
}

// Validate reports a fraction outside (0, 1], NaN included.
func (f Fraction) Validate() error {
	if math.IsNaN(float64(f)) || f <= 0 || f > 1 {
		return fmt.Errorf("fraction %v: must be above 0 and at most 1, for example 0.25 for a quarter of one GPU", float64(f))
	}
	return nil
}

// Of is this share of an amount of memory, rounded down to whole MiB.
func (f Fraction) Of(total Bytes) Bytes {
	return Bytes(float64(f)*float64(total)) / MiB * MiB
}

// CPUs is an amount of processor time in cores.
type CPUs float64

// MaxTimeLimit is the longest time limit anyone may ask for.
const MaxTimeLimit = 366 * 24 * time.Hour

// ParseDuration reads a length of time: Go's "90m" and "1h30m", days as "2d" or "1d12h", Slurm's "HH:MM:SS", "MM:SS"
// and "D-HH:MM:SS".
func ParseDuration(s string) (time.Duration, error) {
	t := strings.TrimSpace(s)
	bad := fmt.Errorf("time %q: write it as 30m, 12h, 1d12h, 02:30:00 or 1-12:00:00", s)
	if t == "" {
		return 0, bad
	}
	if strings.Contains(t, ":") {
		return parseClock(t, bad)
	}
	var days time.Duration
	if d, rest, ok := strings.Cut(t, "d"); ok {
		n, err := strconv.ParseFloat(d, 64)
		if err != nil || math.IsNaN(n) || n < 0 || n > 1e6 {
			return 0, bad
		}
		days, t = time.Duration(n*24*float64(time.Hour)), rest
		if t == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(t)
	if err != nil {
		return 0, bad
	}
	return days + d, nil
}

func parseClock(t string, bad error) (time.Duration, error) {
	var total time.Duration
	if d, rest, ok := strings.Cut(t, "-"); ok {
		n, err := strconv.ParseUint(d, 10, 20)
		if err != nil {
			return 0, bad
		}
		total, t = time.Duration(n)*24*time.Hour, rest
	}
	parts := strings.Split(t, ":")
	if len(parts) > 3 {
		return 0, bad
	}
	var sec time.Duration
	for _, p := range parts {
		n, err := strconv.ParseUint(p, 10, 24)
		if err != nil {
			return 0, bad
		}
		sec = sec*60 + time.Duration(n)
	}
	return total + sec*time.Second, nil
}

// Soon is a moment to come, as people say it on the clock of now: a time today, else with its day.
func Soon(t, now time.Time) string {
	t = t.In(now.Location())
	switch {
	case t.Format(time.DateOnly) == now.Format(time.DateOnly):
		return t.Format("15:04")
	case t.Sub(now) < 6*24*time.Hour:
		return t.Format("Mon 15:04")
	}
	return t.Format("Jan 2")
}
