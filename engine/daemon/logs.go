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
	logChunk = 512 << 10
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
	if err := permit(c, actLogs, &j, ""); err != nil {
		return d.record(ctx, c, err)
	}
	n := o.Attempt
	if n == 0 {
		n = max(len(attempts), 1)
	} else if n < 0 || n > len(attempts) {
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("job %s has no attempt %d; it has had %d", id, n, len(attempts))}
	}
	if f := o.From; f.Attempt > 0 {
		if f.Attempt > len(attempts) || o.Attempt != 0 && o.Attempt != f.Attempt {
			return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("job %s has no such place in its output: %s", id, f)}
		}
		n, o.Tail = f.Attempt, 0
	}
	for {
		found, err := d.attemptLog(ctx, j.Owner, engine.AttemptID{Job: id, Number: n}, o, w)
		if err != nil {
			return err
		}
		if keep := d.policy().KeepLogs; !found && keep > 0 && !j.Ended.IsZero() && d.o.System.Now().Sub(j.Ended) > keep {
			return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("the output of job %s is gone: it was kept for %s after the job's end", id, days(keep))}
		}
		if !o.Follow || o.Attempt != 0 {
			return nil
		}
		if more, err := d.laterAttempt(ctx, id, n); err != nil || !more {
			return err
		}
		n, o.Tail, o.From = n+1, 0, api.LogMark{}
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

// days is a time in days where it is whole ones.
func days(t time.Duration) string {
	if n := t / (24 * time.Hour); n > 0 && t%(24*time.Hour) == 0 {
		return fmt.Sprintf("%dd", n)
	}
	return t.String()
}

// attemptLog writes one attempt's output, and with Follow waits for it to begin and to end. found says that there is a
// log.
func (d *Daemon) attemptLog(ctx context.Context, owner engine.User, id engine.AttemptID, o api.LogOptions, w io.Writer) (found bool, err error) {
	args := agentrpc.ReadLogArgs{Attempt: id, Container: id.ContainerName(d.store.Instance()), Max: logChunk, Tail: o.Tail,
		Offset: o.From.Offset, File: o.From.File, JSON: o.JSON}
	open := o.From.Offset > 0 // the line the reader is in: not known after a break
	for {
		state, err := d.attemptState(ctx, id)
		if err != nil {
			return false, err
		}
		if state == attemptAhead {
			if !o.Follow {
				return true, nil
			}
			if !sleep(ctx, 200*time.Millisecond) {
				return false, ctx.Err()
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
		case errors.Is(err, agentrpc.ErrClosed), // the agent was replaced: the next one has the same files
			err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound && o.Follow && state == attemptRuns:
			if !sleep(ctx, 200*time.Millisecond) {
				return false, ctx.Err()
			}
			continue
		case err != nil && agentrpc.CodeOf(err) == agentrpc.CodeNotFound:
			return false, nil // it never wrote anything
		case err != nil:
			return false, &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("the output of job %s cannot be read now: %v", id.Job, err)}
		}
		if chunk.Dropped {
			notice := agentrpc.DroppedLine(d.policy().LogLimit)
			switch {
			case o.JSON:
				notice = fmt.Sprintf("{\"job\":%d,\"attempt\":%d,\"dropped\":true}\n", id.Job, id.Number)
			case open:
				notice = "\n" + notice
			}
			chunk.Data = append([]byte(notice), chunk.Data...)
		}
		if len(chunk.Data) > 0 {
			open = chunk.Data[len(chunk.Data)-1] != '\n'
			if m, ok := w.(api.LogMarker); ok {
				m.Mark(api.LogMark{Attempt: id.Number, Offset: chunk.Next, File: chunk.File})
			}
			if _, err := w.Write(chunk.Data); err != nil {
				return false, err
			}
		}
		atEnd := chunk.Next == args.Offset && args.Tail == 0 && !chunk.Dropped
		args.Offset, args.File, args.Tail = chunk.Next, chunk.File, 0
		if atEnd && (!o.Follow || state == attemptOver) {
			return args.File != 0, nil
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
