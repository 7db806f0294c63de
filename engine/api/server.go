package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Host is what a client sends as Host. A browser that was talked into a request sends another.
const Host = "gputop"

// AgentProtocol is the word of the upgrade that hands a connection to the agent protocol.
const AgentProtocol = "gputop-agent"

// Limits bound what one caller can take. Zero fields get the defaults.
type Limits struct {
	// Body is the largest request body, in bytes (1 MiB).
	Body int64
	// ConnectionsPerUID and Connections bound what is open at once (64 and 1024).
	ConnectionsPerUID, Connections int
	// HeaderTimeout and BodyTimeout bound how long a request may take to arrive (5 s and 10 s), WriteTimeout how long a
	// reader may let one piece of an answer lie (30 s), IdleTimeout how long an unused connection is kept (2 min).
	HeaderTimeout, BodyTimeout, WriteTimeout, IdleTimeout time.Duration
	// LookupTimeout bounds asking NSS who a uid is (3 s).
	LookupTimeout time.Duration
}

func (l Limits) withDefaults() Limits {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	if l.Body == 0 {
		l.Body = 1 << 20
	}
	if l.ConnectionsPerUID == 0 {
		l.ConnectionsPerUID = 64
	}
	if l.Connections == 0 {
		l.Connections = 1024
	}
	set(&l.HeaderTimeout, 5*time.Second)
	set(&l.BodyTimeout, 10*time.Second)
	set(&l.WriteTimeout, 30*time.Second)
	set(&l.IdleTimeout, 2*time.Minute)
	set(&l.LookupTimeout, 3*time.Second)
	return l
}

// ServerOptions say how to serve. The zero value works.
type ServerOptions struct {
	// AdminGroups are the gids whose members are admins now, besides root and the daemon's own user; nil has none.
	AdminGroups func() []uint32
	// Resolve finds people by uid; LookupUser when nil.
	Resolve Resolve
	// People, when set, is asked instead, with its own time-out. It serves one server.
	People *People
	// SubIDFile lists the subordinate ids that are refused; /etc/subuid when empty.
	SubIDFile string
	// Metrics answers GET /metrics; nil answers nothing.
	Metrics http.Handler
	Log     *slog.Logger
	Limits  Limits
}

// Server answers on a Unix socket. Who calls is read from the socket, never from the message.
type Server struct {
	b       Backend
	o       ServerOptions
	callers *callers
	mux     *http.ServeMux
	agents  sync.WaitGroup
}

// NewServer makes a server for b.
func NewServer(b Backend, o ServerOptions) *Server {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.SubIDFile == "" {
		o.SubIDFile = "/etc/subuid"
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{b: b, o: o, mux: http.NewServeMux()}
	if o.People == nil {
		o.People = NewPeople(o.Resolve, o.Limits.LookupTimeout)
	}
	s.callers = o.People.cs
	s.callers.subuid = &subIDs{path: o.SubIDFile}
	s.routes()
	return s
}

// Serve answers on l until ctx ends, then ends the streams, waits a moment for the other requests and for all agents'
// links, and closes l. It returns nil when ctx ended it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	srv := &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: s.o.Limits.HeaderTimeout,
		IdleTimeout:       s.o.Limits.IdleTimeout,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peerKey{}, c) },
		ErrorLog:          slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(newPeerListener(l, s.o.Limits)) }()
	var err error
	select {
	case err = <-done:
		cancel()
	case <-ctx.Done():
		grace, end := context.WithTimeout(context.Background(), 3*time.Second)
		defer end()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
		err = <-done
	}
	s.agents.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve %s: %w", l.Addr(), err)
}

type peerKey struct{}

// serve is the one door: what holds for every request is checked here.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(VersionHeader, strconv.Itoa(Version))
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.o.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler)
		}
	}()
	if r.ContentLength != 0 {
		// Also where nobody reads the body: the server itself does before the next request. Reading it in time lifts this.
		s.deadline(r, s.o.Limits.BodyTimeout)
	}
	if conn, ok := r.Context().Value(peerKey{}).(*peerConn); ok && conn.refused != nil {
		w.Header().Set("Connection", "close")
		s.fail(w, r, conn.refused)
		return
	}
	if r.Host != Host || r.Header.Get("Origin") != "" {
		s.fail(w, r, &Error{Code: CodeForbidden, Message: "requests from a browser or for another host are refused", Hint: "use gputop"})
		return
	}
	c, err := s.caller(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)))
}

// deadline bounds what is read of the request from now on; 0 is no bound.
func (s *Server) deadline(r *http.Request, d time.Duration) {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	if c, ok := r.Context().Value(peerKey{}).(net.Conn); ok {
		_ = c.SetReadDeadline(t) // a connection that is gone fails at the next read
	}
}

type callerKey struct{}

func callerOf(r *http.Request) Caller { return r.Context().Value(callerKey{}).(Caller) }

func (s *Server) caller(r *http.Request) (Caller, error) {
	conn, ok := r.Context().Value(peerKey{}).(*peerConn)
	if !ok {
		return Caller{}, errors.New("a connection without peer credentials")
	}
	u, groups, err := s.callers.find(conn.cred.Uid)
	if err != nil {
		return Caller{}, err
	}
	c := Caller{User: u, Groups: groups, PID: int(conn.cred.Pid)}
	c.Admin = c.UID == 0 || int(c.UID) == os.Geteuid() || s.o.AdminGroups != nil &&
		slices.ContainsFunc(s.o.AdminGroups(), func(g uint32) bool { return g == c.GID || slices.Contains(groups, g) })
	return c, nil
}

var statusOf = map[ErrorCode]int{
	CodeInvalid: http.StatusBadRequest, CodeForbidden: http.StatusForbidden, CodeNotFound: http.StatusNotFound,
	CodeConflict: http.StatusConflict, CodeTooMany: http.StatusTooManyRequests, CodeInternal: http.StatusInternalServerError,
	CodeUnavailable: http.StatusServiceUnavailable,
}

// wireError is what of err a caller gets.
func (s *Server) wireError(r *http.Request, err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		if statusOf[e.Code] == 0 {
			e = &Error{Code: CodeInternal, Message: e.Message, Hint: e.Hint}
		}
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return &Error{Code: CodeUnavailable, Message: "the daemon is stopping or did not answer in time", Hint: "try again"}
	}
	s.o.Log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
	// The text of a fault may speak of other people's jobs; only who runs the daemon reads it here.
	if c, ok := r.Context().Value(callerKey{}).(Caller); ok && c.Admin {
		return &Error{Code: CodeInternal, Message: err.Error()}
	}
	return &Error{Code: CodeInternal, Message: "the daemon failed on this request", Hint: "its log says more; tell the admin of this machine"}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := s.wireError(r, err)
	w.Header().Set("Content-Type", "application/json")
	s.patience(w)
	w.WriteHeader(statusOf[e.Code])
	_, _ = w.Write(mustJSON(e)) // a reader that is gone needs no answer
}
