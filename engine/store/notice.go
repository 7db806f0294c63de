package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"

	"gputop/engine"
)

// What is kept of notices: so many of each user, the newest, and none that is older.
const (
	noticesOfUser = 200
	noticeAge     = 30 * 24 * time.Hour
	// noticeTrim is how many of all notices come between two looks for old ones.
	noticeTrim = 64
)

// Ways by which a notice is sent.
type Ways int

// The ways.
const (
	ByMail Ways = 1 << iota
	ByCommand
)

// Notice is a notice with what becomes of it.
type Notice struct {
	engine.Notice
	// Hidden says that its owner does not want to see it.
	Hidden bool
	// Due are the ways by which it has to be sent.
	Due Ways
	// Again says after Apply that a notice of that job, kind and key was there already: nothing was stored.
	Again bool
}

const insertNotice = `INSERT INTO notice(time, uid, owner, job, kind, key, shown, due, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT(job, kind, key) DO NOTHING`

// AddNotice stores a notice, if it is the first of its job, kind and key. Apply fills in ID and Again.
func AddNotice(n *Notice) Change { return Change{notice: n} }

func noticeRow(n *Notice) (row, error) {
	n.ID, n.Again = 0, false
	body, err := body("notice about job "+n.Job.String(), n.Notice, (n.Job > 0 || n.Kind == engine.NoticeOutside) && n.Kind != "" && !n.Time.IsZero())
	return row{stmt: func(w *writer) *sql.Stmt { return w.addNotice },
		args: []any{n.Time.UnixMilli(), int64(n.Owner.UID), n.Owner.Name, int64(n.Job), string(n.Kind), n.Key, !n.Hidden, int(n.Due), body},
		after: func(w *writer, id int64) error {
			n.ID, n.Again = id, false
			return w.trimNotices(id, n)
		},
		ignored: func() { n.ID, n.Again = 0, true },
	}, err
}

// trimNotices drops what is too much of one user, and now and then what is too old of anybody.
func (w *writer) trimNotices(last int64, n *Notice) error {
	_, err := w.conn.ExecContext(context.Background(), `DELETE FROM notice WHERE uid = ?1 AND owner = ?2 AND id <=
		(SELECT id FROM notice WHERE uid = ?1 AND owner = ?2 ORDER BY id DESC LIMIT 1 OFFSET ?3)`, int64(n.Owner.UID), n.Owner.Name, noticesOfUser)
	if err == nil && last%noticeTrim == 0 {
		_, err = w.conn.ExecContext(context.Background(), `DELETE FROM notice WHERE time < ?`, n.Time.Add(-noticeAge).UnixMilli())
	}
	return err
}

const waitsToldKey = "waits_told"

// SetWaitsTold notes that whoever waits since then or longer has been told so.
func SetWaitsTold(t time.Time) Change {
	return Change{meta: &meta{waitsToldKey, t.UTC().Format(time.RFC3339Nano)}}
}

// WaitsTold is what SetWaitsTold noted last; zero for nothing.
func (s *Store) WaitsTold(ctx context.Context) (t time.Time, err error) {
	text, err := s.meta(ctx, waitsToldKey)
	if err == nil && text != "" {
		t, err = time.Parse(time.RFC3339Nano, text)
	}
	if err != nil {
		return t, fmt.Errorf("read which waits were told: %w", err)
	}
	return t, nil
}

// Notices reads what a user is told, newest first, at most limit, and the id up to which the user has read.
func (s *Store) Notices(ctx context.Context, owner engine.User, limit int) (list []engine.Notice, read int64, err error) {
	err = s.view(ctx, func(tx *sql.Tx) (err error) {
		err = tx.QueryRowContext(ctx, `SELECT coalesce(max(through), 0) FROM notice_read WHERE uid = ? AND owner = ?`,
			int64(owner.UID), owner.Name).Scan(&read)
		if err == nil {
			list, err = notices(ctx, tx, `SELECT id, due, body FROM notice WHERE uid = ? AND owner = ? AND shown = 1 ORDER BY id DESC LIMIT ?`,
				nil, int64(owner.UID), owner.Name, max(limit, 0))
		}
		return explain(err)
	})
	if err != nil {
		return nil, 0, fmt.Errorf("read notices: %w", err)
	}
	return list, read, nil
}

// ReadNotices notes up to which id a user has read. It never goes back, and never beyond what there is.
func (s *Store) ReadNotices(ctx context.Context, owner engine.User, through int64) error {
	err := s.submit(ctx, func(w *writer) error {
		_, err := w.conn.ExecContext(context.Background(), `INSERT INTO notice_read(uid, owner, through)
			SELECT ?1, ?2, min(?3, coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'notice'), 0)) WHERE true
			ON CONFLICT(uid, owner) DO UPDATE SET through = max(through, excluded.through)`, int64(owner.UID), owner.Name, through)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what was read: %w", err)
	}
	return nil
}

// DueNotices reads what has still to be sent by any of some ways, oldest first.
func (s *Store) DueNotices(ctx context.Context, by Ways, limit int) ([]Notice, error) {
	var out []Notice
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		var ways []Ways
		list, err := notices(ctx, tx, `SELECT id, due, body FROM notice INDEXED BY notice_due WHERE due <> 0 AND due & ? <> 0
			ORDER BY id LIMIT ?`, &ways, int(by), limit)
		for i, n := range list {
			out = append(out, Notice{Notice: n, Due: ways[i]})
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read notices to send: %w", err)
	}
	return out, nil
}

// TakeNotices notes that nothing has to be sent any more for these notices by these ways.
func (s *Store) TakeNotices(ctx context.Context, ways Ways, ids ...int64) error {
	if len(ids) == 0 {
		return nil
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	err = s.submit(ctx, func(w *writer) error {
		_, err := w.conn.ExecContext(context.Background(), `UPDATE notice SET due = due & ~?1 WHERE id IN (SELECT value FROM json_each(?2))`,
			int(ways), string(list))
		return err
	})
	if err != nil {
		return fmt.Errorf("note what is sent: %w", err)
	}
	return nil
}

// notices reads rows of id, due and body; ways, when not nil, gets what is due.
func notices(ctx context.Context, tx *sql.Tx, q string, ways *[]Ways, args ...any) ([]engine.Notice, error) {
	rows, err := tx.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, explain(err)
	}
	defer rows.Close()
	var out []engine.Notice
	for rows.Next() {
		var id int64
		var due Ways
		var raw sql.RawBytes
		if err := rows.Scan(&id, &due, &raw); err != nil {
			return nil, explain(err)
		}
		var n engine.Notice
		if err := json.Unmarshal(raw, &n); err != nil {
			return nil, fmt.Errorf("%w: a notice can't be read (%w)", ErrDamaged, err)
		}
		n.ID = id
		out = append(out, n)
		if ways != nil {
			*ways = append(*ways, due)
		}
	}
	return out, explain(rows.Err())
}
