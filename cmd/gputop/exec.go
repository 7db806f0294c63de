package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

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
			ids, err := jobIDs(args[:1])
			if err != nil {
				return err
			}
			var target api.ExecTarget
			err = c.ask(cmd.Context(), func(ctx context.Context, client *api.Client) (err error) {
				target, err = client.Exec(ctx, ids[0])
				return err
			})
			if err != nil {
				return err
			}
			return enter(target, args[1:], terminals())
		},
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// enter becomes podman: signals, terminal and exit code are its own.
func enter(target api.ExecTarget, command []string, tty bool) error {
	podman, err := exec.LookPath("podman")
	if err != nil {
		return fmt.Errorf("podman is not on the PATH: %w", err)
	}
	argv, env := podmanExec(target, command, tty, os.Environ(), os.Getuid(), isDirectory)
	if err := syscall.Exec(podman, argv, env); err != nil {
		return fmt.Errorf("start podman: %w", err)
	}
	return nil // not reached
}

// podmanExec is podman's command line and environment. Variables of the job are handed over by name: values on a command
// line are for all to read.
func podmanExec(target api.ExecTarget, command []string, tty bool, environ []string, uid int, isDir func(string) bool) (argv, env []string) {
	argv = []string{"podman", "exec", "--interactive"}
	if tty {
		argv = append(argv, "--tty")
	}
	if target.Workdir != "" {
		argv = append(argv, "--workdir", target.Workdir)
	}
	for _, e := range podmanEnviron(environ, uid, isDir) {
		name, _, _ := strings.Cut(e, "=")
		if _, ours := target.Env[name]; !ours || podmanReads(name) {
			env = append(env, e)
		}
	}
	names := make([]string, 0, len(target.Env))
	for n := range target.Env {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		if podmanReads(n) {
			argv = append(argv, "--env", n+"="+target.Env[n])
			continue
		}
		argv, env = append(argv, "--env", n), append(env, n+"="+target.Env[n])
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		command = []string{"/bin/sh"}
	}
	return append(append(argv, target.ContainerID), command...), env
}

// podmanEnviron is the environment in which the owner's Podman finds what the agent's made: a login under sudo or su may
// have another's runtime directory.
func podmanEnviron(environ []string, uid int, isDir func(string) bool) (env []string) {
	runtimeDir := fmt.Sprintf("/run/user/%d", uid)
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if name != "XDG_RUNTIME_DIR" || !isDir(runtimeDir) && isDir(value) {
			env = append(env, e)
		}
	}
	if isDir(runtimeDir) {
		env = append(env, "XDG_RUNTIME_DIR="+runtimeDir)
	}
	return env
}

// isDirectory says whether there is such a directory.
func isDirectory(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}

// podmanCommand is the owner's own Podman with some arguments.
func podmanCommand(args ...string) (*exec.Cmd, error) {
	podman, err := exec.LookPath("podman")
	if err != nil {
		return nil, fmt.Errorf("podman is not on the PATH: %w", err)
	}
	cmd := exec.Command(podman, args...)
	cmd.Env = podmanEnviron(os.Environ(), os.Getuid(), isDirectory)
	return cmd, nil
}

// podmanReads says whether podman itself, or the loader, would take a variable for its own.
func podmanReads(name string) bool {
	switch name {
	case "PATH", "HOME", "USER", "TMPDIR", "STORAGE_DRIVER", "REGISTRY_AUTH_FILE", "DBUS_SESSION_BUS_ADDRESS":
		return true
	}
	for _, p := range []string{"XDG_", "LD_", "CONTAINER", "PODMAN", "DOCKER_", "GO"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return false
}
