package main

import (
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	var tab table
	for i, d := range []time.Duration{4, 1, 3, 2} {
		tab.add("slow", d*time.Millisecond)
		if i < 3 {
			tab.add("fast", 2*time.Millisecond)
		}
	}
	tab.compare("slow", "fast", 2)
	tab.compare("slow", "fast", 1.4)
	tab.compare("slow", "not measured", 1)
	var out strings.Builder
	if err := tab.print(&out); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	want := []string{"",
		"n min ms median ms max ms figure",
		"4 1.00 2.50 4.00 slow",
		"3 2.00 2.00 2.00 fast",
		"",
		"n min median max ratio, round by round",
		"3 0.50 1.50 2.00 slow / fast (aim 2.00: met)",
		"3 0.50 1.50 2.00 slow / fast (aim 1.40: MISSED)",
	}
	if got := strings.Join(lines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("got:\n%s", out.String())
	}
}
