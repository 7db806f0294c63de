package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"gputop/engine"
)

// changes are the routes of the interface Changes.
func (s *Server) changes() {
	hold := func(on bool) func(*http.Request, Caller, engine.JobID) (any, error) {
		return func(r *http.Request, c Caller, id engine.JobID) (any, error) {
			note, err := s.note(r)
			if err != nil {
				return nil, err
			}
			return s.b.Hold(r.Context(), c, id, on, note)
		}
	}
	s.mux.Handle("POST /v1/jobs/{id}/hold", s.job(hold(true)))
	s.mux.Handle("POST /v1/jobs/{id}/release", s.job(hold(false)))
	s.mux.Handle("POST /v1/jobs/{id}/requeue", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) {
		note, err := s.note(r)
		if err != nil {
			return nil, err
		}
		return s.b.Requeue(r.Context(), c, id, note)
	}))
	s.mux.Handle("POST /v1/jobs/{id}/update", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) {
		var req UpdateRequest
		if err := s.body(r, &req); err != nil {
			return nil, err
		}
		if err := checkNote(req.Reason); err != nil {
			return nil, err
		}
		return s.b.Update(r.Context(), c, id, req)
	}))
	s.mux.Handle("GET /v1/audit", s.value(s.audit))
}

// note reads the body of a request that carries a reason and nothing else.
func (s *Server) note(r *http.Request) (string, error) {
	var req StopRequest
	if err := s.body(r, &req); err != nil {
		return "", err
	}
	if req.For != 0 {
		return "", &Error{Code: CodeInvalid, Message: "for: only a preemption is for another job"}
	}
	return req.Reason, checkNote(req.Reason)
}

func checkNote(note string) error {
	if len(note) > maxNote {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("the reason is %d bytes long; at most %d are kept", len(note), maxNote)}
	}
	return nil
}

func (s *Server) audit(r *http.Request, c Caller) (any, error) {
	q, err := query(r, "since", "user", "limit")
	limit, err2 := number(q, "limit", DefaultAudit, MaxAudit)
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	out := AuditQuery{User: q["user"], Limit: limit}
	if q["since"] != "" {
		if out.Since, err = time.Parse(time.RFC3339, q["since"]); err != nil {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("since %q: want a time such as 2026-03-04T05:06:07Z", q["since"])}
		}
	}
	return s.b.Audit(r.Context(), c, out)
}
