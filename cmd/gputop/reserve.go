package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/termsafe"
)

// timeSpan is a time as it is typed.
type timeSpan struct{ at, until, length string }

func (s *timeSpan) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.at, "at", "now", "when it begins: 14:00, 'thu 14:00', 'tomorrow 9:00', '2026-12-03 14:00', +2h")
	cmd.Flags().StringVar(&s.until, "until", "", "when it ends, in the same way; a time without a date is the next one after the beginning")
	cmd.Flags().StringVar(&s.length, "for", "", "how long it lasts: 2h, 3d")
}

// read is from when to when; an end that was not given is zero, and so is "now".
func (s *timeSpan) read(now time.Time) (from, to time.Time, err error) {
	begin, err := draft.When(s.at, now)
	if err != nil {
		return from, to, usagef("--at: %v", err)
	}
	switch {
	case s.until != "" && s.length != "":
		return from, to, usagef("--until and --for exclude each other: give one")
	case s.until != "":
		if to, err = draft.When(s.until, begin); err != nil {
			return from, to, usagef("--until: %v", err)
		}
	case s.length != "":
		d, err := engine.ParseDuration(s.length)
		if err != nil {
			return from, to, usagef("--for: %v", err)
		}
		to = begin.Add(d)
	}
	if s.at == "now" {
		return time.Time{}, to, nil
	}
	return begin, to, nil
}

func (c *cli) reserveCommand() *cobra.Command {
	var s timeSpan
	var r api.ReserveRequest
	var gpus []string
	cmd := &cobra.Command{
		Use:   "reserve",
		Short: "Promise GPUs to people for a time; without flags, list what is promised",
		Long: "Promise GPUs to people for a time. No job of anybody else starts that could run into it, and one that still runs when it\n" +
			"begins is put back in the queue. With a number of GPUs those are taken that are in nobody's way. Only admins may; the list,\n" +
			"without flags, is for everybody.",
		Example: "  gputop reserve\n  gputop reserve --gpus 2 --at 'thu 14:00' --until 16:00 --group course --reason 'exercise 3'\n  gputop reserve --gpu 0 --gpu 1 --for 3h --user ada",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !anyFlag(cmd, "gpus", "gpu", "at", "until", "for", "user", "group", "reason") {
				return c.ask(cmd.Context(), c.listReserved)
			}
			return c.reserve(cmd, r, s, gpus, false)
		},
	}
	s.flags(cmd)
	cmd.Flags().IntVar(&r.GPUs, "gpus", 0, "how many GPUs")
	cmd.Flags().StringSliceVar(&gpus, "gpu", nil, "a certain GPU, by its number or UUID (repeatable)")
	cmd.Flags().StringSliceVar(&r.Users, "user", nil, "for this user (repeatable)")
	cmd.Flags().StringSliceVar(&r.Groups, "group", nil, "for the members of this Unix group (repeatable)")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "what it is for; everybody reads it")
	c.jsonFlag(cmd)
	return cmd
}

func anyFlag(cmd *cobra.Command, names ...string) bool {
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			return true
		}
	}
	return false
}

func (c *cli) drainCommand() *cobra.Command {
	var s timeSpan
	r := api.ReserveRequest{Drain: true}
	var all bool
	cmd := &cobra.Command{
		Use:   "drain [GPU...]",
		Short: "Give GPUs to no new job, for maintenance",
		Long: "Give GPUs to no new job, until they are undrained or the time is over. Running jobs go on, unless --preempt puts them back\n" +
			"in the queue. With --at it begins later: no job starts that could run into it. Only admins may.",
		Example: "  gputop drain 2 --reason 'new fan'\n  gputop drain --all --at 'sat 8:00' --for 6h --preempt --reason 'driver upgrade'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("which GPUs? name them, or --all\nUsage: %s", cmd.UseLine())
			}
			return c.reserve(cmd, r, s, args, all)
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "all GPUs of the machine")
	cmd.Flags().BoolVar(&r.Preempt, "preempt", false, "put jobs that still run when it begins back in the queue")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "why; everybody reads it")
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) reserve(cmd *cobra.Command, r api.ReserveRequest, s timeSpan, gpus []string, all bool) error {
	var err error
	if r.From, r.To, err = s.read(c.now()); err != nil {
		return err
	}
	return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
		if r.Devices, err = devicesOf(ctx, client, gpus, all); err != nil {
			return err
		}
		out, err := client.Reserve(ctx, r)
		if err != nil {
			return err
		}
		c.note(out.Warnings...)
		if c.json {
			return c.printJSON(struct {
				Version int `json:"version"`
				api.ReserveResponse
			}{1, out})
		}
		v := out.Reservation
		return c.write(fmt.Sprintf("%s: %s %s, from %s until %s.\n", v.ID, indicesText(v.Indices), termsafe.Line(v.Whose), moment(v.From), moment(v.To)))
	})
}

// devicesOf finds GPUs by number or UUID.
func devicesOf(ctx context.Context, client *api.Client, words []string, all bool) ([]engine.DeviceID, error) {
	if len(words) == 0 && !all {
		return nil, nil
	}
	seen, err := client.GPUs(ctx)
	if err != nil {
		return nil, err
	}
	var out []engine.DeviceID
	for _, g := range seen.GPUs {
		if all {
			out = append(out, g.UUID)
		}
	}
	for _, w := range words {
		found := false
		for _, g := range seen.GPUs {
			if strings.TrimPrefix(strings.ToLower(w), "gpu") == strconv.Itoa(g.Index) || w == string(g.UUID) {
				out, found = append(out, g.UUID), true
			}
		}
		if !found {
			return nil, usagef("GPU %q: this machine's are 0 to %d", w, len(seen.GPUs)-1)
		}
	}
	if len(out) == 0 {
		return nil, usagef("this machine has no GPU that can be seen")
	}
	return out, nil
}

func (c *cli) listReserved(ctx context.Context, client *api.Client) error {
	all, err := client.Reserved(ctx)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Version      int               `json:"version"`
			Reservations []api.Reservation `json:"reservations"`
		}{1, all})
	}
	if len(all) == 0 {
		return c.write("No GPU is reserved or drained.\n")
	}
	t := newTable("NO", "GPUS", "FROM", "UNTIL", "BY", "WHAT")
	t.right[0], t.most[4] = true, 16
	for _, v := range all {
		what := v.Whose
		if !v.Drain && v.Reason != "" {
			what += ": " + v.Reason
		}
		t.add(v.ID.String(), strings.TrimPrefix(strings.TrimPrefix(indicesText(v.Indices), "GPUs "), "GPU "), moment(v.From), moment(v.To), v.By.Name, what)
	}
	return c.write(t.String())
}

func indicesText(list []int) string {
	var words []string
	for _, i := range list {
		if i < 0 {
			words = append(words, "?")
			continue
		}
		words = append(words, strconv.Itoa(i))
	}
	if len(words) == 1 {
		return "GPU " + words[0]
	}
	return "GPUs " + strings.Join(words, ", ")
}

// moment is a time to the minute; an open end is a word.
func moment(t time.Time) string {
	if t.IsZero() {
		return "further notice"
	}
	return t.Local().Format("Mon 2006-01-02 15:04")
}

func (c *cli) unreserveCommand() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:     "unreserve NO...",
		Short:   "Take reservations or drains back, by their number",
		Example: "  gputop unreserve 3 --reason 'the course is called off'",
		Args:    usageArgs(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			var ids []engine.ReservationID
			for _, a := range args {
				n, err := strconv.ParseInt(a, 10, 64)
				if err != nil || n <= 0 {
					return usagef("reservation %q: want its number, as gputop reserve lists it", a)
				}
				ids = append(ids, engine.ReservationID(n))
			}
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				for _, id := range ids {
					v, err := client.Unreserve(ctx, id, note)
					if err != nil {
						return err
					}
					if err := c.write(fmt.Sprintf("%s: %s is not %s any more.\n", id, indicesText(v.Indices), termsafe.Line(v.Whose))); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&note, "reason", "", "a sentence for the audit trail")
	return cmd
}

func (c *cli) undrainCommand() *cobra.Command {
	var all bool
	var r api.UndrainRequest
	cmd := &cobra.Command{
		Use:     "undrain [GPU...]",
		Short:   "Give drained GPUs back to the queue",
		Example: "  gputop undrain 2\n  gputop undrain --all",
		RunE: func(cmd *cobra.Command, args []string) error {
			if all == (len(args) > 0) {
				return usagef("which GPUs? name them, or --all\nUsage: %s", cmd.UseLine())
			}
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) (err error) {
				if r.Devices, err = devicesOf(ctx, client, args, false); err != nil {
					return err
				}
				left, err := client.Undrain(ctx, r)
				if err != nil {
					return err
				}
				if len(left) == 0 {
					return c.write("No GPU is drained any more.\n")
				}
				return c.write(fmt.Sprintf("Done; %s drained still: see gputop reserve.\n", engine.Count(len(left), "other set")))
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "all that are drained")
	cmd.Flags().StringVar(&r.Reason, "reason", "", "a sentence for the audit trail")
	return cmd
}
