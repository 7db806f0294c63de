package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"gputop/cmd/gputop/internal/connect"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/termsafe"
	"gputop/tui"
)

func (c *cli) topCommand() *cobra.Command {
	var once bool
	cmd := &cobra.Command{
		Use:   "top",
		Short: "GPUs, queue and running jobs, live",
		Long: "GPUs, queue and running jobs, live. Where no daemon runs, the GPUs alone: no daemon is started, Podman is not needed, and\n" +
			"nothing can be changed.",
		Example: "  gputop top\n  gputop top --once\n  gputop top --once --json | jq '.gpus.gpus[].memory_used_bytes'",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, once := cmd.Context(), once || c.json || !terminals()
			err := c.reachable(ctx)
			if err == nil || c.socket != "" || os.Getenv("GPUTOP_SOCKET") != "" {
				return c.top(ctx, once)
			}
			return c.monitorOnly(ctx, once, err)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "print one snapshot and end")
	c.jsonFlag(cmd)
	return cmd
}

// reachable says why there is no daemon that answers; it starts none.
func (c *cli) reachable(ctx context.Context) error {
	client, err := connect.Open(ctx, connect.Options{Socket: c.socket, NoStart: true})
	if err == nil {
		client.Close()
	}
	return err
}

func (c *cli) top(ctx context.Context, once bool) error {
	if once {
		return c.ask(ctx, c.snapshot)
	}
	client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return tui.Run(ctx, tui.Options{Client: client, Version: version, Dir: callerHere().Workdir, Draft: func(f draft.Fields) (engine.Spec, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTime)
		defer cancel()
		info, err := client.Info(ctx)
		if err != nil {
			return engine.Spec{}, err
		}
		return draft.Build(f, draft.Defaults(info.DefaultsFor(f.Profile)), callerHere())
	}})
}

// snapshot prints the cards and the jobs once.
func (c *cli) snapshot(ctx context.Context, client *api.Client) error {
	info, err := client.Info(ctx)
	if err != nil {
		return err
	}
	gpus, err := client.GPUs(ctx)
	if err != nil {
		return err
	}
	jobs, err := client.List(ctx, false, everything)
	if err != nil {
		return err
	}
	return c.printSnapshot(info, gpus, jobs)
}

func (c *cli) printSnapshot(info api.Info, gpus api.GPUs, jobs []api.Job) error {
	if c.json {
		return c.printJSON(struct {
			Version int       `json:"version"`
			Info    api.Info  `json:"info"`
			GPUs    api.GPUs  `json:"gpus"`
			Jobs    []api.Job `json:"jobs"`
		}{1, info, gpus, jobs})
	}
	var b strings.Builder
	head := fmt.Sprintf("%s (%s)", info.Host, info.Mode)
	if gpus.Driver != "" {
		head += ", driver " + gpus.Driver
	}
	if gpus.Simulated {
		head += ", SIMULATED GPUs"
	}
	if gpus.Stale {
		head += ", the numbers are old: the sampler does not answer"
	}
	fmt.Fprintf(&b, "%s\n\n", termsafe.Line(head))
	switch {
	case gpus.Error != "":
		fmt.Fprintf(&b, "No GPUs: %s\n", termsafe.Text(gpus.Error))
	case len(gpus.GPUs) == 0:
		b.WriteString("No GPUs.\n")
	default:
		b.WriteString(gpuTable(gpus.GPUs, c.now()).String())
		if text := smSource(gpus.GPUs); text != "" {
			fmt.Fprintf(&b, "\n%s\n", text)
		}
	}
	if info.Mode != "monitor" {
		fmt.Fprintf(&b, "\n%s\n", counts(jobs))
	}
	if len(jobs) > 0 {
		fmt.Fprintf(&b, "\n%s", jobTable(jobs, c.now()))
	}
	return c.write(b.String())
}

func counts(jobs []api.Job) string {
	var active, queued, over int
	for _, j := range jobs {
		switch {
		case j.State.Active():
			active++
		case j.State.Queued():
			queued++
		default:
			over++
		}
	}
	return fmt.Sprintf("%d running, %d queued, %d ended", active, queued, over)
}

func gpuTable(gpus []api.GPU, now time.Time) *table {
	t := newTable("GPU", "MODEL", "MEMORY", "SM", "TEMP", "POWER", "ON IT")
	t.right[2], t.right[3], t.right[4], t.right[5] = true, true, true, true
	t.most[1] = 32
	for i := range gpus {
		g := &gpus[i]
		if g.Health != engine.HealthOK && g.Health != "" {
			t.add(fmt.Sprint(g.Index), g.Model, "-", "-", "-", "-", strings.TrimSuffix(string(g.Health)+": "+g.HealthDetail, ": "))
			continue
		}
		on := whoIsOn(g, g.UUID)
		if r := g.HeldBack(now); r != nil {
			on = strings.TrimPrefix(on+"; "+r.Whose, "; ")
		}
		if g.MemoryUnified {
			on = strings.TrimPrefix(on+"; unified memory, the host's", "; ")
		}
		if g.ComputeMode == engine.ComputeExclusive || g.ComputeMode == engine.ComputeProhibited {
			on = strings.TrimPrefix(on+"; compute mode "+string(g.ComputeMode), "; ")
		}
		t.add(fmt.Sprint(g.Index), g.Model, memory(g.MemoryUsed, g.MemoryTotal), share(g.SM), optional(g.Temperature, "%d°C"), power(g), on)
		for _, m := range g.MIG {
			on := whoIsOn(g, m.UUID)
			if m.InstanceShared {
				on = strings.TrimPrefix(on+"; numbers of the instance, which others share", "; ")
			}
			t.add("", "  MIG "+m.Profile, memory(m.MemoryUsed, m.MemoryTotal), share(m.SM), "", "", on)
		}
	}
	return t
}

// smSource says of which cards SM is no more than the share of time in which any kernel ran.
func smSource(gpus []api.GPU) string {
	var which []string
	measured := false
	for i := range gpus {
		g := &gpus[i]
		switch {
		case g.SM != nil && g.SMSource == engine.SourceUtilization:
			which = append(which, fmt.Sprint(g.Index))
		case g.SM != nil, g.MIGMode:
			measured = true
		}
	}
	if len(which) == 0 {
		return ""
	}
	of := ""
	if measured {
		of = " of GPU " + strings.Join(which, ", ")
	}
	return "SM" + of + " is the share of time in which any kernel ran."
}

func optional[T any](v *T, format string) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf(format, *v)
}

func share(sm *float64) string {
	if sm == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", *sm*100)
}

func memory(used, total *engine.Bytes) string {
	return optional(used, "%v") + " / " + optional(total, "%v")
}

func power(g *api.GPU) string {
	if g.PowerLimit == nil {
		return optional(g.Power, "%.0fW")
	}
	return optional(g.Power, "%.0f") + fmt.Sprintf("/%.0fW", *g.PowerLimit)
}

// whoIsOn names the jobs and strangers on a device, each once, in the daemon's order.
func whoIsOn(g *api.GPU, device engine.DeviceID) string {
	var out []string
	seen := map[string]bool{}
	for _, p := range g.Processes {
		if p.Device != device {
			continue
		}
		who := "job " + p.Job.String()
		if p.Job == 0 {
			who = fmt.Sprintf("outside the queue: %s pid %d", p.User, p.PID)
		} else if p.User != "" {
			who += " " + p.User
		}
		if !seen[who] {
			seen[who] = true
			out = append(out, who)
		}
	}
	if len(out) == 0 && device == g.UUID {
		for _, id := range g.Jobs {
			out = append(out, "job "+id.String())
		}
	}
	return strings.Join(out, ", ")
}
