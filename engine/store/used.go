package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gputop/engine"
)

// Used is what one person's attempts of one class held on one day, each amount times how long it was held.
type Used struct {
	// Day is a day of UTC, counted from 1970.
	Day   int
	Owner engine.User
	Class engine.Class
	// GPUSeconds counts a share as its part; GPUMemory is what was promised, in byte-seconds; CPUSeconds is of cores.
	GPUSeconds, GPUMemory, CPUSeconds float64
	// Attempts are those that ended on that day.
	Attempts int
}

const addUsed = `INSERT INTO used(day, uid, owner, class, gpu_seconds, gpu_memory_byte_seconds, cpu_seconds, attempts)
	VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT(day, uid, owner, class) DO UPDATE SET gpu_seconds = gpu_seconds + ?5,
	gpu_memory_byte_seconds = gpu_memory_byte_seconds + ?6, cpu_seconds = cpu_seconds + ?7, attempts = attempts + ?8`

// AddUsed adds to what was used on a day.
func AddUsed(u Used) Change { return Change{used: &u} }

func usedRow(u *Used) (row, error) {
	if u.Owner.Name == "" || u.Day <= 0 || u.Class == 0 {
		return row{}, errors.New("used: its owner, day or class is missing")
	}
	return row{stmt: func(w *writer) *sql.Stmt { return w.addUsed }, args: []any{u.Day, int64(u.Owner.UID), u.Owner.Name, int(u.Class),
		u.GPUSeconds, u.GPUMemory, u.CPUSeconds, u.Attempts}}, nil
}

// Used reads what was used from one day to another, both included; by day, uid, name and class.
func (s *Store) Used(ctx context.Context, from, to int) (list []Used, err error) {
	err = s.view(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, `SELECT day, uid, owner, class, gpu_seconds, gpu_memory_byte_seconds, cpu_seconds, attempts
			FROM used WHERE day BETWEEN ? AND ? ORDER BY day, uid, owner, class`, from, to)
		if err != nil {
			return explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			var u Used
			var class int
			if err := rows.Scan(&u.Day, &u.Owner.UID, &u.Owner.Name, &class, &u.GPUSeconds, &u.GPUMemory, &u.CPUSeconds, &u.Attempts); err != nil {
				return explain(err)
			}
			u.Class = engine.Class(class)
			list = append(list, u)
		}
		return explain(rows.Err())
	})
	if err != nil {
		return nil, fmt.Errorf("read what was used: %w", err)
	}
	return list, nil
}
