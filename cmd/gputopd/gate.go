package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"gputop/cdi/gate"
	"gputop/engine/host"
)

// gateCommand is for an admin and for the package's removal: it needs no daemon.
func gateCommand() *cobra.Command {
	var open bool
	var stateDir string
	c := &cobra.Command{
		Use:   "gate",
		Short: "Show the card nodes that the device gate has closed, or give them back (root)",
		Long: `Shows the device nodes that a shared daemon with "gate: enforce" has closed, and to whom they are open.

With --open each gets back the owner, group, mode and ACL that it had before. A daemon that still runs with
"gate: enforce" closes them again within seconds: change its configuration instead.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if os.Geteuid() != 0 {
				return errors.New("the device gate is root's: use sudo")
			}
			return runGate(cmd.OutOrStdout(), cmd.ErrOrStderr(), stateDir, open)
		},
	}
	c.Flags().BoolVar(&open, "open", false, "give back every node that was closed")
	c.Flags().StringVar(&stateDir, "state-dir", "/var/lib/gputop", "directory of the shared daemon's state")
	return c
}

func runGate(out, errs io.Writer, stateDir string, open bool) error {
	boot, err := host.BootID()
	if err != nil {
		return err
	}
	g := gate.New(filepath.Join(stateDir, gate.RecordName), boot)
	if !open {
		nodes, err := g.Holds()
		for _, n := range nodes {
			text, derr := gate.Describe(n)
			if derr != nil {
				text = derr.Error()
			}
			fmt.Fprintf(out, "%s: %s\n", n.Path, text)
		}
		if err == nil && len(nodes) == 0 {
			fmt.Fprintln(out, "The device gate has closed nothing.")
		}
		return err
	}
	if daemonRuns(stateDir) {
		fmt.Fprintf(errs, "gputopd: a daemon runs in %s; with \"gate: enforce\" it closes the nodes again\n", stateDir)
	}
	nodes, err := g.Restore()
	for _, n := range nodes {
		fmt.Fprintf(out, "%s: given back\n", n.Path)
	}
	return err
}

// daemonRuns asks the lock of a state directory.
func daemonRuns(stateDir string) bool {
	f, err := os.Open(filepath.Join(stateDir, "lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
