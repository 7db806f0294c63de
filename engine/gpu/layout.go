package gpu

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

// renewGap is how long a session is kept at least: one that stays wrong is not opened again and again.
const renewGap = 10 * time.Second

// layout is what tells that a session shows the cards and MIG devices of yesterday. NVML finds them once, when it is
// started.
type layout struct {
	// outdated: a MIG device was listed that is not there, or the driver reported a change.
	outdated bool
	// drivers is which cards the kernel's driver had when the session was opened.
	drivers string
	renewed time.Time
}

// lister is a library that says by itself which cards there are: the simulated one.
type lister interface{ DriverCards() string }

// present names the cards that are in the machine now.
func (c *Collector) present() string {
	if l, ok := c.lib.(lister); ok {
		return l.DriverCards()
	}
	return driverCards(c.o.Proc)
}

// driverCards names the cards that the kernel's driver has, by their PCI addresses; empty where it does not say.
func driverCards(proc string) string {
	entries, err := os.ReadDir(filepath.Join(proc, "driver", "nvidia", "gpus"))
	if err != nil {
		return ""
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return strings.Join(out, " ")
}

// renewIfChanged ends a session when cards came or went.
func (c *Collector) renewIfChanged(now time.Time) {
	if c.session && c.present() != c.layout.drivers {
		c.renew(now)
	}
}

// renew ends the session, so that the next one finds what is there now; false when that was done a moment ago.
func (c *Collector) renew(now time.Time) bool {
	c.layout.outdated = false
	if since := now.Sub(c.layout.renewed); since < renewGap && since >= 0 {
		return false
	}
	c.layout.renewed = now
	c.Close()
	return true
}
