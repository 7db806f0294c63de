package main

import "gputop/engine/termsafe"

// table lines up columns. Cells are made safe for a terminal; the last column is neither filled nor cut.
type table struct {
	head  []string
	rows  [][]string
	right []bool
	// most is the widest a column may be, in cells; 0 is no bound.
	most []int
}

func newTable(head ...string) *table {
	return &table{head: head, right: make([]bool, len(head)), most: make([]int, len(head))}
}

func (t *table) add(cells ...string) {
	for i, c := range cells {
		if t.most[i] > 0 {
			cells[i] = termsafe.Truncate(c, t.most[i])
		} else {
			cells[i] = termsafe.Line(c)
		}
	}
	t.rows = append(t.rows, cells)
}

const spaces = "                                                                                "

func (t *table) String() string {
	widths := make([]int, len(t.head))
	all := append([][]string{t.head}, t.rows...)
	for _, row := range all {
		for i, c := range row[:len(row)-1] {
			widths[i] = max(widths[i], termsafe.Width(c))
		}
	}
	out := make([]byte, 0, len(all)*100)
	for _, row := range all {
		for i, c := range row[:len(row)-1] {
			fill := spaces[:min(len(spaces), widths[i]-termsafe.Width(c))]
			if t.right[i] {
				out = append(append(out, fill...), c...)
			} else {
				out = append(append(out, c...), fill...)
			}
			out = append(out, "  "...)
		}
		out = append(out, row[len(row)-1]...)
		for out[len(out)-1] == ' ' {
			out = out[:len(out)-1]
		}
		out = append(out, '\n')
	}
	return string(out)
}
