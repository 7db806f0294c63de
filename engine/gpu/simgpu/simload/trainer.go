package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

// rampSteps is over how many steps --ramp takes the memory.
const rampSteps = 10

// trainer is a training run that trains nothing.
type trainer struct {
	o       options
	handles []*simdev.Handle
	out     io.Writer
	dir     string // of checkpoints; empty for none
}

// train runs to the end, or until ctx is done: it then saves a checkpoint and says so.
func (t *trainer) train(ctx context.Context, tick <-chan time.Time) (int, error) {
	start, err := t.load()
	if err != nil {
		return 0, err
	}
	if start > 0 {
		fmt.Fprintf(t.out, "resumed from step %d\n", start)
	}
	for _, h := range t.handles {
		fmt.Fprintf(t.out, "SIMULATED %s %s\n", h.Header().Model, h.Header().UUID)
		if err := h.SetSM(t.o.sm); err != nil {
			return 0, err
		}
	}
	if !t.o.ramp {
		if err := t.hold(t.o.memory); err != nil {
			return 0, err
		}
	}
	for step := start; step < t.o.steps; {
		if n := step - start; t.o.ramp && n < rampSteps {
			if err := t.hold(t.o.memory * engine.Bytes(n+1) / rampSteps); err != nil {
				return 0, err
			}
		}
		select {
		case <-ctx.Done():
			if t.dir == "" {
				fmt.Fprintf(t.out, "told to stop at step %d; no $GPUTOP_CHECKPOINT_DIR to save to\n", step)
			}
			return exitTerm, t.save(step)
		case <-tick:
		}
		step++
		fmt.Fprintf(t.out, "step %d/%d loss %.4f\n", step, t.o.steps, 0.2+2.3*math.Exp(-float64(step)/40))
		if t.o.checkpoint > 0 && step%t.o.checkpoint == 0 {
			if err := t.save(step); err != nil {
				return 0, err
			}
		}
	}
	fmt.Fprintf(t.out, "done after %d steps\n", t.o.steps)
	return t.o.exit, nil
}

// hold has n bytes on every device, contexts aside.
func (t *trainer) hold(n engine.Bytes) error {
	for _, h := range t.handles {
		if err := h.Alloc(n - (h.Held() - h.Header().Context)); err != nil {
			return err
		}
	}
	return nil
}

func (t *trainer) load() (int, error) {
	if t.dir == "" {
		return 0, nil
	}
	b, err := os.ReadFile(filepath.Join(t.dir, "step"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("checkpoint %s holds no step; remove it to start over", filepath.Join(t.dir, "step"))
	}
	return n, nil
}

// save replaces the checkpoint whole and says so; without a directory it does nothing.
func (t *trainer) save(step int) error {
	if t.dir == "" {
		return nil
	}
	f, err := os.CreateTemp(t.dir, ".step-*")
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = fmt.Fprintln(f, step)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(t.dir, "step"))
	}
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	fmt.Fprintf(t.out, "checkpoint saved at step %d\n", step)
	return nil
}
