package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"
)

// manager is the service manager that started this process: systemd, or nothing that wants to hear from it.
// The messages are those of sd_notify(3).
type manager struct {
	socket string
	// within is how long the manager goes without a sign of life before it ends this process; 0 when it does not look.
	within time.Duration
}

// managerOf reads what systemd says in the environment, and takes it out: children must not speak for this process.
func managerOf() (manager, error) {
	m := manager{socket: os.Getenv("NOTIFY_SOCKET")}
	usec, pid := os.Getenv("WATCHDOG_USEC"), os.Getenv("WATCHDOG_PID")
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(name)
	}
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return m, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 {
		return m, fmt.Errorf("WATCHDOG_USEC=%q: must be a number of microseconds above 0", usec)
	}
	m.within = time.Duration(n) * time.Microsecond
	return m, nil
}

// notify sends one message; without a manager it does nothing.
func (m manager) notify(state string) error {
	if m.socket == "" {
		return nil
	}
	// net turns a leading @ into the abstract namespace, as systemd means it.
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: m.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager: %w", err)
	}
	_, err = c.Write([]byte(state))
	return errors.Join(err, c.Close())
}

// keep tells the manager when the engine is ready, then that it lives, and that it stops when ctx is done. alive waits
// for a turn of the engine's loop: a loop that hangs sends nothing, and the manager starts the engine again.
func (m manager) keep(ctx context.Context, log *slog.Logger, alive func(context.Context) error) error {
	tell := func(state string) {
		if err := m.notify(state); err != nil {
			log.Error("no word to the service manager", "state", state, "err", err)
		}
	}
	if alive(ctx) == nil {
		tell("READY=1")
	}
	defer tell("STOPPING=1")
	if m.within == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(m.within / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if alive(ctx) == nil {
				tell("WATCHDOG=1")
			}
		}
	}
}
