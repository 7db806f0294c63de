package main

import (
	"context"
	"fmt"
	"syscall"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
)

func (c *cli) execCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec JOB [-- COMMAND...]",
		Short: "Run a command inside a running job's container",
		Long: "Run a command inside a running job's container, with your own Podman: a shell, if no command is given. It shares the\n" +
			"job's GPU memory, CPU and memory. Your own jobs only.",
		Example:           "  gputop exec 42\n  gputop exec 42 -- nvidia-smi\n  gputop exec 42 -- py-spy dump --pid 1",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			var target api.ExecTarget
			err := c.askJob(cmd.Context(), args[0], func(ctx context.Context, client *api.Client, id engine.JobID) (err error) {
				target, err = client.Exec(ctx, id)
				return err
			})
			if err != nil {
				return err
			}
			return enter(cmd.Context(), target, args[1:], terminals())
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// enter becomes podman: signals, terminal and exit code are its own.
func enter(ctx context.Context, target api.ExecTarget, command []string, tty bool) error {
	me, err := caller()
	if err != nil {
		return err
	}
	podman, err := me.podman(ctx, podmanExec(target, command, tty)...)
	if err != nil {
		return err
	}
	if err := syscall.Exec(podman.Path, podman.Args, podman.Env); err != nil {
		return fmt.Errorf("start podman: %w", err)
	}
	return nil // not reached
}

// podmanExec are podman's arguments. The container's own environment is that of its job.
func podmanExec(target api.ExecTarget, command []string, tty bool) []string {
	args := []string{"exec", "--interactive"}
	if tty {
		args = append(args, "--tty")
	}
	if target.Workdir != "" {
		args = append(args, "--workdir", target.Workdir)
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{"/bin/sh"}
	}
	return append(append(args, target.ContainerID), command...)
}
