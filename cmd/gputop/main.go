// Command gputop shows the GPUs, the queue and the running jobs of a machine, and submits, reads and stops jobs. It is a
// client of the daemon alone: it must not link NVML, Podman or a database.
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

	"gputop/cmd/gputop/internal/connect"
	"gputop/cmd/internal/manpage"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

// version is set by the build.
var version = "dev"

// cli is what the commands share.
type cli struct {
	in       io.Reader
	out, err io.Writer
	now      func() time.Time

	socket, simulate, library string
	json                      bool
}

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	// The first signal asks; a second one ends what does not listen, such as a read of the terminal.
	context.AfterFunc(ctx, stop)
	c := &cli{in: os.Stdin, out: os.Stdout, err: os.Stderr, now: time.Now}
	err := c.command().ExecuteContext(ctx)
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return exitOK
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(c.err, "gputop: %s\n", termsafe.Text(text))
	}
	return exitCode(err)
}

func (c *cli) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "gputop",
		Short: "See and share the GPUs of this machine",
		Long: "gputop shows every GPU, process and job of this machine live, and queues jobs that run in rootless containers.\n" +
			"Without a command it opens the screen; without a terminal it prints one snapshot.",
		Example:       "  gputop                                  the screen; s submits, ? helps\n  gputop submit -- python train.py        queue a job with one GPU\n  gputop ls                               the queue",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			s := fmt.Sprintf("unknown command %q", args[0])
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				s += "; did you mean " + strings.Join(near, " or ") + "?"
			}
			return usagef("%s\nSee gputop help", s)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.top(cmd.Context(), !terminals()) },
	}
	root.SuggestionsMinimumDistance = 2
	root.Version = version
	root.SetVersionTemplate("gputop {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v\nSee %s --help", err, cmd.CommandPath())
	})
	root.PersistentFlags().StringVar(&c.socket, "socket", "", "talk to the daemon on this socket (default $GPUTOP_SOCKET, else found)")
	root.PersistentFlags().StringVar(&c.simulate, "simulate", "", "start a personal daemon with simulated GPUs, for example a100-40gb:4 or FILE.yaml (default $GPUTOP_SIMULATE)")
	root.PersistentFlags().StringVar(&c.library, "nvml-library", "", "start a personal daemon with this libnvidia-ml.so.1 instead of the system's")
	root.SetOut(c.out)
	root.SetErr(c.err)
	root.AddCommand(c.submitCommand(), c.lsCommand(), c.showCommand(), c.explainCommand(), c.logsCommand(), c.cancelCommand(), c.preemptCommand(),
		c.holdCommand(), c.releaseCommand(), c.requeueCommand(), c.updateCommand(), c.auditCommand(), c.noticesCommand(), c.imagesCommand(), c.usersCommand(), c.reportCommand(),
		c.reserveCommand(), c.unreserveCommand(), c.drainCommand(), c.undrainCommand(),
		c.runCommand(), c.attachCommand(), c.waitCommand(), c.execCommand(), c.topCommand(), c.doctorCommand(), c.simCommand(), c.versionCommand(), exitCodesTopic(),
		manpage.Command(manpage.Page{Section: 1, Version: version, SeeAlso: []string{"gputopd(8)", "podman(1)"}}))
	return root
}

// open finds the daemon, and starts a personal one if there is none.
func (c *cli) open(ctx context.Context) (*api.Client, error) {
	client, err := connect.Open(ctx, connect.Options{Socket: c.socket, Simulate: c.simulate, Library: c.library})
	if err == nil && c.simulate != "" {
		c.notSimulated(ctx, client)
	}
	return client, err
}

// notSimulated says that --simulate came too late, for a daemon that already runs with this machine's own cards.
func (c *cli) notSimulated(ctx context.Context, client *api.Client) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	g, err := client.GPUs(ctx)
	if err != nil || g.Simulated {
		return
	}
	text := "--simulate has no effect: a daemon already runs, without simulated GPUs"
	if info, err := client.Info(ctx); err == nil && info.Mode == "personal" && info.PID > 0 {
		text += fmt.Sprintf("; end it first (jobs go on): kill %d", info.PID)
	}
	c.note(text)
}

// requestTime bounds requests that answer at once, or when the caller's agent has come up.
const requestTime = 75 * time.Second

// with opens the daemon and calls f, which may take its time.
func (c *cli) with(ctx context.Context, f func(context.Context, *api.Client) error) error {
	client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return f(ctx, client)
}

// ask opens the daemon and calls f with a bounded time.
func (c *cli) ask(ctx context.Context, f func(context.Context, *api.Client) error) error {
	return c.within(ctx, requestTime, f)
}

func (c *cli) within(ctx context.Context, most time.Duration, f func(context.Context, *api.Client) error) error {
	return c.with(ctx, func(ctx context.Context, client *api.Client) error {
		ctx, cancel := context.WithTimeout(ctx, most)
		defer cancel()
		err := f(ctx, client)
		if errors.Is(err, context.DeadlineExceeded) {
			return &connect.Error{Message: fmt.Sprintf("the daemon did not answer within %v", most)}
		}
		return err
	})
}

// jobsCall does something about the jobs that a command line names.
type jobsCall func(context.Context, *api.Client, []engine.JobID) error

// withJobs reads ids, all of them before anything is done, and calls f as with does.
func (c *cli) withJobs(ctx context.Context, args []string, f jobsCall) error {
	ids, err := jobIDs(args)
	if err != nil {
		return err
	}
	return c.with(ctx, func(ctx context.Context, client *api.Client) error { return f(ctx, client, ids) })
}

// askJobs is withJobs with a bounded time.
func (c *cli) askJobs(ctx context.Context, args []string, f jobsCall) error {
	ids, err := jobIDs(args)
	if err != nil {
		return err
	}
	return c.within(ctx, requestTime+time.Duration(len(ids))*time.Second, func(ctx context.Context, client *api.Client) error { return f(ctx, client, ids) })
}

// jobCall does something about one job.
type jobCall func(context.Context, *api.Client, engine.JobID) error

// withJob reads the id of a job and calls f as with does.
func (c *cli) withJob(ctx context.Context, arg string, f jobCall) error {
	id, err := oneJob(arg)
	if err != nil {
		return err
	}
	return c.with(ctx, func(ctx context.Context, client *api.Client) error { return f(ctx, client, id) })
}

// askJob is withJob with a bounded time.
func (c *cli) askJob(ctx context.Context, arg string, f jobCall) error {
	id, err := oneJob(arg)
	if err != nil {
		return err
	}
	return c.ask(ctx, func(ctx context.Context, client *api.Client) error { return f(ctx, client, id) })
}

// note says what is good to know beside what was done.
func (c *cli) note(texts ...string) {
	for _, t := range texts {
		fmt.Fprintf(c.err, "gputop: note: %s\n", termsafe.Text(t))
	}
}

func (c *cli) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON, with the field \"version\": 1")
}

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%v\nUsage: %s", err, cmd.UseLine())
		}
		return nil
	}
}

// jobIDs reads the ids on a command line, and ranges of them: 42, 40-49.
func jobIDs(args []string) (ids []engine.JobID, err error) {
	for _, a := range args {
		more, err := engine.ParseJobIDs(a)
		if err != nil {
			return nil, usagef("%v", err)
		}
		ids = append(ids, more...)
	}
	return ids, nil
}

// oneJob reads the id on a command line that is about one job.
func oneJob(arg string) (engine.JobID, error) {
	ids, err := jobIDs([]string{arg})
	if err == nil && len(ids) != 1 {
		err = usagef("%q: want one job", arg)
	}
	if err != nil {
		return 0, err
	}
	return ids[0], nil
}

// offer puts what f finds before the shell, as completions. It never starts a daemon, and waits a second at most.
func (c *cli) offer(f func(context.Context, *api.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		client, err := connect.Open(cmd.Context(), connect.Options{Socket: c.socket, NoStart: true})
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), time.Second)
		defer cancel()
		words, _ := f(ctx, client) // nothing to offer is no error here
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeJobs offers the ids of the caller's jobs.
func (c *cli) completeJobs(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return c.offer(func(ctx context.Context, client *api.Client) (out []string, err error) {
		jobs, err := client.List(ctx, false, 100)
		for _, j := range jobs {
			if j.Mine {
				out = append(out, j.ID.String()+"\t"+termsafe.Line(j.Name))
			}
		}
		return out, err
	})(cmd, args, word)
}

// completeProfiles offers the daemon's profiles.
func (c *cli) completeProfiles(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	return c.offer(func(ctx context.Context, client *api.Client) (out []string, err error) {
		info, err := client.Info(ctx)
		for _, p := range info.Profiles {
			out = append(out, p.Name+"\t"+termsafe.Line(p.Description))
		}
		return out, err
	})(cmd, args, word)
}

func isTerminal(f any) bool {
	file, ok := f.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

func terminals() bool { return isTerminal(os.Stdin) && isTerminal(os.Stdout) }
