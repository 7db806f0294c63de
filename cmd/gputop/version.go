package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"gputop/cmd/gputop/internal/connect"
	"gputop/engine/api"
	"gputop/engine/termsafe"
)

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "The versions of gputop and of the daemon",
		Example: "  gputop version\n  gputop version --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return c.version(cmd.Context()) },
	}
	c.jsonFlag(cmd)
	return cmd
}

// version never starts a daemon, and works without one.
func (c *cli) version(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var info *api.Info
	client, err := connect.Open(ctx, connect.Options{Socket: c.socket, NoStart: true})
	if err == nil {
		defer client.Close()
		var i api.Info
		if i, err = client.Info(ctx); err == nil {
			info = &i
		}
	}
	if c.json {
		return c.printJSON(struct {
			Version int       `json:"version"`
			Gputop  string    `json:"gputop"`
			API     int       `json:"api"`
			Daemon  *api.Info `json:"daemon"`
		}{1, version, api.Version, info})
	}
	text := fmt.Sprintf("gputop %s (wire version %d)\n", version, api.Version)
	if info != nil {
		text += termsafe.Line(fmt.Sprintf("daemon %s, %s mode, on %s", info.Version, info.Mode, info.Host)) + "\n"
	} else {
		text += "no daemon: " + termsafe.Line(err.Error()) + "\n"
	}
	return c.write(text)
}
