package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

// reportKeys are what a report can be summed by.
var reportKeys = map[string]func(api.ReportRow) string{
	"user":  func(r api.ReportRow) string { return r.User },
	"class": func(r api.ReportRow) string { return r.Class.String() },
	"day":   func(r api.ReportRow) string { return r.Day },
	"month": func(r api.ReportRow) string { return r.Day[:min(len(r.Day), len("2026-12"))] },
}

func (c *cli) reportCommand() *cobra.Command {
	var since, until, by string
	var asCSV bool
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Who used how much of the machine",
		Long: "GPU hours (a share of a card as its part), hours of promised GPU memory and CPU hours that jobs held, summed by user, class,\n" +
			"day or month. Days are of UTC; what is held now counts until now.",
		Example: "  gputop report --since 30d\n  gputop report --since 2026-11-01 --until 2026-11-30 --by day\n  gputop report --since 365d --by month,user --csv > use.csv",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var q api.ReportQuery
			var err error
			now := c.now().UTC()
			if q.Since, err = reportDay(since, now); err != nil {
				return usagef("--since: %v", err)
			}
			if q.Until, err = reportDay(until, now); err != nil {
				return usagef("--until: %v", err)
			}
			keys := strings.Split(by, ",")
			for i, k := range keys {
				if keys[i] = strings.TrimSpace(k); reportKeys[keys[i]] == nil {
					return usagef("--by %q: want user, class, day or month, or several with commas between", k)
				}
			}
			if asCSV && c.json {
				return usagef("--csv and --json exclude each other: give one")
			}
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				r, err := client.Report(ctx, q)
				if err != nil {
					return err
				}
				return c.printReport(r, keys, asCSV)
			})
		},
	}
	cmd.Flags().StringVar(&since, "since", "30d", "the first day: how far back, or a date")
	cmd.Flags().StringVar(&until, "until", "0d", "the last day")
	cmd.Flags().StringVar(&by, "by", "user", "sum by user, class, day or month, or several: month,user")
	cmd.Flags().BoolVar(&asCSV, "csv", false, "print CSV")
	c.jsonFlag(cmd)
	return cmd
}

// reportDay reads a day: a date, or how long ago.
func reportDay(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	back, err := engine.ParseDuration(s)
	if err != nil || back < 0 {
		return now, fmt.Errorf("%q: write a date such as 2026-12-01, or how long ago: 30d", s)
	}
	return now.Add(-back), nil
}

// reportSum is one line of a report.
type reportSum struct {
	keys     []string
	gpu      float64 // GPU hours
	memory   float64 // GiB hours of promised GPU memory
	cpu      float64 // core hours
	attempts int
}

func sumReport(rows []api.ReportRow, keys []string) []*reportSum {
	sums := map[string]*reportSum{}
	for _, r := range rows {
		var of []string
		for _, k := range keys {
			of = append(of, reportKeys[k](r))
		}
		s := sums[strings.Join(of, "\x00")]
		if s == nil {
			s = &reportSum{keys: of}
			sums[strings.Join(of, "\x00")] = s
		}
		s.gpu += r.GPUSeconds / 3600
		s.memory += r.GPUMemory / 3600 / float64(engine.GiB)
		s.cpu += r.CPUSeconds / 3600
		s.attempts += r.Attempts
	}
	var out []*reportSum
	for _, s := range sums {
		out = append(out, s)
	}
	// Time goes forward; of people and classes those who used most are first.
	slices.SortFunc(out, func(a, b *reportSum) int {
		for i, k := range keys {
			if d := cmp.Compare(a.keys[i], b.keys[i]); d != 0 && (k == "day" || k == "month") {
				return d
			}
		}
		return cmp.Or(cmp.Compare(b.gpu, a.gpu), cmp.Compare(b.cpu, a.cpu), slices.Compare(a.keys, b.keys))
	})
	return out
}

func (c *cli) printReport(r api.Report, keys []string, asCSV bool) error {
	if c.json {
		return c.printJSON(struct {
			Version int `json:"version"`
			api.Report
		}{1, r})
	}
	sums := sumReport(r.Rows, keys)
	if asCSV {
		var b strings.Builder
		w := csv.NewWriter(&b)
		lines := [][]string{append(slices.Clone(keys), "gpu_hours", "gpu_memory_gib_hours", "cpu_hours", "attempts")}
		for _, s := range sums {
			f := func(v float64) string { return strconv.FormatFloat(v, 'f', 4, 64) }
			lines = append(lines, append(slices.Clone(s.keys), f(s.gpu), f(s.memory), f(s.cpu), strconv.Itoa(s.attempts)))
		}
		if err := w.WriteAll(lines); err != nil {
			return err
		}
		return c.write(b.String())
	}
	if len(sums) == 0 {
		return c.write("Nothing was used in that time.\n")
	}
	var head []string
	for _, k := range keys {
		head = append(head, strings.ToUpper(k))
	}
	t := newTable(append(head, "GPU HOURS", "GPU GIB HOURS", "CPU HOURS", "ATTEMPTS")...)
	for i := range 4 {
		t.right[len(keys)+i] = true
	}
	for _, s := range sums {
		t.add(append(slices.Clone(s.keys), tidy(s.gpu), tidy(s.memory), tidy(s.cpu), strconv.Itoa(s.attempts))...)
	}
	return c.write(t.String())
}
