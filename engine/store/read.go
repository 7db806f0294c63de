package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"gputop/engine"
)

// Live is what a daemon needs to go on where the last one stopped.
type Live struct {
	// Jobs are the jobs that are not final, and final ones of which an attempt still holds its allocation, by id.
	Jobs []engine.Job
	// Attempts are all attempts of these jobs, by job and number.
	Attempts []engine.Attempt
}

const liveJobs = `SELECT id FROM job INDEXED BY job_live WHERE final = 0
	UNION SELECT job FROM attempt INDEXED BY attempt_holding WHERE holds = 1`

// Load reads the live state.
func (s *Store) Load(ctx context.Context) (Live, error) {
	var live Live
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		live.Jobs, err = query[engine.Job](ctx, tx, `SELECT body FROM job WHERE id IN (`+liveJobs+`) ORDER BY id`)
		if err != nil {
			return err
		}
		live.Attempts, err = query[engine.Attempt](ctx, tx, `SELECT body FROM attempt WHERE job IN (`+liveJobs+`)
			ORDER BY job, number`)
		return err
	})
	if err != nil {
		return Live{}, fmt.Errorf("load the state: %w", err)
	}
	return live, nil
}

// Job reads one job with its attempts and events, all of the same moment. ErrNotFound: there is none with that id.
func (s *Store) Job(ctx context.Context, id engine.JobID) (engine.Job, []engine.Attempt, []engine.Event, error) {
	var (
		jobs     []engine.Job
		attempts []engine.Attempt
		events   []engine.Event
	)
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		if jobs, err = query[engine.Job](ctx, tx, `SELECT body FROM job WHERE id = ?`, int64(id)); err != nil {
			return err
		}
		if len(jobs) == 0 {
			return ErrNotFound
		}
		attempts, err = query[engine.Attempt](ctx, tx, `SELECT body FROM attempt WHERE job = ? ORDER BY number`, int64(id))
		if err != nil {
			return err
		}
		events, err = query[engine.Event](ctx, tx, selectEvents, int64(id))
		return err
	})
	if err != nil {
		return engine.Job{}, nil, nil, fmt.Errorf("read job %s: %w", id, err)
	}
	return jobs[0], attempts, events, nil
}

// States reads the states of jobs; one that does not exist is not in it.
func (s *Store) States(ctx context.Context, ids []engine.JobID) (map[engine.JobID]engine.JobState, error) {
	out := make(map[engine.JobID]engine.JobState, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT id, state FROM job WHERE id IN (SELECT value FROM json_each(?))`, string(list))
		if err != nil {
			return explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			var state string
			if err := rows.Scan(&id, &state); err != nil {
				return explain(err)
			}
			out[engine.JobID(id)] = engine.JobState(state)
		}
		return explain(rows.Err())
	})
	if err != nil {
		return nil, fmt.Errorf("read states of jobs: %w", err)
	}
	return out, nil
}

// Ended reads final jobs with ids below before (0: from the newest), newest id first, at most limit.
func (s *Store) Ended(ctx context.Context, before engine.JobID, limit int) ([]engine.Job, error) {
	if before <= 0 {
		before = math.MaxInt64
	}
	var jobs []engine.Job
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		jobs, err = query[engine.Job](ctx, tx, `SELECT body FROM job INDEXED BY job_ended WHERE final = 1 AND id < ?
			ORDER BY id DESC LIMIT ?`, int64(before), max(limit, 0))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read ended jobs: %w", err)
	}
	return jobs, nil
}

const selectEvents = `SELECT body FROM event WHERE job = ? ORDER BY n`

// Events reads a job's story in the order in which it was stored; none for a job that does not exist.
func (s *Store) Events(ctx context.Context, id engine.JobID) ([]engine.Event, error) {
	var events []engine.Event
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		events, err = query[engine.Event](ctx, tx, selectEvents, int64(id))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read events of job %s: %w", id, err)
	}
	return events, nil
}

// view runs queries in one read transaction: they see one moment.
func (s *Store) view(ctx context.Context, read func(*sql.Tx) error) error {
	select {
	case <-s.quit:
		return ErrClosed
	default:
	}
	tx, err := s.read.BeginTx(ctx, nil)
	if err != nil {
		return explain(err)
	}
	defer tx.Rollback() // nothing was written: how it ends does not matter
	return read(tx)
}

// query reads bodies.
func query[T any](ctx context.Context, tx *sql.Tx, q string, args ...any) ([]T, error) {
	rows, err := tx.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, explain(err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return nil, explain(err)
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, fmt.Errorf("%w: a row can't be read (%w)", ErrDamaged, err)
		}
		out = append(out, v)
	}
	return out, explain(rows.Err())
}

// meta reads one value that is kept under a name; empty when there is none.
func (s *Store) meta(ctx context.Context, key string) (text string, err error) {
	err = s.view(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT value FROM meta WHERE key = ?`, key).Scan(&text)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return explain(err)
	})
	return text, err
}
