// Command simload is a workload for SIMULATED GPUs: it holds device memory and SMs as a training run would, prints
// steps and a loss, and keeps checkpoints. It touches no real device and must stay a small static program without NVML.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

// Exit codes besides the one of --exit.
const (
	exitTrouble = 1
	exitUsage   = 2
	exitTerm    = 128 + int(syscall.SIGTERM)
)

// stepEvery is how long a step takes.
const stepEvery = time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	tick := time.NewTicker(stepEvery)
	defer tick.Stop()
	os.Exit(run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr, tick.C))
}

// options are what the command line says.
type options struct {
	memory     engine.Bytes // of each device, its context aside; 0 for the default
	sm         float64
	steps      int
	ramp       bool
	exit       int
	checkpoint int // steps between checkpoints; 0 for none but at the end
}

func parse(args []string, errOut io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("simload", flag.ContinueOnError)
	fs.SetOutput(errOut)
	fs.Func("mem", "device memory to hold on each device, for example 8GiB (default: 90% of $GPUTOP_GPU_MEMORY_BYTES, else 1GiB)",
		func(s string) (err error) { o.memory, err = engine.ParseBytes(s); return err })
	sm := fs.Float64("sm", 80, "SMs to keep at work, in percent")
	length := fs.String("for", "60s", "how long to run; a step takes a second")
	fs.IntVar(&o.steps, "steps", 0, "how many steps to run, instead of --for")
	fs.BoolVar(&o.ramp, "ramp", false, "take the memory bit by bit over the first ten steps")
	fs.IntVar(&o.exit, "exit", 0, "code to exit with at the end")
	every := fs.Duration("checkpoint-interval", 0, "how often to save a checkpoint; always saved when told to stop")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	d, err := engine.ParseDuration(*length)
	if err != nil {
		return o, err
	}
	switch {
	case math.IsNaN(*sm) || *sm < 0 || *sm > 100:
		return o, fmt.Errorf("--sm %v: must be from 0 to 100", *sm)
	case o.steps < 0 || o.exit < 0 || o.exit > 255 || *every < 0:
		return o, errors.New("--steps, --exit and --checkpoint-interval must not be negative, nor --exit above 255")
	}
	if o.steps == 0 {
		o.steps = max(1, int(d/stepEvery))
	}
	o.sm = *sm / 100
	o.checkpoint = int((*every + stepEvery - 1) / stepEvery)
	return o, nil
}

func run(ctx context.Context, args []string, getenv func(string) string, out, errOut io.Writer, tick <-chan time.Time) int {
	fail := func(code int, err error) int {
		fmt.Fprintln(errOut, "simload:", err)
		return code
	}
	o, err := parse(args, errOut)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		return fail(exitUsage, err)
	}
	paths, err := devices(getenv, "/dev/nvidia*")
	if err != nil {
		return fail(exitUsage, err)
	}
	var handles []*simdev.Handle
	for _, p := range paths {
		h, err := simdev.Open(p)
		if err != nil {
			return fail(exitTrouble, err)
		}
		defer h.Close()
		handles = append(handles, h)
	}
	if o.memory == 0 {
		o.memory, err = defaultMemory(getenv, handles[0].Header().Context)
		if err != nil {
			return fail(exitUsage, err)
		}
	}
	t := trainer{o: o, handles: handles, out: out, dir: getenv("GPUTOP_CHECKPOINT_DIR")}
	code, err := t.train(ctx, tick)
	if err != nil {
		return fail(exitTrouble, err)
	}
	return code
}

// devices lists the simulated devices: those named in $GPUTOP_SIM_DEVICES, or what pattern finds. A real device among
// them is an error.
func devices(getenv func(string) string, pattern string) ([]string, error) {
	if list := getenv("GPUTOP_SIM_DEVICES"); list != "" {
		return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || r == ',' }), nil
	}
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, err
	}
	paths = slices.DeleteFunc(paths, func(p string) bool {
		fi, err := os.Stat(p)
		return err == nil && fi.IsDir() // such as /dev/nvidia-caps
	})
	if len(paths) == 0 {
		return nil, errors.New("no simulated GPU here: no " + pattern + ", and $GPUTOP_SIM_DEVICES names none; run this in a job that was given one (gputop submit --gpus 1)")
	}
	return paths, nil
}

// defaultMemory is 90 % of the job's share, less the context that counts against it too.
func defaultMemory(getenv func(string) string, context engine.Bytes) (engine.Bytes, error) {
	s := getenv("GPUTOP_GPU_MEMORY_BYTES")
	if s == "" {
		return engine.GiB, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("$GPUTOP_GPU_MEMORY_BYTES is %q: want a number of bytes", s)
	}
	return max(engine.MiB, engine.Bytes(n)/10*9-context), nil
}
