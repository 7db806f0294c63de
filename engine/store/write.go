package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"gputop/engine"
)

// maxBatch bounds how many calls share one transaction, so that the first of them does not wait for too many others.
const maxBatch = 256

// Change is one row to store. Make it with PutJob, PutAttempt, AddEvent, AddAudit, AddNotice, PutUsage, AddUsed, SetWaitsTold or
// SetPreempted.
type Change struct {
	job     *engine.Job
	attempt *engine.Attempt
	event   *engine.Event
	audit   *engine.AuditEntry
	notice  *Notice
	usage   *Usage
	used    *Used
	meta    *meta
}

// meta is one value that is kept under a name.
type meta struct{ key, value string }

// PutJob stores a job, over the one with the same id.
func PutJob(j engine.Job) Change { return Change{job: &j} }

// PutAttempt stores an attempt, over the one with the same id. Its job has to be stored, if only by the same call.
func PutAttempt(a engine.Attempt) Change { return Change{attempt: &a} }

// AddEvent appends a line to the story of a job, which has to be stored, if only by the same call.
func AddEvent(e engine.Event) Change { return Change{event: &e} }

// row is a change ready for its statement.
type row struct {
	stmt func(*writer) *sql.Stmt
	args []any
	// after does what follows from the row's own id, in the same transaction; nil for nothing.
	after func(w *writer, id int64) error
	// ignored is told when the row was there already; nil where that cannot be.
	ignored func()
}

func (c Change) row() (row, error) {
	switch {
	case c.job != nil:
		j := c.job
		body, err := body("job "+j.ID.String(), j, j.ID > 0 && j.State != "")
		return row{stmt: func(w *writer) *sql.Stmt { return w.putJob }, args: []any{int64(j.ID), string(j.State), j.State.Final(),
			int64(j.Owner.UID), j.Owner.Name, int64(j.Spec.Class), millis(j.Submitted), millis(j.Ended), body}}, err
	case c.attempt != nil:
		a := c.attempt
		body, err := body("attempt "+a.ID.String(), a, a.ID.Job > 0 && a.ID.Number > 0)
		return row{stmt: func(w *writer) *sql.Stmt { return w.putAttempt }, args: []any{int64(a.ID.Job), a.ID.Number,
			a.Allocation.State.Holds(), body}}, err
	case c.event != nil:
		e := c.event
		body, err := body("event of job "+e.Job.String(), e, e.Job > 0)
		return row{stmt: func(w *writer) *sql.Stmt { return w.addEvent }, args: []any{int64(e.Job), body}}, err
	case c.audit != nil:
		return auditRow(c.audit)
	case c.notice != nil:
		return noticeRow(c.notice)
	case c.usage != nil:
		return usageRow(c.usage)
	case c.used != nil:
		return usedRow(c.used)
	case c.meta != nil:
		return row{stmt: func(w *writer) *sql.Stmt { return w.setMeta }, args: []any{c.meta.key, c.meta.value}}, nil
	}
	return row{}, fmt.Errorf("empty change")
}

func body(what string, v any, complete bool) (string, error) {
	if !complete {
		return "", fmt.Errorf("%s: its id or state is missing", what)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", what, err)
	}
	return string(b), nil
}

// millis is a time for a column: NULL when it is not set.
func millis(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMilli()
}

// Apply stores the changes: all of them are on disk when it returns nil, and none when it returns an error. Calls made
// at the same time share one transaction and its fsync; a bad one fails alone. Ending ctx takes back a call that still
// waits for its turn; once its turn has come, Apply returns what really happened. ErrFull says that the disk is full;
// the store goes on working when there is space again.
func (s *Store) Apply(ctx context.Context, changes ...Change) error {
	return s.apply(ctx, false, changes)
}

// ApplyFact is Apply for what has happened or is being done already and can't be refused, such as the end of a program:
// on a full disk it may use the reserve that is kept for that.
func (s *Store) ApplyFact(ctx context.Context, changes ...Change) error {
	return s.apply(ctx, true, changes)
}

func (s *Store) apply(ctx context.Context, fact bool, changes []Change) error {
	rows := make([]row, len(changes))
	for i, c := range changes {
		var err error
		if rows[i], err = c.row(); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if c.job != nil {
			s.raiseCounter(int64(c.job.ID))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := s.hand(ctx, &write{run: func(w *writer) error { return w.put(rows) }, fact: fact, done: make(chan error, 1)}); err != nil {
		return fmt.Errorf("store %s: %w", subject(changes[0]), err)
	}
	return nil
}

func subject(c Change) string {
	switch {
	case c.job != nil:
		return "job " + c.job.ID.String()
	case c.attempt != nil:
		return "attempt " + c.attempt.ID.String()
	case c.audit != nil:
		return "audit entry of " + c.audit.User.Name
	case c.notice != nil:
		return "notice about job " + c.notice.Job.String()
	case c.event != nil:
		return "event of job " + c.event.Job.String()
	case c.usage != nil:
		return "usage of " + c.usage.Owner.Name
	case c.used != nil:
		return "use of a day of " + c.used.Owner.Name
	}
	return c.meta.key
}

func (s *Store) raiseCounter(to int64) {
	for {
		last := s.lastJob.Load()
		if last >= to || s.lastJob.CompareAndSwap(last, to) {
			return
		}
	}
}

// write is a call on its way to the writer.
type write struct {
	run func(*writer) error
	// fact says that it may use the reserve.
	fact bool
	done chan error
}

// submit hands over and waits. The channel has no buffer: a call that was not taken has not begun.
func (s *Store) submit(ctx context.Context, run func(*writer) error) error {
	return s.hand(ctx, &write{run: run, done: make(chan error, 1)})
}

func (s *Store) hand(ctx context.Context, w *write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case s.writes <- w:
		return <-w.done
	case <-s.quit:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run is the one goroutine that writes: it takes what is waiting and commits it together. While it waits for the disk
// the next calls gather.
func (s *Store) run() {
	defer close(s.stopped)
	for {
		select {
		case w := <-s.writes:
			s.writer.commit(gather(w, s.writes))
		case <-s.quit:
			return
		}
	}
}

func gather(first *write, waiting <-chan *write) []*write {
	batch := []*write{first}
	for len(batch) < maxBatch {
		select {
		case w := <-waiting:
			batch = append(batch, w)
		default:
			return batch
		}
	}
	return batch
}

// writer holds the only connection that writes, and its statements.
type writer struct {
	conn                                   *sql.Conn
	putJob, putAttempt, addEvent, addAudit *sql.Stmt
	addNotice, putUsage, addUsed, setMeta  *sql.Stmt
	log                                    *slog.Logger
	commits                                atomic.Int64 // transactions committed
	reserve                                *reserve
}

// newWriter takes over the connection, also when it fails.
func newWriter(ctx context.Context, conn *sql.Conn, r *reserve, o Options) (*writer, error) {
	w := &writer{conn: conn, log: o.Log, reserve: r}
	for _, s := range []struct {
		to    **sql.Stmt
		query string
	}{
		{&w.putJob, `INSERT INTO job(id, state, final, uid, owner, class, submitted, ended, body)
			VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT(id) DO UPDATE SET state = ?2, final = ?3, uid = ?4,
			owner = ?5, class = ?6, submitted = ?7, ended = ?8, body = ?9`},
		{&w.putAttempt, `INSERT INTO attempt(job, number, holds, body) VALUES (?1, ?2, ?3, ?4)
			ON CONFLICT(job, number) DO UPDATE SET holds = ?3, body = ?4`},
		{&w.addEvent, `INSERT INTO event(job, n, body)
			SELECT ?1, coalesce(max(n), 0) + 1, ?2 FROM event WHERE job = ?1`},
		{&w.addAudit, `INSERT INTO audit(time, uid, name, owner_uid, owner, body) VALUES (?, ?, ?, ?, ?, ?)`},
		{&w.addNotice, insertNotice},
		{&w.putUsage, putUsage},
		{&w.addUsed, addUsed},
		{&w.setMeta, `INSERT INTO meta(key, value) VALUES (?1, ?2) ON CONFLICT(key) DO UPDATE SET value = ?2`},
	} {
		var err error
		if *s.to, err = conn.PrepareContext(ctx, s.query); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare: %w", explain(err)), w.close())
		}
	}
	if o.maxPages > 0 {
		if _, err := pragma(ctx, conn, "max_page_count = "+strconv.Itoa(o.maxPages)); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// close lets go of the statements first: while one is open, SQLite keeps the connection and leaves its log behind.
func (w *writer) close() error {
	var errs []error
	for _, s := range []*sql.Stmt{w.putJob, w.putAttempt, w.addEvent, w.addAudit, w.addNotice, w.putUsage, w.addUsed, w.setMeta} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(append(errs, w.conn.Close())...)
}

// commit stores a batch in one transaction. If that fails, each call is tried alone, so that the one to blame is the
// one that hears of it.
func (w *writer) commit(batch []*write) {
	err := w.transaction(batch...)
	if err != nil && len(batch) > 1 {
		w.log.Warn("shared transaction failed, each call is tried alone", "calls", len(batch), "err", err)
		for _, b := range batch {
			b.done <- w.alone(b, w.transaction(b))
		}
		return
	}
	for _, b := range batch {
		b.done <- w.alone(b, err)
	}
	w.reserve.rebuild(err == nil)
}

// alone tries a call that failed for want of space again, for as long as it may take some of the reserve.
func (w *writer) alone(b *write, err error) error {
	for b.fact && errors.Is(err, ErrFull) && w.reserve.give() {
		err = w.transaction(b)
	}
	return err
}

func (w *writer) transaction(batch ...*write) error {
	err := w.exec("BEGIN IMMEDIATE")
	if err != nil {
		return explain(err)
	}
	for _, b := range batch {
		if err = b.run(w); err != nil {
			break
		}
	}
	if err == nil {
		err = w.exec("COMMIT")
	}
	if err != nil {
		// Its own error says only that SQLite has rolled back already.
		w.exec("ROLLBACK")
		return explain(err)
	}
	w.commits.Add(1)
	return nil
}

func (w *writer) put(rows []row) error {
	for _, r := range rows {
		res, err := r.stmt(w).Exec(r.args...)
		if err != nil {
			return err
		}
		if r.ignored != nil {
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			if n == 0 {
				r.ignored()
				continue
			}
		}
		if r.after == nil {
			continue
		}
		id, err := res.LastInsertId()
		if err == nil {
			err = r.after(w, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) exec(query string) error {
	_, err := w.conn.ExecContext(context.Background(), query)
	return err
}

// keepCounter stores the highest id handed out, so that a clean restart does not give one twice.
func (w *writer) keepCounter(last int64) error {
	ctx := context.Background()
	_, err := w.conn.ExecContext(ctx, `INSERT INTO sqlite_sequence(name, seq) SELECT 'job', 0
		WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'job')`)
	if err == nil {
		_, err = w.conn.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'job' AND seq < ?1`, last)
	}
	if err != nil {
		return fmt.Errorf("keep the job counter: %w", explain(err))
	}
	return nil
}
