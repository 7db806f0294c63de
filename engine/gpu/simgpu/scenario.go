package simgpu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/goccy/go-yaml"

	"gputop/engine"
)

// maxScenario bounds a scenario's file, in bytes.
const maxScenario = 1 << 20

// beginFile says when the timetable began.
const beginFile = "begun"

// Event is an entry of the timetable: what is wrong, from when on and for how long.
type Event struct {
	// After is counted from Begin; For is how long, 0 for ever.
	After time.Duration
	For   time.Duration
	// Card is the card by number.
	Card        int
	Lost        bool
	Hang        bool
	Removed     bool // taken out; with After 0, put in when For is over
	XID         int
	Unsupported []string
	MIG         []string // another layout
	// Init is what the library answers to Init; SUCCESS for an event of a card.
	Init nvml.Return
}

// scenarioFile is the form of a scenario. See docs/simulate.md.
type scenarioFile struct {
	Cards []struct {
		Model       string             `yaml:"model"`
		Count       int                `yaml:"count"`
		MIG         []string           `yaml:"mig"`
		ComputeMode engine.ComputeMode `yaml:"compute_mode"`
		Unsupported []string           `yaml:"unsupported"`
	} `yaml:"cards"`
	Events []struct {
		After       string   `yaml:"after"`
		For         string   `yaml:"for"`
		Card        int      `yaml:"card"`
		Lost        bool     `yaml:"lost"`
		Hang        bool     `yaml:"hang"`
		Removed     bool     `yaml:"removed"`
		XID         int      `yaml:"xid"`
		Unsupported []string `yaml:"unsupported"`
		MIG         []string `yaml:"mig"`
		Driver      string   `yaml:"driver"`
	} `yaml:"events"`
}

// driverFaults are the words for a driver that does not start.
var driverFaults = map[string]nvml.Return{"version-mismatch": nvml.ERROR_LIB_RM_VERSION_MISMATCH, "not-loaded": nvml.ERROR_DRIVER_NOT_LOADED,
	"not-found": nvml.ERROR_LIBRARY_NOT_FOUND}

// IsScenario says whether a specification of simulated cards is the path of a scenario.
func IsScenario(spec string) bool {
	return strings.HasSuffix(spec, ".yaml") || strings.HasSuffix(spec, ".yml")
}

func readScenario(path string) (Config, error) {
	fi, err := os.Stat(path)
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() > maxScenario) {
		err = errors.New("no file of at most 1 MiB")
	}
	var b []byte
	if err == nil {
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return Config{}, fmt.Errorf("simulated GPUs %s: %w", path, err)
	}
	c, err := parseScenario(b)
	if err != nil {
		return Config{}, fmt.Errorf("simulated GPUs %s: %w", path, err)
	}
	return c, nil
}

func parseScenario(b []byte) (Config, error) {
	var f scenarioFile
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return Config{}, err
	}
	var c Config
	for i, k := range f.Cards {
		spec := k.Model + ":" + strconv.Itoa(max(k.Count, 1))
		if len(k.MIG) > 0 {
			spec += "/mig=" + strings.Join(k.MIG, "+")
		}
		cards, err := parseEntry(spec)
		if err != nil {
			return c, fmt.Errorf("cards, entry %d: %w", i+1, err)
		}
		switch k.ComputeMode {
		case "", engine.ComputeDefault, engine.ComputeExclusive, engine.ComputeProhibited:
		default:
			return c, fmt.Errorf("cards, entry %d: no compute mode %q; it is default, exclusive or prohibited", i+1, k.ComputeMode)
		}
		for j := range cards {
			cards[j].ComputeMode, cards[j].Unsupported = k.ComputeMode, k.Unsupported
		}
		c.Cards = append(c.Cards, cards...)
	}
	if n := len(c.Cards); n == 0 || n > maxCards {
		return c, fmt.Errorf("%d cards; a machine has 1 to %d", n, maxCards)
	}
	for i, k := range f.Events {
		e := Event{Card: k.Card, Lost: k.Lost, Hang: k.Hang, Removed: k.Removed, XID: k.XID, Unsupported: k.Unsupported, MIG: k.MIG}
		var err, err2, err3 error
		e.After, err = duration(k.After)
		e.For, err2 = duration(k.For)
		if k.Driver != "" {
			var ok bool
			if e.Init, ok = driverFaults[k.Driver]; !ok {
				err3 = fmt.Errorf("no driver fault %q; it is version-mismatch, not-loaded or not-found", k.Driver)
			}
		}
		if e.Card < 0 || e.Card >= len(c.Cards) {
			err3 = fmt.Errorf("no card %d; they are 0 to %d", e.Card, len(c.Cards)-1)
		} else if _, perr := models[c.Cards[e.Card].Model].place(e.MIG); perr != nil {
			err3 = perr
		}
		if err := errors.Join(err, err2, err3); err != nil {
			return c, fmt.Errorf("events, entry %d: %w", i+1, err)
		}
		c.Events = append(c.Events, e)
	}
	return c, nil
}

func duration(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no time; write for example 30s or 5m", s)
	}
	return d, nil
}

// layouts are those a card has in the course of the scenario, its own first.
func (c Config) layouts(card int) [][]string {
	out := [][]string{c.Cards[card].MIG}
	for _, e := range c.Events {
		if e.Card == card && len(e.MIG) > 0 && !slices.ContainsFunc(out, func(l []string) bool { return slices.Equal(l, e.MIG) }) {
			out = append(out, e.MIG)
		}
	}
	return out
}

// Begin starts the timetable. Processes that open the cards later go by the same, so that one which hangs and is
// replaced does not begin again.
func Begin(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("prepare simulated GPUs: %w", err)
	}
	path := filepath.Join(dir, beginFile)
	if err := os.WriteFile(path+".new", []byte(strconv.FormatInt(now.UnixMilli(), 10)), 0o644); err != nil {
		return fmt.Errorf("prepare simulated GPUs: %w", err)
	}
	return os.Rename(path+".new", path)
}

// begun is when the timetable began; now where nobody said.
func begun(dir string, now time.Time) time.Time {
	b, err := os.ReadFile(filepath.Join(dir, beginFile))
	if err != nil {
		return now
	}
	ms, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		return now
	}
	return time.UnixMilli(ms)
}

// events are the entries of the timetable in force for a card, and the errors reported so far.
func (l *library) events(card int) (out []Event, xids []int) {
	for _, e := range l.timetable {
		if e.Init != nvml.SUCCESS || e.Card != card {
			continue
		}
		if l.inForce(e) {
			out = append(out, e)
		}
		if e.XID != 0 && l.now().Sub(l.begun) >= e.After {
			xids = append(xids, e.XID)
		}
	}
	return out, xids
}

func (l *library) inForce(e Event) bool {
	t := l.now().Sub(l.begun)
	return t >= e.After && (e.For == 0 || t < e.After+e.For)
}

// refusal is what Init answers.
func (l *library) refusal() nvml.Return {
	if r := readFaults(l.dir).InitResult; r != nvml.SUCCESS {
		return r
	}
	for _, e := range l.timetable {
		if e.Init != nvml.SUCCESS && l.inForce(e) {
			return e.Init
		}
	}
	return nvml.SUCCESS
}

// DriverCards names the cards that are in the machine now, whatever a session knows.
func (l *library) DriverCards() string {
	var out []string
	for _, c := range l.cards {
		if !c.now().Removed {
			out = append(out, c.busID())
		}
	}
	return strings.Join(out, " ")
}
