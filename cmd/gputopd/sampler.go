package main

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"gputop/engine/gpu"
	"gputop/engine/gpu/simgpu"
)

func samplerCommand() *cobra.Command {
	var o gpu.SamplerOptions
	var prepare bool
	c := &cobra.Command{
		Use:    "sampler",
		Short:  "Write samples of the GPUs as JSON lines (started by serve)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out, o.Parent = os.Stdout, os.Stdin
			if prepare {
				c, err := simgpu.Parse(o.Simulate)
				if err != nil {
					return err
				}
				if _, err := simgpu.Prepare(o.SimDir, c, o.Instance); err != nil {
					return err
				}
			}
			err := gpu.RunSampler(cmd.Context(), o)
			if errors.Is(err, gpu.ErrReload) {
				return nil // the supervisor starts a fresh process
			}
			return err
		},
	}
	c.Flags().StringVar(&o.Simulate, "simulate", "", "simulated cards, for example a100-40gb:4")
	c.Flags().StringVar(&o.SimDir, "sim-dir", "", "where the simulated cards' files are")
	c.Flags().BoolVar(&prepare, "prepare", false, "make the simulated cards' files, for who has no daemon that did")
	c.Flags().StringVar(&o.Instance, "instance", "", "whose simulated cards they are")
	c.Flags().StringVar(&o.Library, "nvml-library", "", "path of libnvidia-ml.so.1")
	c.Flags().DurationVar(&o.Interval, "interval", time.Second, "time between samples")
	return c
}
