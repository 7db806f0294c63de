package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// gputop is a personal daemon with one SIMULATED card, and its commands.
type gputop struct {
	place  *place
	daemon *service
	client *api.Client
	ran    []engine.JobID // jobs that may have a container
	spec   engine.Spec    // what submit makes of the command line, for filling the queue
}

func startGputop(ctx context.Context, p *place) (*gputop, error) {
	d, err := p.serve("gputopd", nil, p.gputopd, "serve", "--personal", "--state-dir", p.state(), "--simulate", "a100-40gb:1")
	if err != nil {
		return nil, err
	}
	g := &gputop{place: p, daemon: d, client: &api.Client{Socket: p.socket()}}
	err = d.ready(ctx, func() error {
		// Until it has seen the cards a daemon takes no job that wants one.
		gpus, err := g.client.GPUs(ctx)
		if err == nil && len(gpus.GPUs) == 0 {
			err = errors.New("no simulated card yet: " + gpus.Error)
		}
		return err
	})
	if err != nil {
		d.stop()
		return nil, err
	}
	return g, nil
}

// submitArgv is the command that is timed: the demo image, one whole GPU, all else by default.
func (g *gputop) submitArgv(command ...string) []string {
	return append([]string{g.place.gputop, "submit", "--profile", "demo", "--"}, command...)
}

// submit times the command and says which job it made.
func (g *gputop) submit(ctx context.Context, command ...string) (time.Duration, engine.JobID, error) {
	took, _, err := g.place.timed(ctx, nil, g.submitArgv(command...)...)
	if err != nil {
		return 0, 0, err
	}
	id, err := g.newest(ctx)
	return took, id, err
}

// newest is the job submitted last: nobody else uses this daemon.
func (g *gputop) newest(ctx context.Context) (engine.JobID, error) {
	jobs, err := g.client.List(ctx, true, 1)
	if err != nil {
		return 0, err
	}
	var id engine.JobID
	for _, j := range jobs {
		id = max(id, j.ID)
	}
	return id, nil
}

func (g *gputop) cancel(ctx context.Context, id engine.JobID) error {
	_, err := g.client.Cancel(ctx, id, "")
	return err
}

// until waits for a job's detail to be as wanted.
func (g *gputop) until(ctx context.Context, id engine.JobID, what string, ok func(api.JobDetail) bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		d, err := g.client.Show(ctx, id)
		if err != nil {
			return err
		}
		if ok(d) {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("job %s is still %s (%s), not %s", id, d.State, d.Message, what)
		}
	}
}

// released says whether the job's last attempt has given its device back.
func released(d api.JobDetail) bool {
	n := len(d.Attempts)
	return d.State.Final() && (n == 0 || d.Attempts[n-1].Allocation == engine.Released)
}

// block makes the card busy for the whole run.
func (g *gputop) block(ctx context.Context) error {
	_, id, err := g.submit(ctx, "sleep", "3600")
	if err != nil {
		return err
	}
	g.ran = append(g.ran, id)
	d, err := g.client.Show(ctx, id)
	if err != nil {
		return err
	}
	if d.Spec == nil {
		return fmt.Errorf("job %s comes without its spec", id)
	}
	g.spec = *d.Spec
	return g.until(ctx, id, "running", func(d api.JobDetail) bool { return d.State == engine.Running || d.State.Final() })
}

// pending counts the queue.
func (g *gputop) pending(ctx context.Context) (queued, preparing int, err error) {
	jobs, err := g.client.List(ctx, false, 0)
	for _, j := range jobs {
		if j.State.Queued() {
			queued++
		}
		if j.State == engine.Preparing || j.Reason != nil && j.Reason.Code == engine.ReasonPreparing {
			preparing++
		}
	}
	return queued, preparing, err
}

// fill brings the queue to n jobs, through the API for speed, and waits until the daemon has looked at all of them.
func (g *gputop) fill(ctx context.Context, n int) error {
	have, _, err := g.pending(ctx)
	if err != nil {
		return err
	}
	var (
		left atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, 8)
	)
	left.Store(int64(n - have))
	for i := range errs {
		wg.Go(func() {
			for errs[i] == nil && left.Add(-1) >= 0 {
				_, errs[i] = g.client.Submit(ctx, api.SubmitRequest{Spec: g.spec})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("fill the queue: %w", err)
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		queued, preparing, err := g.pending(ctx)
		switch {
		case err != nil:
			return err
		case queued < n:
			return fmt.Errorf("only %d of %d jobs are pending", queued, n)
		case preparing == 0:
			return nil
		case time.Now().After(deadline):
			fmt.Printf("gputop: %d of %d jobs are still being prepared during the measurement\n", preparing, queued)
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// stop ends the jobs, the daemon, and what may be left of containers. The account's other containers are not touched.
func (g *gputop) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := g.daemon.alive(); err != nil {
		return err
	}
	var errs []error
	for _, id := range g.ran {
		d, err := g.client.Show(ctx, id)
		if err == nil && !d.State.Final() {
			err = errors.Join(g.cancel(ctx, id), g.until(ctx, id, "released", released))
		}
		errs = append(errs, err)
		for _, a := range d.Attempts {
			g.place.timed(ctx, nil, "podman", "rm", "-f", "-i", "-t", "0", a.Container) // gone already as a rule
		}
	}
	g.client.Close()
	g.daemon.stop()
	return errors.Join(errs...)
}
