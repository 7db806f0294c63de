package engine

import (
	"slices"
	"time"
)

// CurvePoints is how many points a curve has at most: when there are more, two become one that is twice as long.
const CurvePoints = 120

// curveStep is how long a point is in the beginning.
const curveStep = time.Second

// Unknown stands in a curve for what was not seen.
const Unknown = -1

// Curve is what an attempt used over its time, in bounded room however long it runs.
type Curve struct {
	// Start is when the first point begins, and Step how long each one is.
	Start time.Time     `json:"start"`
	Step  time.Duration `json:"step_ns"`
	// Memory is the most GPU memory, in bytes, that its processes held in the time of each point, on all its cards together;
	// SM the mean share of its cards' SMs at work, in thousandths. Unknown is what was not seen.
	Memory []Bytes `json:"memory_bytes"`
	SM     []int   `json:"sm_milli"`
	// Seen is how many samples the last point is made of.
	Seen int `json:"seen"`
}

// Add takes in what was seen at a moment; sm is nil when it is not known. What comes before the last point is left out: the
// clock was set back.
func (c *Curve) Add(at time.Time, memory Bytes, sm *float64) {
	if c.Step == 0 {
		c.Start, c.Step = at, curveStep
	}
	point := int(at.Sub(c.Start) / c.Step)
	for point >= CurvePoints {
		c.halve()
		point = int(at.Sub(c.Start) / c.Step)
	}
	last := len(c.Memory) - 1
	if at.Before(c.Start) || point < last {
		return
	}
	for ; last < point; last++ {
		c.Memory, c.SM, c.Seen = append(c.Memory, Unknown), append(c.SM, Unknown), 0
	}
	c.Memory[last] = max(c.Memory[last], memory)
	if sm != nil {
		milli := int(min(max(*sm, 0), 1) * 1000)
		if c.SM[last] == Unknown {
			c.SM[last], c.Seen = milli, 1
		} else {
			c.SM[last] = (c.SM[last]*c.Seen + milli) / (c.Seen + 1)
			c.Seen++
		}
	}
}

// halve makes one point of two.
func (c *Curve) halve() {
	n := (len(c.Memory) + 1) / 2
	memory, sm := make([]Bytes, n), make([]int, n)
	for i := range n {
		memory[i], sm[i] = c.Memory[2*i], c.SM[2*i]
		if k := 2*i + 1; k < len(c.Memory) {
			memory[i] = max(memory[i], c.Memory[k])
			switch {
			case sm[i] == Unknown:
				sm[i] = c.SM[k]
			case c.SM[k] != Unknown:
				sm[i] = (sm[i] + c.SM[k]) / 2
			}
		}
	}
	c.Memory, c.SM, c.Step, c.Seen = memory, sm, 2*c.Step, max(1, 2*c.Seen)
}

// Clone is a copy that does not change with the curve.
func (c *Curve) Clone() *Curve {
	o := *c
	o.Memory, o.SM = slices.Clone(c.Memory), slices.Clone(c.SM)
	return &o
}

// Peak is the most memory that was seen, and the mean share of SMs; nil when nothing was.
func (c *Curve) Peak() (memory *Bytes, sm *float64) {
	var sum, n int
	for i := range c.Memory {
		if v := c.Memory[i]; v != Unknown && (memory == nil || v > *memory) {
			memory = &v
		}
		if c.SM[i] != Unknown {
			sum += c.SM[i]
			n++
		}
	}
	if n > 0 {
		mean := float64(sum) / float64(n) / 1000
		sm = &mean
	}
	return memory, sm
}

// Thin is a row of numbers made to have at most n, each the largest of those that it stands for.
func Thin[N int | Bytes](row []N, n int) []N {
	if len(row) <= n || n <= 0 {
		return row
	}
	out := make([]N, n)
	for i := range out {
		out[i] = slices.Max(row[i*len(row)/n : max(i*len(row)/n+1, (i+1)*len(row)/n)])
	}
	return out
}

// Bars draws numbers with as many signs as there are, the lowest sign for 0 and the highest for most; a blank for Unknown.
func Bars[N int | Bytes](row []N, most N, signs []rune) string {
	out := make([]rune, len(row))
	for i, v := range row {
		switch {
		case v == Unknown:
			out[i] = ' '
		case most <= 0:
			out[i] = signs[0]
		default:
			out[i] = signs[min(len(signs)-1, int(float64(v)/float64(most)*float64(len(signs)-1)+0.5))]
		}
	}
	return string(out)
}

// BarSigns are for Bars where the terminal has them, and ASCIIBarSigns where it has not.
var (
	BarSigns      = []rune("▁▂▃▄▅▆▇█")
	ASCIIBarSigns = []rune("_.-:=+*#")
)
