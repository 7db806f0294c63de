package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"gputop/engine"
)

// countHeader says how many lines a list will have, so that the reader makes room once.
const countHeader = "Gputop-Count"

// Limits of a list.
const (
	defaultList = 200
	maxList     = 100_000
)

// maxNote is the longest reason for a change, in bytes: it stays in the job's story and goes to every watcher.
const maxNote = 1000

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // only types of this package come here
	}
	return b
}

// handler is a route that answers with one JSON value.
type handler func(r *http.Request, c Caller) (any, error)

func (s *Server) routes() {
	s.mux.Handle("GET /v1/info", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.Info(c), nil }))
	s.mux.Handle("GET /v1/gpus", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.GPUs(c), nil }))
	s.mux.Handle("GET /v1/doctor", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.Diagnose(r.Context(), c) }))
	s.mux.Handle("GET /v1/users", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.Users(r.Context(), c) }))
	s.mux.Handle("GET /v1/report", s.value(s.report))
	s.mux.Handle("GET /v1/images", s.value(func(r *http.Request, c Caller) (any, error) { return s.b.Images(r.Context(), c) }))
	s.mux.HandleFunc("GET /v1/watch", s.watch)
	s.mux.Handle("POST /v1/jobs", s.value(s.submit))
	s.mux.HandleFunc("GET /v1/jobs", s.list)
	s.mux.Handle("GET /v1/jobs/{id}", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Show(r.Context(), c, id) }))
	s.mux.Handle("GET /v1/jobs/{id}/explain", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Explain(r.Context(), c, id) }))
	s.mux.Handle("POST /v1/jobs/{id}/cancel", s.job(s.stop(engine.StopCancelled)))
	s.mux.Handle("POST /v1/jobs/{id}/preempt", s.job(s.stop(engine.StopPreempted)))
	s.changes()
	s.reservations()
	s.notices()
	s.mux.Handle("GET /v1/jobs/{id}/wait", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Wait(r.Context(), c, id) }))
	s.mux.Handle("GET /v1/jobs/{id}/attend", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Attend(r.Context(), c, id) }))
	s.mux.Handle("POST /v1/jobs/{id}/detach", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Detach(r.Context(), c, id) }))
	s.mux.HandleFunc("GET /v1/jobs/{id}/logs", s.logs)
	s.mux.Handle("GET /v1/jobs/{id}/exec", s.job(func(r *http.Request, c Caller, id engine.JobID) (any, error) { return s.b.Exec(r.Context(), c, id) }))
	s.mux.HandleFunc("POST /v1/agent", s.agent)
	if s.o.Metrics != nil {
		s.mux.Handle("GET /metrics", s.o.Metrics)
	}
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, r, &Error{Code: CodeNotFound, Message: fmt.Sprintf("no such request: %s %s", r.Method, r.URL.Path)})
	})
}

func (s *Server) value(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := h(r, callerOf(r))
		if err == nil {
			var b []byte
			if b, err = json.Marshal(v); err == nil {
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", strconv.Itoa(len(b)))
				s.patience(w)
				_, _ = w.Write(b) // a reader that is gone needs no answer
				return
			}
		}
		s.fail(w, r, err)
	})
}

// job is value for a route with a job's id.
func (s *Server) job(h func(*http.Request, Caller, engine.JobID) (any, error)) http.Handler {
	return s.value(func(r *http.Request, c Caller) (any, error) {
		id, err := jobID(r)
		if err != nil {
			return nil, err
		}
		return h(r, c, id)
	})
}

func jobID(r *http.Request) (engine.JobID, error) {
	id, err := engine.ParseJobID(r.PathValue("id"))
	if err != nil {
		return 0, &Error{Code: CodeInvalid, Message: err.Error()}
	}
	return id, nil
}

// body reads a request's JSON strictly. It is read in full before the backend is called, within the body's time-out.
func (s *Server) body(r *http.Request, into any) error {
	bad := func(format string, args ...any) error {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf(format, args...)}
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, s.o.Limits.Body+1))
	var netErr net.Error
	switch {
	case errors.As(err, &netErr) && netErr.Timeout():
		return bad("the request did not arrive within %v", s.o.Limits.BodyTimeout)
	case err != nil:
		return bad("the request broke off: %v", err)
	case int64(len(b)) > s.o.Limits.Body:
		return bad("the request is larger than %d bytes", s.o.Limits.Body)
	}
	s.deadline(r, 0)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err = dec.Decode(into); err == nil {
		if _, err := dec.Token(); err != io.EOF {
			return bad("the request has something behind its JSON value")
		}
		return nil
	}
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return bad("the request has no body")
	case errors.As(err, &syntax):
		return bad("malformed JSON at byte %d: %v", syntax.Offset, err)
	case errors.As(err, &kind):
		return bad("field %q: want %s, not %s", kind.Field, kind.Type, kind.Value)
	}
	return bad("%s", strings.TrimPrefix(err.Error(), "json: "))
}

func (s *Server) submit(r *http.Request, c Caller) (any, error) {
	var req SubmitRequest
	if err := s.body(r, &req); err != nil {
		return nil, err
	}
	return s.b.Submit(r.Context(), c, req)
}

func (s *Server) stop(why engine.StopReason) func(*http.Request, Caller, engine.JobID) (any, error) {
	return func(r *http.Request, c Caller, id engine.JobID) (any, error) {
		var req StopRequest
		if err := s.body(r, &req); err != nil {
			return nil, err
		}
		if err := checkNote(req.Reason); err != nil {
			return nil, err
		}
		switch {
		case req.For == 0:
			return s.b.Stop(r.Context(), c, id, why, req.Reason)
		case why == engine.StopPreempted && req.For > 0:
			return s.b.PreemptFor(r.Context(), c, id, req.For, req.Reason)
		}
		return nil, &Error{Code: CodeInvalid, Message: "for: only a preemption is for another job"}
	}
}

// query reads a request's options; unknown ones are refused like unknown fields.
func query(r *http.Request, known ...string) (map[string]string, error) {
	out := map[string]string{}
	for name, v := range r.URL.Query() {
		ok := false
		for _, k := range known {
			ok = ok || k == name
		}
		if !ok || len(v) != 1 {
			return nil, &Error{Code: CodeInvalid, Message: fmt.Sprintf("option %q: want one of %s, once", name, strings.Join(known, ", "))}
		}
		out[name] = v[0]
	}
	return out, nil
}

func number(q map[string]string, name string, missing, most int) (int, error) {
	if q[name] == "" {
		return missing, nil
	}
	n, err := strconv.Atoi(q[name])
	if err != nil || n < 0 || n > most {
		return 0, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s %q: want a number from 0 to %d", name, q[name], most)}
	}
	return n, nil
}

func flag(q map[string]string, name string) (bool, error) {
	switch q[name] {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s %q: want true or false", name, q[name])}
}

// list sends one job a line, in pieces, from one buffer.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	q, err := query(r, "ended", "limit")
	ended, err2 := flag(q, "ended")
	limit, err3 := number(q, "limit", defaultList, maxList)
	if err := errors.Join(err, err2, err3); err != nil {
		s.fail(w, r, err)
		return
	}
	jobs, err := s.b.List(r.Context(), callerOf(r), ended, limit)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set(countHeader, strconv.Itoa(len(jobs)))
	s.patience(w)
	const piece = 64 << 10
	buf := make([]byte, 0, piece+4<<10)
	for i := range jobs {
		buf = append(appendJob(buf, &jobs[i]), '\n')
		if len(buf) >= piece || i == len(jobs)-1 {
			s.patience(w)
			if _, err := w.Write(buf); err != nil {
				return
			}
			buf = buf[:0]
		}
	}
}

// patience gives a slow reader the time for the next piece, and no more.
func (s *Server) patience(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(s.o.Limits.WriteTimeout))
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	out := &stream{s: s, w: w, kind: "application/x-ndjson"}
	var buf []byte
	err := s.b.Watch(r.Context(), callerOf(r), func(e WatchEvent) error {
		b, err := json.Marshal(e)
		if err != nil {
			return err
		}
		buf = append(append(buf[:0], b...), '\n')
		_, err = out.Write(buf)
		return err
	})
	out.end(r, err)
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	id, err := jobID(r)
	q, err1 := query(r, "attempt", "follow", "tail", "marks", "from", "json")
	attempt, err2 := number(q, "attempt", 0, 1<<30)
	follow, err3 := flag(q, "follow")
	tail, err4 := number(q, "tail", 0, 1<<30)
	marks, err5 := flag(q, "marks")
	from, err6 := parseMark(q["from"])
	asJSON, err7 := flag(q, "json")
	if err := errors.Join(err, err1, err2, err3, err4, err5, err6, err7); err != nil {
		s.fail(w, r, err)
		return
	}
	out := &stream{s: s, w: w, kind: "application/octet-stream"}
	var to io.Writer = out
	if marks {
		out.kind = markedLog
		to = &markedStream{stream: out}
	}
	out.end(r, s.b.Logs(r.Context(), callerOf(r), id, LogOptions{Attempt: attempt, Follow: follow, Tail: tail, From: from, JSON: asJSON}, to))
}

// errorTrailer carries the error that ended a stream after its status had been sent.
const errorTrailer = "Gputop-Error"

// stream sends each write at once. An error before the first is answered with a status, a later one in a trailer.
type stream struct {
	s    *Server
	w    http.ResponseWriter
	kind string
	sent bool
}

func (st *stream) Write(p []byte) (int, error) {
	if !st.sent {
		st.sent = true
		st.w.Header().Set("Content-Type", st.kind)
	}
	st.s.patience(st.w)
	n, err := st.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, http.NewResponseController(st.w).Flush()
}

func (st *stream) end(r *http.Request, err error) {
	st.s.patience(st.w)
	switch {
	case err == nil && !st.sent:
		st.w.Header().Set("Content-Type", st.kind)
	case err == nil, r.Context().Err() != nil && st.sent:
	case !st.sent:
		st.s.fail(st.w, r, err)
	default:
		st.w.Header().Set(http.TrailerPrefix+errorTrailer, string(mustJSON(st.s.wireError(r, err))))
	}
}

// agent hands the connection over to the agent protocol.
func (s *Server) agent(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != AgentProtocol || !strings.EqualFold(r.Header.Get("Connection"), "upgrade") {
		s.fail(w, r, &Error{Code: CodeInvalid, Message: "want an upgrade to " + AgentProtocol})
		return
	}
	if r.ContentLength != 0 {
		s.fail(w, r, &Error{Code: CodeInvalid, Message: "an upgrade has no body"})
		return
	}
	c := callerOf(r)
	s.agents.Add(1)
	defer s.agents.Done()
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		s.fail(w, r, fmt.Errorf("take over the connection: %w", err))
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(s.o.Limits.WriteTimeout))
	_, err = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\n%s: %d\r\n\r\n", AgentProtocol, VersionHeader, Version)
	if err != nil || conn.SetDeadline(time.Time{}) != nil {
		return
	}
	s.b.ServeAgent(r.Context(), c, withBuffered(conn, rw.Reader))
}

// withBuffered is conn with what was read ahead of it.
func withBuffered(conn net.Conn, r *bufio.Reader) net.Conn {
	if r.Buffered() == 0 {
		return conn
	}
	return &bufferedConn{conn, r}
}

type bufferedConn struct {
	net.Conn
	r *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.r.Read(p) }
