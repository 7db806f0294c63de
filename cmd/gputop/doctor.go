package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"gputop/engine/api"
	"gputop/engine/doctor"
	"gputop/engine/termsafe"
)

func (c *cli) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look for what keeps jobs from running, and say what mends it",
		Long: "Look at this machine as your jobs meet it: driver, CDI specs, device nodes, Podman, ids, limits, disks, the daemon and your\n" +
			"agent. Each finding is ok, a warning (jobs run, something is worse than it could be) or a problem, with the command\n" +
			"that mends it. Nothing is changed; like other commands it starts a personal daemon where none runs.\n" +
			"The exit code is 0 without a problem, else 1.",
		Example: "  gputop doctor\n  gputop doctor --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context()) },
	}
	c.jsonFlag(cmd)
	return cmd
}

func (c *cli) doctor(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*requestTime)
	defer cancel()
	m := doctor.Machine{Root: "/"}
	v := doctor.Look(ctx, m)
	v.Client = version
	client, err := c.open(ctx)
	if err == nil {
		defer client.Close()
		d, derr := client.Diagnose(ctx)
		if err = derr; err == nil {
			v.Daemon = &d
			if i, ierr := client.Images(ctx); ierr == nil { // an older daemon knows of none
				v.Ready = doctor.LookAtReady(m, i)
			}
		}
	}
	if err != nil {
		v.DaemonError = err.Error()
	}
	if v.UID != 0 && (v.Daemon == nil || v.Daemon.Agent.Runtime == nil) {
		doctor.AskPodman(ctx, m, &v)
	}
	return c.diagnosis(v, isTerminal(c.out) && os.Getenv("NO_COLOR") == "")
}

// diagnosis prints the findings, and is an error without words when one is a problem.
func (c *cli) diagnosis(v doctor.View, colour bool) error {
	findings := doctor.Check(v)
	problems, warnings := doctor.Problems(findings, doctor.Problem), doctor.Problems(findings, doctor.Warning)
	var err error
	if c.json {
		err = c.printJSON(struct {
			Version  int              `json:"version"`
			User     string           `json:"user"`
			Problems int              `json:"problems"`
			Warnings int              `json:"warnings"`
			Findings []doctor.Finding `json:"findings"`
			// Gate is the device gate and who goes round the queue; not in personal mode.
			Gate *api.GateDiagnosis `json:"gate,omitempty"`
		}{1, v.User, problems, warnings, findings, gateOf(v)})
	} else {
		err = c.write(findingsText(findings, colour) + "\n" + summary(problems, warnings) + "\n")
	}
	if err == nil && problems > 0 {
		return &codeError{code: exitFailed}
	}
	return err
}

func gateOf(v doctor.View) *api.GateDiagnosis {
	if v.Daemon == nil {
		return nil
	}
	return v.Daemon.Gate
}

// findingsText is one line a finding, and below it the command that mends it.
func findingsText(findings []doctor.Finding, colour bool) string {
	const level = len("problem")
	check := 0
	for _, f := range findings {
		check = max(check, termsafe.Width(f.Check))
	}
	var b strings.Builder
	for _, f := range findings {
		word := fmt.Sprintf("%-*s", level, f.Level)
		if colour {
			word = map[doctor.Level]string{doctor.OK: "\x1b[32m", doctor.Warning: "\x1b[33m", doctor.Problem: "\x1b[31;1m"}[f.Level] + word + "\x1b[0m"
		}
		fmt.Fprintf(&b, "%s  %-*s  %s\n", word, check, f.Check, termsafe.Line(f.Message))
		if f.Fix != "" {
			fmt.Fprintf(&b, "%*s  mend: %s\n", level+2+check, "", termsafe.Line(f.Fix))
		}
	}
	return b.String()
}

func summary(problems, warnings int) string {
	count := func(n int, word string) string {
		if n == 1 {
			return "1 " + word
		}
		return fmt.Sprintf("%d %ss", n, word)
	}
	switch {
	case problems == 0 && warnings == 0:
		return "Nothing is in the way of your jobs."
	case problems == 0:
		return "Jobs can run; " + count(warnings, "warning") + "."
	}
	return count(problems, "problem") + ", " + count(warnings, "warning") + "."
}
