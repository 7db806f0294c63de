package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"gputop/engine"
)

// Usage is what somebody has used of the GPUs, as the scheduler counts it.
type Usage struct {
	Owner engine.User
	// GPUSeconds is a sum that decays, as of At.
	GPUSeconds float64
	At         time.Time
}

const putUsage = `INSERT INTO usage(uid, owner, gpu_seconds, at) VALUES (?1, ?2, ?3, ?4)
	ON CONFLICT(uid, owner) DO UPDATE SET gpu_seconds = ?3, at = ?4`

// PutUsage stores what somebody has used, over what was known of them.
func PutUsage(u Usage) Change { return Change{usage: &u} }

// usageRow keeps the time to the nanosecond: what a sum is charged with must not depend on how often it is.
func usageRow(u *Usage) (row, error) {
	if u.Owner.Name == "" || u.At.IsZero() {
		return row{}, errors.New("usage: its owner or time is missing")
	}
	return row{stmt: func(w *writer) *sql.Stmt { return w.putUsage },
		args: []any{int64(u.Owner.UID), u.Owner.Name, u.GPUSeconds, u.At.UTC().Format(time.RFC3339Nano)}}, nil
}

// Usages reads what everybody has used, by uid and name.
func (s *Store) Usages(ctx context.Context) (list []Usage, err error) {
	err = s.view(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT uid, owner, gpu_seconds, at FROM usage ORDER BY uid, owner`)
		if err != nil {
			return explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			var u Usage
			var at string
			if err := rows.Scan(&u.Owner.UID, &u.Owner.Name, &u.GPUSeconds, &at); err != nil {
				return explain(err)
			}
			if u.At, err = time.Parse(time.RFC3339Nano, at); err != nil {
				return err
			}
			list = append(list, u)
		}
		return explain(rows.Err())
	})
	if err != nil {
		return nil, fmt.Errorf("read what was used: %w", err)
	}
	return list, nil
}

const preemptedKey = "preempted"

// SetPreempted notes when jobs were preempted by the daemon itself of late.
func SetPreempted(times []time.Time) Change {
	b, _ := json.Marshal(times) // times always can be
	return Change{meta: &meta{preemptedKey, string(b)}}
}

// Preempted is what SetPreempted noted last.
func (s *Store) Preempted(ctx context.Context) (times []time.Time, err error) {
	text, err := s.meta(ctx, preemptedKey)
	if err == nil && text != "" {
		err = json.Unmarshal([]byte(text), &times)
	}
	if err != nil {
		return nil, fmt.Errorf("read when jobs were preempted: %w", err)
	}
	return times, nil
}
