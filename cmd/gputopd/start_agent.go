package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"gputop/engine"
	"gputop/engine/runner/account"
)

// startTimeout bounds a user's systemd manager, which may hang: the daemon waits for it when it ends.
const startTimeout = 20 * time.Second

// agentStarter starts agents: under the user's own systemd manager where there is one, so that nothing of a job lives
// in the daemon's unit; otherwise as a process in a session of its own that has become the user before it runs.
type agentStarter struct {
	engineSocket string
	stateDir     string
	instance     string
	shared       bool
	log          *slog.Logger
}

func (s *agentStarter) start(u engine.User) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	args := []string{"agent", "--engine-socket", s.engineSocket}
	if s.shared {
		args = append(args, "--instance", s.instance)
	} else {
		args = append(args, "--state-dir", filepath.Join(s.stateDir, "agent"))
	}
	if s.shared && !hasUserManager(u) {
		s.startManager(u)
	}
	if hasUserManager(u) {
		return s.underManager(u, self, args)
	}
	return s.asChild(u, self, args)
}

// systemdRuns says whether this machine was booted with systemd.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// startManager starts the systemd manager of a user who is not logged in and does not linger, but whose turn has come:
// what is started below the daemon's own unit ends with it.
func (s *agentStarter) startManager(u engine.User) {
	if !systemdRuns() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "start", fmt.Sprintf("user@%d.service", u.UID))
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		s.log.Error("user's systemd manager not started", "user", u.Name, "err", err, "output", string(out))
	}
}

// hasUserManager says whether the user's systemd manager runs.
func hasUserManager(u engine.User) bool {
	if !systemdRuns() {
		return false
	}
	_, err := os.Stat(fmt.Sprintf("/run/user/%d/systemd/private", u.UID))
	return err == nil
}

func (s *agentStarter) underManager(u engine.User, self string, args []string) error {
	// Podman's service runs in the unit too, and outlives the agent. What the kernel kills of it for want of memory does
	// not end the rest.
	run := []string{"--user", "--collect", "--quiet", "--description", "gputop agent", "--slice", "app.slice",
		"--property", "KillMode=process", "--property", "OOMPolicy=continue"}
	if s.shared {
		run = append(run, "--machine", u.Name+"@.host")
	}
	run = append(run, "--", self)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemd-run", append(run, args...)...)
	cmd.WaitDelay = time.Second
	if !s.shared {
		cmd.Env = append(os.Environ(), fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", u.UID))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemd-run for %s: %w: %s", u.Name, err, out)
	}
	return nil
}

func (s *agentStarter) asChild(u engine.User, self string, args []string) error {
	acc, err := account.Lookup(context.Background(), strconv.FormatUint(uint64(u.UID), 10))
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	cmd := exec.Command(self, args...)
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.Env = append(account.PodmanEnv(acc), "LANG=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if s.shared {
		if u.UID == 0 {
			return errors.New("an agent never runs as root")
		}
		groups, err := groupsOf(u)
		if err != nil {
			return err
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: groups}
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent of %s: %w", u.Name, err)
	}
	go func() {
		// Only reaps it: an agent outlives this daemon, and ends by itself when it has nothing to do.
		err := cmd.Wait()
		s.log.Info("agent ended", "user", u.Name, "err", err)
	}()
	return nil
}

func groupsOf(u engine.User) ([]uint32, error) {
	p, err := user.LookupId(strconv.FormatUint(uint64(u.UID), 10))
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", u.Name, err)
	}
	ids, err := p.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %s: %w", u.Name, err)
	}
	groups := make([]uint32, 0, len(ids))
	for _, s := range ids {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("group %q of %s: %w", s, u.Name, err)
		}
		groups = append(groups, uint32(n))
	}
	return groups, nil
}
