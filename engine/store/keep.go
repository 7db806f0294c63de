package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gputop/engine"
)

// keepStep is how many jobs one transaction deletes or marks, so that nobody's submit waits for a long one.
const keepStep = 200

// Gone is a job that left the store.
type Gone struct {
	Job   engine.JobID
	Owner engine.User
}

// notHeld are ended jobs of which no attempt holds an allocation.
const notHeld = `final = 1 AND id NOT IN (SELECT job FROM attempt INDEXED BY attempt_holding WHERE holds = 1)`

// Prune deletes final jobs that hold no allocation, with their attempts and events, and keeps the newest ones. It says
// which it deleted, also when it fails halfway; until Forgotten is told, ToForget names what their owners have of them.
// Their ids are not used again.
func (s *Store) Prune(ctx context.Context, keep int) ([]Gone, error) {
	return s.inSteps(ctx, "prune ended jobs", `SELECT id, uid, owner FROM job INDEXED BY job_ended WHERE `+notHeld+`
		ORDER BY id DESC LIMIT ? OFFSET ?`, []any{keepStep, max(keep, 0)}, `DELETE FROM job WHERE id = ?`)
}

// ExpireLogs marks what the owners of jobs that ended before then have of them as to be forgotten. The jobs stay.
func (s *Store) ExpireLogs(ctx context.Context, before time.Time) ([]Gone, error) {
	return s.inSteps(ctx, "expire logs of ended jobs", `SELECT id, uid, owner FROM job WHERE final = 1 AND forgotten = 0 AND ended < ?
		AND `+notHeld+` ORDER BY id LIMIT ?`, []any{before.UnixMilli(), keepStep}, `UPDATE job SET forgotten = 1 WHERE id = ?`)
}

// inSteps does something to the jobs that a query finds until it finds no more, and notes what their owners keep of them.
func (s *Store) inSteps(ctx context.Context, what, find string, args []any, do string) ([]Gone, error) {
	var all []Gone
	for {
		var step []Gone
		err := s.submit(ctx, func(w *writer) (err error) {
			if step, err = gone(w.conn, find, args); err != nil {
				return err
			}
			for _, g := range step {
				if _, err := w.conn.ExecContext(context.Background(), `INSERT INTO forget(job, uid, owner)
					SELECT id, uid, owner FROM job WHERE id = ? AND forgotten = 0 ON CONFLICT DO NOTHING`, int64(g.Job)); err != nil {
					return err
				}
				if _, err := w.conn.ExecContext(context.Background(), do, int64(g.Job)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return all, fmt.Errorf("%s: %w", what, err)
		}
		if all = append(all, step...); len(step) < keepStep {
			return all, nil
		}
	}
}

func gone(conn *sql.Conn, find string, args []any) ([]Gone, error) {
	rows, err := conn.QueryContext(context.Background(), find, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Gone
	for rows.Next() {
		var g Gone
		if err := rows.Scan(&g.Job, &g.Owner.UID, &g.Owner.Name); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, rows.Err()
}

// ToForget are jobs of a user whose logs and checkpoints may go, with ids above after, at most limit, lowest first.
func (s *Store) ToForget(ctx context.Context, owner engine.User, after engine.JobID, limit int) ([]engine.JobID, error) {
	return s.ids(ctx, "read what is to be forgotten", `SELECT job FROM forget WHERE uid = ? AND owner = ? AND job > ? ORDER BY job LIMIT ?`,
		int64(owner.UID), owner.Name, int64(after), limit)
}

// Forgotten notes that a user's agent has nothing of that job any more.
func (s *Store) Forgotten(ctx context.Context, id engine.JobID) error {
	err := s.submit(ctx, func(w *writer) error {
		_, err := w.conn.ExecContext(context.Background(), `DELETE FROM forget WHERE job = ?`, int64(id))
		return err
	})
	if err != nil {
		return fmt.Errorf("note that job %s is forgotten: %w", id, err)
	}
	return nil
}

// Strange are those of the ids under which no job of that user is stored with its logs.
func (s *Store) Strange(ctx context.Context, owner engine.User, ids []engine.JobID) ([]engine.JobID, error) {
	known := map[engine.JobID]bool{}
	for _, id := range ids {
		have, err := s.ids(ctx, "look up job "+id.String(), `SELECT id FROM job WHERE id = ? AND uid = ? AND owner = ? AND forgotten = 0`,
			int64(id), int64(owner.UID), owner.Name)
		if err != nil {
			return nil, err
		}
		known[id] = len(have) > 0
	}
	var strange []engine.JobID
	for _, id := range ids {
		if !known[id] {
			strange = append(strange, id)
		}
	}
	return strange, nil
}

func (s *Store) ids(ctx context.Context, what, query string, args ...any) ([]engine.JobID, error) {
	var out []engine.JobID
	err := s.view(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		if err != nil {
			return explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			var id engine.JobID
			if err := rows.Scan(&id); err != nil {
				return explain(err)
			}
			out = append(out, id)
		}
		return explain(rows.Err())
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return out, nil
}
