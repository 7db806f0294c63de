package tui

import (
	"fmt"
	"strings"

	"gputop/engine"
	"gputop/engine/api"
)

// condition is what is out of the ordinary with a card that works: what holds its clocks back, how it may be used, and
// errors that programs brought about.
func condition(g *api.GPU) (out []string) {
	if g.MemoryUnified {
		out = append(out, "unified memory: the host's")
	}
	if len(g.Throttle) > 0 {
		var reasons []string
		for _, r := range g.Throttle {
			reasons = append(reasons, string(r))
		}
		out = append(out, "slowed by "+strings.Join(reasons, ", "))
	}
	switch g.ComputeMode {
	case engine.ComputeExclusive:
		out = append(out, "compute mode exclusive: whole only, no shares")
	case engine.ComputeProhibited:
		out = append(out, "compute mode prohibited: no job can use it")
	}
	if n := len(g.XIDs); n > 0 && g.Health == engine.HealthOK {
		x := g.XIDs[n-1]
		out = append(out, fmt.Sprintf("Xid %d at %s, an error of a program", x.Code, x.Time.Local().Format("15:04")))
	}
	if g.ECC != nil && g.ECC.Uncorrected != nil && *g.ECC.Uncorrected > 0 {
		out = append(out, fmt.Sprintf("%d uncorrected memory errors", *g.ECC.Uncorrected))
	}
	return out
}
