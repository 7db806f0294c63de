package api

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"gputop/engine"
)

// ReserveRequest promises devices to people for a time, or drains them. Only admins may.
type ReserveRequest struct {
	Drain bool `json:"drain,omitempty"`
	// Devices are named, or GPUs of them are chosen: those that are in nobody's way.
	Devices []engine.DeviceID `json:"devices,omitempty"`
	GPUs    int               `json:"gpus,omitempty"`
	// From zero is now; To zero is open, for a drain only.
	From time.Time `json:"from,omitzero"`
	To   time.Time `json:"to,omitzero"`
	// Users and Groups are for whom, by name.
	Users  []string `json:"users,omitempty"`
	Groups []string `json:"groups,omitempty"`
	// Preempt puts jobs of others that still run then back in the queue; always so for a reservation.
	Preempt bool   `json:"preempt,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// ReserveResponse is what was reserved.
type ReserveResponse struct {
	Reservation Reservation `json:"reservation"`
	// Warnings name the running jobs that may be in the way.
	Warnings []string `json:"warnings,omitempty"`
}

// Reservation is devices promised to people for a time, or drained.
type Reservation struct {
	engine.Reservation
	// Indices are the devices' numbers, for display; -1 for one that is not seen now.
	Indices []int `json:"indices"`
	// Whose is for whom it is, in words.
	Whose string `json:"whose"`
}

// HeldBack is the reservation or drain that a card is under at a moment; nil for none. A drain goes before.
func (g *GPU) HeldBack(now time.Time) *Reservation {
	var found *Reservation
	for i := range g.Reservations {
		if r := &g.Reservations[i]; r.Begun(now) && !r.Over(now) && (found == nil || r.Drain) {
			found = r
		}
	}
	return found
}

// Upcoming is the reservation or drain of a card that begins next, within some time from a moment; nil for none.
func (g *GPU) Upcoming(now time.Time, within time.Duration) *Reservation {
	var found *Reservation
	for i := range g.Reservations {
		r := &g.Reservations[i]
		if r.From.After(now) && r.From.Sub(now) <= within && (found == nil || r.From.Before(found.From)) {
			found = r
		}
	}
	return found
}

// UndrainRequest gives drained devices back; none means all.
type UndrainRequest struct {
	Devices []engine.DeviceID `json:"devices,omitempty"`
	Reason  string            `json:"reason,omitempty"`
}

// Reservations is the part of the backend that promises devices.
type Reservations interface {
	Reserve(ctx context.Context, c Caller, r ReserveRequest) (ReserveResponse, error)
	// Reserved lists what is promised now and later.
	Reserved(ctx context.Context, c Caller) ([]Reservation, error)
	// Unreserve takes a reservation or a drain back.
	Unreserve(ctx context.Context, c Caller, id engine.ReservationID, note string) (Reservation, error)
	// Undrain takes devices out of all drains, and returns what is left of those.
	Undrain(ctx context.Context, c Caller, r UndrainRequest) ([]Reservation, error)
}

func (s *Server) reservations() {
	s.mux.Handle("GET /v1/reservations", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.Reserved(r.Context(), c) }))
	s.mux.Handle("POST /v1/reservations", s.value(func(r *http.Request, c Caller) (any, error) {
		var req ReserveRequest
		if err := s.body(r, &req); err != nil {
			return nil, err
		}
		if err := checkNote(req.Reason); err != nil {
			return nil, err
		}
		return s.b.Reserve(r.Context(), c, req)
	}))
	s.mux.Handle("POST /v1/reservations/{id}/remove", s.value(func(r *http.Request, c Caller) (any, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil || id <= 0 {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("reservation %q: want its number", r.PathValue("id"))}
		}
		note, err := s.note(r)
		if err != nil {
			return nil, err
		}
		return s.b.Unreserve(r.Context(), c, engine.ReservationID(id), note)
	}))
	s.mux.Handle("POST /v1/undrain", s.value(func(r *http.Request, c Caller) (any, error) {
		var req UndrainRequest
		if err := s.body(r, &req); err != nil {
			return nil, err
		}
		if err := checkNote(req.Reason); err != nil {
			return nil, err
		}
		return s.b.Undrain(r.Context(), c, req)
	}))
}

// Reserve promises devices to people, or drains them.
func (c *Client) Reserve(ctx context.Context, r ReserveRequest) (ReserveResponse, error) {
	return call[ReserveResponse](ctx, c, http.MethodPost, "/v1/reservations", r)
}

// Reserved lists what is promised now and later.
func (c *Client) Reserved(ctx context.Context) ([]Reservation, error) {
	return call[[]Reservation](ctx, c, http.MethodGet, "/v1/reservations", nil)
}

// Unreserve takes a reservation or a drain back.
func (c *Client) Unreserve(ctx context.Context, id engine.ReservationID, note string) (Reservation, error) {
	return call[Reservation](ctx, c, http.MethodPost, "/v1/reservations/"+id.String()+"/remove", StopRequest{Reason: note})
}

// Undrain gives drained devices back to the queue; none means all.
func (c *Client) Undrain(ctx context.Context, r UndrainRequest) ([]Reservation, error) {
	return call[[]Reservation](ctx, c, http.MethodPost, "/v1/undrain", r)
}
