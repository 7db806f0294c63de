package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"time"

	"golang.org/x/sys/unix"
)

// owner is the caller, as the caller's Podman knows them.
type owner struct{ home, name, runtimeDir string }

func caller() (owner, error) {
	u, err := user.Current() // where the account's home is, whatever HOME says
	if err != nil {
		return owner{}, fmt.Errorf("your account: %w", err)
	}
	o := owner{home: u.HomeDir, name: u.Username}
	// The one place that an agent's Podman looks at; another one would be another store.
	if dir := fmt.Sprintf("/run/user/%d", os.Getuid()); unix.Access(dir, unix.W_OK) == nil {
		o.runtimeDir = dir
	}
	return o, nil
}

// podman is the caller's own Podman in the environment that it has under the caller's agent: in another one it may look
// into another store, or talk to another machine.
func (o owner) podman(ctx context.Context, args ...string) (*exec.Cmd, error) {
	cmd := exec.CommandContext(ctx, "podman", args...)
	if cmd.Err != nil {
		return nil, fmt.Errorf("podman is not on the PATH: %w", cmd.Err)
	}
	cmd.Env = []string{"HOME=" + o.home, "USER=" + o.name, "LOGNAME=" + o.name, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"}
	if o.runtimeDir != "" {
		cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+o.runtimeDir)
	}
	cmd.WaitDelay = time.Second
	return cmd, nil
}
