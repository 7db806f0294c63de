package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"gputop/engine"
)

// AddReservation stores a new reservation with its line of the audit trail, and returns it with its number.
func (s *Store) AddReservation(ctx context.Context, r engine.Reservation, a engine.AuditEntry) (engine.Reservation, error) {
	err := s.changeReservation(ctx, a, func(conn *sql.Conn) error {
		res, err := conn.ExecContext(context.Background(), `INSERT INTO reservation(body) VALUES ('')`)
		if err != nil {
			return err
		}
		id, err := res.LastInsertId()
		if err != nil {
			return err
		}
		r.ID = engine.ReservationID(id)
		return putReservation(conn, r)
	})
	if err != nil {
		return engine.Reservation{}, fmt.Errorf("store a reservation: %w", err)
	}
	return r, nil
}

// PutReservation stores a reservation over the one with its number, or removes that if it has no devices left.
func (s *Store) PutReservation(ctx context.Context, r engine.Reservation, a engine.AuditEntry) error {
	err := s.changeReservation(ctx, a, func(conn *sql.Conn) error {
		if len(r.Devices) == 0 {
			_, err := conn.ExecContext(context.Background(), `DELETE FROM reservation WHERE id = ?`, int64(r.ID))
			return err
		}
		return putReservation(conn, r)
	})
	if err != nil {
		return fmt.Errorf("store reservation %s: %w", r.ID, err)
	}
	return nil
}

// ForgetReservations deletes reservations that are over.
func (s *Store) ForgetReservations(ctx context.Context, ids []engine.ReservationID) error {
	err := s.submit(ctx, func(w *writer) error {
		for _, id := range ids {
			if _, err := w.conn.ExecContext(context.Background(), `DELETE FROM reservation WHERE id = ?`, int64(id)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("forget reservations: %w", err)
	}
	return nil
}

// Reservations reads them all, by number.
func (s *Store) Reservations(ctx context.Context) ([]engine.Reservation, error) {
	var list []engine.Reservation
	err := s.view(ctx, func(tx *sql.Tx) (err error) {
		list, err = query[engine.Reservation](ctx, tx, `SELECT body FROM reservation ORDER BY id`)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read reservations: %w", err)
	}
	return list, nil
}

// changeReservation does something to them and writes its line of the audit trail, both or neither.
func (s *Store) changeReservation(ctx context.Context, a engine.AuditEntry, f func(*sql.Conn) error) error {
	line, err := auditRow(&a)
	if err != nil {
		return err
	}
	return s.submit(ctx, func(w *writer) error {
		if err := f(w.conn); err != nil {
			return err
		}
		return w.put([]row{line})
	})
}

func putReservation(conn *sql.Conn, r engine.Reservation) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, err = conn.ExecContext(context.Background(), `UPDATE reservation SET body = ? WHERE id = ?`, string(b), int64(r.ID))
	return err
}
