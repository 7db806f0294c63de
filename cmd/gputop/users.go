package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

func (c *cli) usersCommand() *cobra.Command {
	var me bool
	cmd := &cobra.Command{
		Use:   "users",
		Short: "What each person holds of the machine, and may",
		Long: "What each person holds of the machine, and may: everybody with a job that waits or runs, and everybody with a rule of their\n" +
			"own. The rules are in the daemon's configuration. With --me, all that holds for you, and which rule says so.",
		Example: "  gputop users\n  gputop users --me",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) error {
				u, err := client.Users(ctx)
				if err != nil {
					return err
				}
				if me {
					u.Users = slices.DeleteFunc(u.Users, func(r api.UserTerms) bool { return !r.Me })
				}
				return c.printUsers(u, me)
			})
		},
	}
	cmd.Flags().BoolVar(&me, "me", false, "only yourself, in full")
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) printUsers(u api.Users, me bool) error {
	if c.json {
		return c.printJSON(struct {
			Version int `json:"version"`
			api.Users
		}{1, u})
	}
	if me {
		text := ""
		for _, r := range u.Users {
			text += termsText(r, u.Groups)
		}
		return c.write(text)
	}
	t := newTable("USER", "RUNNING", "GPUS", "CPUS", "MEMORY", "WAITING", "USED", "CLASSES", "LONGEST")
	for i := 1; i <= 6; i++ {
		t.right[i] = true
	}
	t.most[0] = 20
	row := func(name string, h api.Held, q engine.Quota, more ...string) {
		t.add(append([]string{name, of(strconv.Itoa(h.Jobs), q.Jobs), of(tidy(h.GPUs), q.GPUs), of(tidy(float64(h.CPUs)), q.CPUs),
			of(h.Memory.String(), q.Memory)}, more...)...)
	}
	for _, r := range u.Users {
		longest := "-"
		if r.MaxTimeLimit > 0 {
			longest = r.MaxTimeLimit.String()
		}
		row(r.Name, r.Held, r.Quota, of(strconv.Itoa(r.Pending), r.MaxPending), usedWord(r), classesText(r.Classes), longest)
	}
	for _, g := range u.Groups {
		note := ""
		if g.Unknown {
			note = "this machine does not know the group"
		}
		row("group "+g.Name, g.Held, g.Quota, "", "", note, "")
	}
	return c.write(t.String())
}

// usedWord is what somebody has used of late, in GPU hours, with their weight where that is not everybody's.
func usedWord(r api.UserTerms) string {
	s := tidy(r.Usage/3600) + "h"
	if r.Weight != 1 {
		s += " x" + tidy(r.Weight)
	}
	return s
}

// of is an amount, and after a slash the most that is allowed.
func of[T any](held string, most *T) string {
	if most == nil {
		return held
	}
	return fmt.Sprintf("%s/%v", held, *most)
}

// tidy is a number with at most two decimals.
func tidy(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'g', -1, 64) }

func classesText(list []engine.Class) string {
	var words []string
	for _, c := range engine.Classes {
		if slices.Contains(list, c) {
			words = append(words, c.String())
		}
	}
	return strings.Join(words, " ")
}

// termsText is all that holds for a person.
func termsText(r api.UserTerms, groups []api.GroupTerms) string {
	l := &lines{}
	l.add("User", r.Name)
	l.add("Holds", fmt.Sprintf("%s, %s, %s, %s of memory; %s waiting", engine.Count(r.Held.Jobs, "job"), tidy(r.Held.GPUs)+" GPUs",
		tidy(float64(r.Held.CPUs))+" CPUs", r.Held.Memory, engine.Count(r.Pending, "job")))
	l.add("Fair share", fmt.Sprintf("%s GPU hours used of late, weight %s; who used less by weight goes first inside a class", tidy(r.Usage/3600), tidy(r.Weight)))
	if r.Budget != nil {
		l.add("Budget", fmt.Sprintf("%s used of %s", tidy(r.InBudget/3600), r.Budget))
	}
	quotaText := r.Quota.String()
	if quotaText == "" {
		quotaText = "none"
	}
	l.add("Quota", quotaText)
	for _, name := range r.Groups {
		i := slices.IndexFunc(groups, func(g api.GroupTerms) bool { return g.Name == name })
		if i >= 0 {
			l.add("Together", fmt.Sprintf("group %s may hold %s, and holds %s GPUs in %s", name, groups[i].Quota, tidy(groups[i].Held.GPUs), engine.Count(groups[i].Held.Jobs, "job")))
		}
	}
	if r.MaxPending != nil {
		l.add("May wait", engine.Count(*r.MaxPending, "job"))
	}
	l.add("Classes", fmt.Sprintf("%s; %s where a job names none", classesText(r.Classes), r.Class))
	limit := r.TimeLimit.String() + " where a job names none"
	if r.MaxTimeLimit > 0 {
		limit += ", at most " + r.MaxTimeLimit.String()
	}
	l.add("Time limit", limit)
	if r.Images != nil {
		l.add("Images", strings.Join(r.Images, ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(r.From)) {
		l.add("Rule", key+" of "+r.From[key])
	}
	return l.b.String()
}
