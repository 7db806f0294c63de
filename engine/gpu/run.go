package gpu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
	"gputop/engine/gpu/simgpu"
)

// The period of the samples.
const (
	DefaultInterval = time.Second
	// MinInterval keeps looking from costing the jobs something.
	MinInterval = 200 * time.Millisecond
)

// maxRefusals is how many looks a library may refuse to start before the process ends, to be replaced by one with the
// library that is installed by then: a process keeps its first library for life.
const maxRefusals = 60

// ErrReload is returned when the process should be replaced by a fresh one.
var ErrReload = errors.New("the NVIDIA library does not start in this process")

// SamplerOptions are what the sampler process runs with.
type SamplerOptions struct {
	// Simulate is a specification of simulated cards; empty for the real ones. SimDir is where their files are and
	// Instance whose they are.
	Simulate string
	SimDir   string
	Instance string
	// Library is the path of the NVML library; empty for the system's.
	Library string
	// Interval is the period; 0 for DefaultInterval.
	Interval time.Duration
	// Out gets one engine.Sample a line, as JSON.
	Out io.Writer
	// Parent ends when the parent process has died, as standard input does; nil for none.
	Parent io.Reader
}

// RunSampler writes samples until ctx is done, Parent ends or Out is closed, all of which return nil. It returns also
// while a call of the library hangs; the process must then exit, for that call's thread cannot be stopped.
func RunSampler(ctx context.Context, o SamplerOptions) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if o.Parent != nil {
		// Nobody can wait for a read of standard input; it ends with the process.
		go func() {
			_, _ = io.Copy(io.Discard, o.Parent)
			cancel()
		}()
	}
	done := make(chan error, 1)
	go func() { done <- o.loop(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second):
		return errors.New("the NVIDIA library does not return from a call")
	}
}

func (o SamplerOptions) loop(ctx context.Context) error {
	interval := o.Interval
	if interval == 0 {
		interval = DefaultInterval
	}
	tick := time.NewTicker(max(interval, MinInterval))
	defer tick.Stop()
	c, err := o.collector()
	if err == nil {
		defer c.Close()
	}
	out := json.NewEncoder(o.Out)
	refusals := 0
	for seq := uint64(1); ; seq++ {
		// Without a collector the process stays, and repeats why: ending would only have it restarted in vain.
		s := engine.Sample{Seq: seq, Time: time.Now(), Simulated: o.Simulate != "", GPUs: []engine.GPU{}}
		if err == nil {
			s = c.Sample(s.Time)
		} else {
			s.Error = err.Error()
		}
		if out.Encode(s) != nil {
			return nil // whoever read this has gone
		}
		refusals++
		if err != nil || c.session || c.initResult == nvml.ERROR_LIBRARY_NOT_FOUND {
			refusals = 0
		}
		if refusals >= maxRefusals {
			return ErrReload
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// collector is over the simulated or the real library.
func (o SamplerOptions) collector() (*Collector, error) {
	if o.Simulate == "" {
		lib, err := Real(o.Library)
		if err != nil {
			return nil, err
		}
		return New(lib, Options{Library: o.Library}), nil
	}
	cfg, err := simgpu.Parse(o.Simulate)
	if err != nil {
		return nil, err
	}
	lib, err := simgpu.New(o.SimDir, cfg, o.Instance)
	if err != nil {
		return nil, fmt.Errorf("simulated GPUs: %w", err)
	}
	return New(lib, Options{Simulated: true}), nil
}
