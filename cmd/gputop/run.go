package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/termsafe"
)

// runFlags are those that run has beside the ones of submit.
type runFlags struct {
	stdin, tty, keep bool
}

func (c *cli) runCommand() *cobra.Command {
	var f draft.Fields
	var r runFlags
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND...",
		Short: "Queue a job, wait for its turn, and be there while it runs",
		Long: `Queue a job, wait for its turn, and be there while it runs: its output comes here, and gputop ends with its exit code.
Until it starts, a line says why it waits; ctrl-c then cancels it.

With -t the job has a terminal, this one; ctrl-p ctrl-q leaves it running, and gputop attach comes back. When the
connection breaks the job goes on for ten minutes, so that you can come back with gputop attach, and is then cancelled:
a shell that nobody sees holds its GPU for nothing. --keep lets it go on.`,
		Example: `  gputop run -it -- bash
  gputop run --gpu-fraction 0.25 -- python evaluate.py
  gputop run -i --gpus 0 -- sort <words >sorted`,
		Args: usageArgs(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, args []string) error {
			if r.tty && !terminals() {
				return usagef("-t wants a terminal, and this is none: standard input or output is redirected; without -t the output is passed on")
			}
			f.Command = args
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return usagef("put the command behind --: gputop run -it -- %s", args[0])
			}
			return c.run(cmd.Context(), f, r)
		},
	}
	cmd.Flags().SetInterspersed(false)
	addFlags(cmd, &f)
	cmd.Flags().BoolVarP(&r.stdin, "interactive", "i", false, "pass standard input on")
	cmd.Flags().BoolVarP(&r.tty, "tty", "t", false, "give the job a terminal: this one")
	cmd.Flags().BoolVar(&r.keep, "keep", false, "with -t or -i: let the job go on when nobody is attached any more")
	must(cmd.RegisterFlagCompletionFunc("class", cobra.FixedCompletions(classWords(), cobra.ShellCompDirectiveNoFileComp)))
	must(cmd.RegisterFlagCompletionFunc("profile", c.completeProfiles))
	return cmd
}

func (c *cli) attachCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "attach JOB",
		Short: "Come back to a job with a terminal",
		Long: "Come back to a job that was started with gputop run -t or -i, or wait for it to start. ctrl-p ctrl-q leaves it running again.\n" +
			"Your own jobs only.",
		Example:           "  gputop attach 42",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withJob(cmd.Context(), args[0], c.comeBack)
		},
	}
}

// comeBack attaches to a job, if there is something to attach to.
func (c *cli) comeBack(ctx context.Context, client *api.Client, id engine.JobID) error {
	d, err := client.Show(ctx, id)
	switch {
	case err != nil:
		return err
	case !d.Mine:
		return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("job %s belongs to %s; only its owner may attach to it", d.ID, d.Owner)}
	case d.State.Final():
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has already ended: %s", d.ID, d.State), Hint: "Its output: gputop logs " + d.ID.String()}
	case !d.Stdin && !d.Tty:
		return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has no terminal and no input to attach to", d.ID),
			Hint: fmt.Sprintf("Its output: gputop logs -f %s; a shell beside it: gputop exec %s", d.ID, d.ID)}
	case d.Tty && !terminals():
		return usagef("job %s has a terminal, and this is none", d.ID)
	}
	return c.beThere(ctx, client, d.Job)
}

func (c *cli) run(ctx context.Context, f draft.Fields, r runFlags) error {
	return c.with(ctx, func(ctx context.Context, client *api.Client) error {
		info, err := client.Info(ctx)
		if err != nil {
			return err
		}
		spec, err := draft.Build(f, draft.Defaults(info.DefaultsFor(f.Profile)), callerHere())
		if err != nil {
			return typed(err)
		}
		spec.Stdin, spec.Tty = r.stdin || r.tty, r.tty
		spec.Attended = spec.Stdin && !r.keep
		resp, err := queued(ctx, client, info, api.SubmitRequest{Spec: spec})
		if err != nil {
			return err
		}
		c.note(resp.Warnings...)
		return c.beThere(ctx, client, resp.Job)
	})
}

// beThere waits for a job's turn, then is its terminal, or passes its output on, until it ends.
func (c *cli) beThere(ctx context.Context, client *api.Client, j api.Job) error {
	// The daemon knows by this that somebody is there, and how the job ended.
	attend, leave := context.WithCancel(context.WithoutCancel(ctx))
	defer leave()
	type ending struct {
		job api.Job
		err error
	}
	over := make(chan ending, 1)
	go func() {
		job, err := attendOver(attend, client, j.ID)
		over <- ending{job, err}
	}()
	running, err := c.waitForTurn(ctx, client, j.ID)
	if err != nil {
		return err
	}
	if d, err := client.Show(ctx, j.ID); err == nil && d.URL != "" {
		fmt.Fprintf(c.err, "Job %s runs: %s\nFrom your own computer first: %s\n", j.ID, d.URL, tunnel(d.URL))
	}
	detached := false
	switch {
	case !running: // over already
		err = c.printOutput(ctx, client, j.ID)
	case j.Stdin || j.Tty:
		detached, err = c.attach(ctx, client, j)
	default:
		err = c.follow(ctx, client, j.ID)
	}
	if err != nil {
		return err
	}
	if detached {
		_, err := client.Detach(ctx, j.ID)
		fmt.Fprintf(c.err, "\nJob %s goes on. Come back with: gputop attach %s; end it with: gputop cancel %s\n", j.ID, j.ID, j.ID)
		return err
	}
	select {
	case e := <-over:
		if e.err != nil {
			return fmt.Errorf("wait for job %s: %w", j.ID, e.err)
		}
		fmt.Fprintln(c.err, ended(e.job))
		if code := waitCode(e.job); code != exitOK {
			return &codeError{code: code}
		}
		return nil
	case <-ctx.Done():
		return c.interrupted(client, j.ID)
	}
}

// attendOver is there for a job, over restarts of the daemon.
func attendOver(ctx context.Context, client *api.Client, id engine.JobID) (api.Job, error) {
	return overRestarts(ctx, func() (api.Job, error) { return client.Attend(ctx, id) })
}

// turnLook is how often a waiting job is looked at.
const turnLook = 500 * time.Millisecond

// waitForTurn says whether the job runs; false when it is over already. It shows why it waits.
func (c *cli) waitForTurn(ctx context.Context, client *api.Client, id engine.JobID) (running bool, err error) {
	live := isTerminal(os.Stderr)
	last := ""
	say := func(text string) {
		switch {
		case text == last:
		case live && text == "":
			fmt.Fprint(c.err, "\r\x1b[K")
		case live:
			fmt.Fprintf(c.err, "\r\x1b[K%s", termsafe.Truncate(text, terminalWidth()-1))
		case text != "":
			fmt.Fprintln(c.err, termsafe.Line(text))
		}
		last = text
	}
	defer func() { say("") }()
	for {
		d, err := client.Show(ctx, id)
		switch {
		case ctx.Err() != nil:
			say("")
			return false, c.interrupted(client, id)
		case err != nil && !passing(err):
			return false, err
		case err == nil && d.State == engine.Running:
			return true, nil
		case err == nil && d.State.Final():
			return false, nil
		case err == nil:
			say(waitingLine(d.Job))
		}
		select {
		case <-time.After(turnLook):
		case <-ctx.Done():
		}
	}
}

// waitingLine says in a line where a job stands.
func waitingLine(j api.Job) string {
	text := fmt.Sprintf("Job %s ", j.ID)
	switch {
	case j.Progress != "":
		text += "is being prepared: " + j.Progress
	case j.Reason != nil:
		text += reasonWord(*j.Reason)
		if j.Position > 0 {
			text += fmt.Sprintf("; number %d in the queue", j.Position)
		}
	case j.State == engine.Starting:
		text += "starts"
	default:
		text += "waits"
	}
	return text + " (ctrl-c cancels it)"
}

// interrupted ends a job whose caller went away on purpose before it ran, or who sees only its output.
func (c *cli) interrupted(client *api.Client, id engine.JobID) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	if _, err := client.Cancel(ctx, id, "interrupted in gputop run"); err != nil {
		return fmt.Errorf("job %s was not cancelled: %w", id, err)
	}
	fmt.Fprintf(c.err, "Job %s cancelled.\n", id)
	return &codeError{code: exitCancelled}
}

// printOutput is all that a job that is over has put out.
func (c *cli) printOutput(ctx context.Context, client *api.Client, id engine.JobID) error {
	var w io.Writer = c.out
	if isTerminal(c.out) {
		w = termsafe.NewWriter(c.out) // a terminal would answer to questions of then, into the program of now
	}
	return client.Logs(ctx, id, api.LogOptions{}, w)
}

// follow passes a job's output on as it comes; ctrl-c cancels the job.
func (c *cli) follow(ctx context.Context, client *api.Client, id engine.JobID) error {
	err := readLogs(ctx, client, id, api.LogOptions{Follow: true}, c.out)
	if err != nil && ctx.Err() != nil {
		return c.interrupted(client, id)
	}
	return err
}

// attach makes this terminal, or this standard input, the job's, with the owner's own Podman. It says whether the caller
// left a job that goes on.
func (c *cli) attach(ctx context.Context, client *api.Client, j api.Job) (detached bool, err error) {
	target, err := client.Exec(ctx, j.ID)
	var e *api.Error
	if errors.As(err, &e) && e.Code == api.CodeConflict {
		return false, c.printOutput(ctx, client, j.ID) // it was short
	}
	if err != nil {
		return false, err
	}
	// What came before anybody was there.
	if err := c.printOutput(ctx, client, j.ID); err != nil && !passing(err) {
		return false, err
	}
	me, err := caller()
	if err != nil {
		return false, err
	}
	// It is ended below, and not by ctx: a terminal is given back in order.
	cmd, err := me.podman(context.WithoutCancel(ctx), "attach", "--detach-keys", "ctrl-p,ctrl-q", "--sig-proxy=false", target.ContainerID)
	if err != nil {
		return false, err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// A terminal's keys are the job's. Without one, ctrl-c is for gputop.
	keys := make(chan os.Signal, 1)
	if j.Tty {
		signal.Notify(keys, syscall.SIGINT, syscall.SIGQUIT)
		defer signal.Stop(keys)
	} else {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("start podman: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err = <-done:
	case <-ctx.Done():
		if j.Tty {
			_ = cmd.Process.Signal(syscall.SIGHUP)
			<-done
			return false, &codeError{code: exitCancelled}
		}
		_ = cmd.Process.Kill()
		<-done
		return false, c.interrupted(client, j.ID)
	}
	switch {
	case !me.stillRuns(context.WithoutCancel(ctx), target.ContainerID):
		return false, nil // podman's exit code may be the program's, and the daemon's record says more
	case err != nil:
		return false, fmt.Errorf("job %s goes on, but podman attach failed: %w; come back with: gputop attach %s", j.ID, err, j.ID)
	}
	return true, nil
}

// stillRuns asks the owner's Podman, for the daemon may hear of an end a moment later.
func (o owner) stillRuns(ctx context.Context, container string) bool {
	cmd, err := o.podman(ctx, "container", "inspect", "--format", "{{.State.Running}}", container)
	if err != nil {
		return false
	}
	out, err := cmd.Output()
	return err == nil && strings.TrimSpace(string(out)) == "true"
}

// terminalWidth is that of standard error, or 80.
func terminalWidth() int {
	ws, err := unix.IoctlGetWinsize(int(os.Stderr.Fd()), unix.TIOCGWINSZ)
	if err != nil || ws.Col < 20 {
		return 80
	}
	return int(ws.Col)
}
