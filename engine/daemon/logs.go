package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/store"
)

const (
	logChunk = 128 << 10
	logWait  = 2 * time.Second
)

// Logs writes a job's output. With follow it goes on, over later attempts too, until the job is final.
func (d *Daemon) Logs(ctx context.Context, c api.Caller, id engine.JobID, o api.LogOptions, w io.Writer) error {
	j, attempts, _, err := d.store.Job(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return noSuchJob(id)
	}
	if err != nil {
		return fmt.Errorf("read job %s: %w", id, err)
	}
	if !maySee(c, j.Owner) {
		return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("job %s belongs to %s; only its owner or an admin may read its output", id, j.Owner.Name)}
	}
	n := o.Attempt
	if n == 0 {
		n = max(len(attempts), 1)
	} else if n < 0 || n > len(attempts) {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("job %s has no attempt %d; it has had %d", id, n, len(attempts))}
	}
	for {
		if err := d.attemptLog(ctx, j.Owner, engine.AttemptID{Job: id, Number: n}, o, w); err != nil {
			return err
		}
		if !o.Follow || o.Attempt != 0 {
			return nil
		}
		if more, err := d.laterAttempt(ctx, id, n); err != nil || !more {
			return err
		}
		n, o.Tail = n+1, 0
	}
}

// laterAttempt waits until the job has an attempt after number n; false when it will have none.
func (d *Daemon) laterAttempt(ctx context.Context, id engine.JobID, n int) (bool, error) {
	for {
		var final bool
		var attempts int
		err := d.do(ctx, func() {
			e := d.state.jobs[id]
			final = e == nil || e.job.State.Final()
			if e != nil {
				attempts = e.job.Attempts
			}
		})
		switch {
		case err != nil:
			return false, err
		case attempts > n:
			return true, nil
		case final:
			return false, nil
		}
		if !sleep(ctx, 200*time.Millisecond) {
			return false, ctx.Err()
		}
	}
}

// attemptLog writes one attempt's output, and with Follow waits for it to begin and to end.
func (d *Daemon) attemptLog(ctx context.Context, owner engine.User, id engine.AttemptID, o api.LogOptions, w io.Writer) error {
	args := agentrpc.ReadLogArgs{Attempt: id, Container: id.ContainerName(d.store.Instance()), Max: logChunk, Tail: o.Tail}
	for {
		state, err := d.attemptState(ctx, id)
		if err != nil {
			return err
		}
		if state == attemptAhead {
			if !o.Follow {
				return nil
			}
			if !sleep(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		args.Wait = 0
		if o.Follow && state == attemptRuns {
			args.Wait = logWait
		}
		var chunk agentrpc.LogChunk
		l, err := d.agents.get(ctx, owner)
		if err == nil {
			err = l.call(ctx, agentrpc.MethodReadLog, args, &chunk)
		}
		switch {
		case err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound && o.Follow && state == attemptRuns:
			if !sleep(ctx, 200*time.Millisecond) {
				return ctx.Err()
			}
			continue
		case err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound:
			return nil // it never wrote anything
		case err != nil:
			return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("the output of job %s cannot be read now: %v", id.Job, err)}
		}
		if len(chunk.Data) > 0 {
			if _, err := w.Write(chunk.Data); err != nil {
				return err
			}
		}
		atEnd := chunk.Next == args.Offset && args.Tail == 0
		args.Offset, args.Tail = chunk.Next, 0
		if atEnd && (!o.Follow || state == attemptOver) {
			return nil
		}
	}
}

type attemptPhase int

const (
	attemptAhead attemptPhase = iota // not begun
	attemptRuns
	attemptOver
)

func (d *Daemon) attemptState(ctx context.Context, id engine.AttemptID) (attemptPhase, error) {
	phase := attemptOver
	err := d.do(ctx, func() {
		e := d.state.jobs[id.Job]
		a := d.state.attempts[id]
		switch {
		case e != nil && e.job.Attempts < id.Number && !e.job.State.Final():
			phase = attemptAhead
		case a != nil && a.Ended.IsZero() && e != nil && e.job.State.Active():
			phase = attemptRuns
		}
	})
	return phase, err
}
