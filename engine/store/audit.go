package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"gputop/engine"
)

// What is kept of the audit trail. A user's own bound keeps one user from washing away what others did.
const (
	auditRows       = 100_000
	auditRowsOfUser = 20_000
	auditAge        = 366 * 24 * time.Hour
	// auditTrim is how many entries come between two looks at these bounds.
	auditTrim = 64
)

// AddAudit appends an entry to the audit trail: with the change it is about in one Apply, or alone for a refusal.
func AddAudit(e engine.AuditEntry) Change { return Change{audit: &e} }

func auditRow(e *engine.AuditEntry) (row, error) {
	body, err := body("audit entry of "+e.User.Name, e, e.Action != "" && !e.Time.IsZero())
	return row{stmt: func(w *writer) *sql.Stmt { return w.addAudit },
		args: []any{e.Time.UnixMilli(), int64(e.User.UID), e.User.Name, int64(e.Owner.UID), e.Owner.Name, body},
		after: func(w *writer, id int64) error {
			if id%auditTrim != 0 {
				return nil
			}
			return w.trimAudit(id, e.Time)
		}}, err
}

// trimAudit drops what is too old or too much, when the newest entry is last. A clock that was set back drops nothing.
func (w *writer) trimAudit(last int64, now time.Time) error {
	// The oldest are looked at, some more than have come since: so that this takes a moment, also after a long pause.
	_, err := w.conn.ExecContext(context.Background(), `DELETE FROM audit WHERE id <= ?1
		OR time < ?2 AND id IN (SELECT id FROM audit ORDER BY id LIMIT ?3)`, last-auditRows, now.Add(-auditAge).UnixMilli(), 4*auditTrim)
	if err != nil {
		return err
	}
	users, err := w.auditUsers(last - auditTrim)
	for _, uid := range users {
		if err == nil {
			_, err = w.conn.ExecContext(context.Background(), `DELETE FROM audit WHERE uid = ?1 AND id <=
				(SELECT id FROM audit WHERE uid = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, uid, auditRowsOfUser)
		}
	}
	return err
}

// auditUsers lists who has entries after an id.
func (w *writer) auditUsers(after int64) (uids []int64, err error) {
	rows, err := w.conn.QueryContext(context.Background(), `SELECT DISTINCT uid FROM audit WHERE id > ?`, after)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var uid int64
		if err := rows.Scan(&uid); err != nil {
			return nil, err
		}
		uids = append(uids, uid)
	}
	return uids, rows.Err()
}

// AuditQuery says which entries to read. The zero value is the newest of all.
type AuditQuery struct {
	// Since leaves out what is older.
	Since time.Time
	// Of leaves out what this user neither did nor owned; nil for everybody's. By leaves out what another name did.
	Of *engine.User
	By string
	// Limit bounds the entries; the newest are taken.
	Limit int
}

// Audit reads the trail, newest first.
func (s *Store) Audit(ctx context.Context, q AuditQuery) ([]engine.AuditEntry, error) {
	where, args := "time >= ?", []any{q.Since.UnixMilli()}
	if q.Since.IsZero() {
		args[0] = 0
	}
	if q.Of != nil {
		where += " AND id IN (SELECT id FROM audit WHERE uid = ? AND name = ? UNION SELECT id FROM audit WHERE owner_uid = ? AND owner = ?)"
		args = append(args, int64(q.Of.UID), q.Of.Name, int64(q.Of.UID), q.Of.Name)
	}
	if q.By != "" {
		where, args = where+" AND name = ?", append(args, q.By)
	}
	var out []engine.AuditEntry
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		out, err = query[engine.AuditEntry](ctx, tx, "SELECT body FROM audit WHERE "+where+" ORDER BY id DESC LIMIT ?", append(args, max(q.Limit, 0))...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the audit trail: %w", err)
	}
	return out, nil
}
