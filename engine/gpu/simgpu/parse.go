package simgpu

import (
	"fmt"
	"strconv"
	"strings"

	"gputop/engine"
)

// maxCards is the most cards one machine has here.
const maxCards = 8

// Config is a set of simulated cards, in PCI order.
type Config struct {
	Cards []Card
	// Events is the timetable of a scenario.
	Events []Event
}

// Card is one simulated card: its model and, in MIG mode, the profiles of its MIG devices.
type Card struct {
	Model string
	MIG   []string
	// ComputeMode is empty for the default, "exclusive" or "prohibited"; Unsupported are fields the card does not give.
	ComputeMode engine.ComputeMode
	Unsupported []string
}

// Parse reads what --simulate takes: "a100-40gb:4", lists such as "h100-80gb:2,t4:1", and MIG layouts such as
// "a100-40gb:1/mig=3g.20gb+2g.10gb+1g.5gb", applied to each card of their entry; or the path of a scenario, FILE.yaml.
func Parse(spec string) (Config, error) {
	if IsScenario(spec) {
		return readScenario(spec)
	}
	var c Config
	for entry := range strings.SplitSeq(spec, ",") {
		cards, err := parseEntry(strings.TrimSpace(entry))
		if err != nil {
			return Config{}, fmt.Errorf("simulated GPUs %q: %w", spec, err)
		}
		c.Cards = append(c.Cards, cards...)
	}
	if len(c.Cards) > maxCards {
		return Config{}, fmt.Errorf("simulated GPUs %q: %d cards; a machine has 1 to %d", spec, len(c.Cards), maxCards)
	}
	return c, nil
}

func parseEntry(entry string) ([]Card, error) {
	head, layout, hasLayout := strings.Cut(entry, "/")
	name, number, hasNumber := strings.Cut(head, ":")
	m, ok := models[strings.ToLower(name)]
	if !ok {
		what := fmt.Sprintf("no model %q", name)
		if name == "" {
			what = "no model named"
		}
		return nil, fmt.Errorf("%s; write MODEL or MODEL:COUNT with one of %s", what, strings.Join(modelNames(), ", "))
	}
	n := 1
	if hasNumber {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 1 || n > maxCards {
			return nil, fmt.Errorf("%q is no number of cards; write 1 to %d, for example %s:2", number, maxCards, name)
		}
	}
	card := Card{Model: strings.ToLower(name)}
	if hasLayout {
		list, ok := strings.CutPrefix(layout, "mig=")
		if !ok || list == "" {
			return nil, fmt.Errorf("%q after the slash; write for example a100-40gb:1/mig=3g.20gb+2g.10gb", layout)
		}
		card.MIG = strings.Split(list, "+")
		if _, err := m.place(card.MIG); err != nil {
			return nil, err
		}
	}
	cards := make([]Card, n)
	for i := range cards {
		cards[i] = card
	}
	return cards, nil
}
