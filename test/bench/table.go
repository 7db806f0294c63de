package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// figure is one thing that was measured, in the order of the rounds.
type figure struct {
	name    string
	samples []time.Duration
}

// ratio compares two figures round by round. aim is the largest median that was hoped for; 0 is none.
type ratio struct {
	name        string
	over, under *figure
	aim         float64
}

// table collects figures and ratios in the order in which they were first named.
type table struct {
	figures []*figure
	ratios  []ratio
}

func (t *table) add(name string, d time.Duration) *figure {
	i := slices.IndexFunc(t.figures, func(f *figure) bool { return f.name == name })
	if i < 0 {
		i = len(t.figures)
		t.figures = append(t.figures, &figure{name: name})
	}
	t.figures[i].samples = append(t.figures[i].samples, d)
	return t.figures[i]
}

func (t *table) find(name string) *figure {
	for _, f := range t.figures {
		if f.name == name {
			return f
		}
	}
	return nil
}

// compare asks for a ratio of two figures; where one was not measured there is none.
func (t *table) compare(over, under string, aim float64) {
	if a, b := t.find(over), t.find(under); a != nil && b != nil {
		t.ratios = append(t.ratios, ratio{name: over + " / " + under, over: a, under: b, aim: aim})
	}
}

// values are the ratios of the rounds that both figures have.
func (r ratio) values() []float64 {
	n := min(len(r.over.samples), len(r.under.samples))
	v := make([]float64, n)
	for i := range v {
		v[i] = float64(r.over.samples[i]) / float64(r.under.samples[i])
	}
	return v
}

// spread is the smallest, the middle and the largest; of two middles their mean.
func spread[T time.Duration | float64](v []T) (lowest, median, highest T) {
	s := slices.Sorted(slices.Values(v))
	n := len(s)
	return s[0], (s[(n-1)/2] + s[n/2]) / 2, s[n-1]
}

func (t *table) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "\nn\tmin ms\tmedian ms\tmax ms\t  figure")
	for _, f := range t.figures {
		lo, mid, hi := spread(f.samples)
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t  %s\n", len(f.samples), ms(lo), ms(mid), ms(hi), f.name)
	}
	if len(t.ratios) > 0 {
		fmt.Fprintln(tw, "\nn\tmin\tmedian\tmax\t  ratio, round by round")
	}
	for _, r := range t.ratios {
		v := r.values()
		lo, mid, hi := spread(v)
		note := ""
		switch {
		case r.aim == 0:
		case mid <= r.aim:
			note = fmt.Sprintf("   (aim %.2f: met)", r.aim)
		default:
			note = fmt.Sprintf("   (aim %.2f: MISSED)", r.aim)
		}
		fmt.Fprintf(tw, "%d\t%.2f\t%.2f\t%.2f\t  %s%s\n", len(v), lo, mid, hi, r.name, note)
	}
	return tw.Flush()
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
