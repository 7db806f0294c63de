package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"gputop/engine"
	"gputop/engine/runner/account"
)

// startTimeout bounds a user's systemd manager, which may hang: the daemon waits for it when it ends.
const startTimeout = 45 * time.Second

// agentStarter starts agents: under the user's own systemd manager where there is one, so that nothing of a job lives
// in the daemon's unit; otherwise as a process in a session of its own that has become the user before it runs.
type agentStarter struct {
	engineSocket string
	stateDir     string
	instance     string
	shared       bool
	groups       func(uid uint32) ([]uint32, error)
	account      func(uid uint32) (engine.User, error)
	// linger says whether users are made to linger when their first agent starts.
	linger atomic.Bool
	log    *slog.Logger
}

func (s *agentStarter) start(u engine.User) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if s.shared {
		// Its uid may have passed to somebody else since the job was accepted.
		if now, err := s.account(u.UID); err != nil || !now.Is(u) {
			return fmt.Errorf("the account %s with uid %d is not there any more (found %q: %v)", u.Name, u.UID, now.Name, err)
		}
	}
	args := []string{"agent", "--engine-socket", s.engineSocket}
	if s.shared {
		args = append(args, "--instance", s.instance)
	} else {
		args = append(args, "--state-dir", filepath.Join(s.stateDir, "agent"))
	}
	if s.shared && systemdRuns() && s.linger.Load() && !lingers(u) {
		s.makeLinger(u)
	}
	if s.shared && systemdRuns() {
		// No child instead: the unit's sandbox would keep newuidmap, and so Podman, from working. Whether the manager runs
		// already is for the system's own to know: what a dead one left in /run/user may still be there.
		if err := startManager(u); err != nil {
			return err
		}
		return s.underManager(u, self, args)
	}
	if hasUserManager(u) {
		return s.underManager(u, self, args)
	}
	return s.asChild(u, self, args)
}

// lingers says whether a user's processes outlive a logout.
func lingers(u engine.User) bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", filepath.Base(u.Name)))
	return err == nil
}

// makeLinger has a user's processes outlive a logout. Jobs run without it, too.
func (s *agentStarter) makeLinger(u engine.User) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "loginctl", "enable-linger", strconv.FormatUint(uint64(u.UID), 10))
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		s.log.Warn("user not made to linger", "user", u.Name, "err", err, "output", string(bytes.TrimSpace(out)))
		return
	}
	s.log.Info("user made to linger: what runs for them goes on when they log out", "user", u.Name)
}

// systemdRuns says whether this machine was booted with systemd.
func systemdRuns() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil
}

// startManager starts the systemd manager of a user who is not logged in and does not linger, but whose turn has come.
func startManager(u engine.User) error {
	unit := fmt.Sprintf("user@%d.service", u.UID)
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "start", unit)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("the systemd manager of %s does not start (%s: %w: %s): see systemctl status %s; loginctl enable-linger %s keeps one running",
			u.Name, unit, err, bytes.TrimSpace(out), unit, u.Name)
	}
	return nil
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
	run = append(append(run, "--", self), args...)
	if s.shared {
		run = append(asUser(u), run...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemd-run", run...)
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

// asUser are the arguments with which the system's manager runs the rest as that user. It happens outside this daemon's
// sandbox and without a login session: with one, as --machine=NAME@.host opens it, the manager of somebody who does not
// linger is stopped seconds after the session closes, with all containers.
func asUser(u engine.User) []string {
	return []string{"--quiet", "--collect", "--wait", "--pipe", "--description", "start a gputop agent",
		"--property", fmt.Sprintf("User=%d", u.UID), "--property", fmt.Sprintf("RuntimeMaxSec=%d", int(startTimeout.Seconds())),
		"--property", fmt.Sprintf("Environment=XDG_RUNTIME_DIR=/run/user/%d", u.UID), "--", "systemd-run"}
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
		groups, err := s.groups(u.UID)
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
