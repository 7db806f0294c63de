package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gputop/engine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func TestRoundTrips(t *testing.T) {
	f := &fake{jobs: someJobs(3), pieces: []string{"one\n", "two\n"}}
	c := start(t, f, ServerOptions{})
	info, err := c.Info(ctx)
	me := engine.User{UID: uint32(os.Getuid()), GID: 100, Name: "alice"}
	if err != nil || info.Caller != me || !info.Admin {
		t.Errorf("info: %+v, %v", info, err)
	}
	if !reflect.DeepEqual(f.caller, Caller{User: me, Groups: []uint32{100, 200}, PID: os.Getpid(), Admin: true}) {
		t.Errorf("caller %+v", f.caller)
	}
	if g, err := c.GPUs(ctx); err != nil || g.Driver != "1.2" {
		t.Errorf("gpus: %+v, %v", g, err)
	}
	spec := engine.Spec{Name: "<a>", Class: engine.High, Command: []string{"x"}, TimeLimit: time.Hour}
	if r, err := c.Submit(ctx, SubmitRequest{Spec: spec}); err != nil || r.Job.ID != 7 || !reflect.DeepEqual(f.got.Spec, spec) {
		t.Errorf("submit: %+v, %v; the backend got %+v", r, err, f.got.Spec)
	}
	if jobs, err := c.List(ctx, true, 2); err != nil || !reflect.DeepEqual(jobs, f.jobs[:2]) {
		t.Errorf("list: %+v, %v", jobs, err)
	}
	if jobs, err := c.List(ctx, true, 0); err != nil || jobs == nil || len(jobs) != 0 {
		t.Errorf("empty list: %#v, %v", jobs, err)
	}
	if d, err := c.Show(ctx, 5); err != nil || d.ID != 5 {
		t.Errorf("show: %+v, %v", d, err)
	}
	if j, err := c.Cancel(ctx, 5, "why"); err != nil || j.ID != 5 || f.stop != "5 cancelled why" {
		t.Errorf("cancel: %+v, %v, %s", j, err, f.stop)
	}
	if _, err := c.Preempt(ctx, 6, ""); err != nil || f.stop != "6 preempted " {
		t.Errorf("preempt: %v, %q", err, f.stop)
	}
	if e, err := c.Exec(ctx, 5); err != nil || e.ContainerID != "abc" {
		t.Errorf("exec: %+v, %v", e, err)
	}
	var out bytes.Buffer
	if err := c.Logs(ctx, 5, LogOptions{Tail: 3}, &out); err != nil || out.String() != "one\ntwo\n" {
		t.Errorf("logs: %q, %v", out.String(), err)
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := c.Wait(short, 5); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait: %v", err)
	}
}

func TestErrors(t *testing.T) {
	for _, want := range []*Error{
		{CodeInvalid, "bad", "do this"}, {CodeForbidden, "not yours", ""}, {CodeNotFound, "no job 5", ""}, {CodeConflict, "ended", ""},
		{CodeTooMany, "slow down", ""}, {CodeUnavailable, "disk full", "nothing was kept"},
	} {
		c := start(t, &fake{err: fmt.Errorf("wrapped: %w", want)}, ServerOptions{})
		_, err := c.Show(ctx, 5)
		var got *Error
		if !errors.As(err, &got) || *got != *want {
			t.Errorf("got %v, want %v", err, want)
		}
		for name, err := range map[string]error{
			"list": func() error { _, err := c.List(ctx, false, 1); return err }(),
			"logs": c.Logs(ctx, 5, LogOptions{}, io.Discard),
		} {
			if !errors.As(err, &got) || *got != *want {
				t.Errorf("%s: got %v, want %v", name, err, want)
			}
		}
	}
}

func TestErrorInsideStream(t *testing.T) {
	f := &fake{pieces: []string{"half"}, lateEr: &Error{Code: CodeUnavailable, Message: "the agent is gone"}, events: make(chan WatchEvent, 1)}
	c := start(t, f, ServerOptions{})
	var out bytes.Buffer
	var got *Error
	if err := c.Logs(ctx, 5, LogOptions{}, &out); !errors.As(err, &got) || got.Message != "the agent is gone" || out.String() != "half" {
		t.Errorf("logs: %q, %v", out.String(), err)
	}
	f.events <- WatchEvent{}
	close(f.events)
	if err := c.Watch(ctx, func(WatchEvent) error { return nil }); !errors.As(err, &got) {
		t.Errorf("watch: %v", err)
	}
}

func TestPanicIsOneFailedRequest(t *testing.T) {
	c := start(t, &fake{}, ServerOptions{})
	if _, err := c.Show(ctx, 13); err == nil {
		t.Error("a panic was answered")
	}
	if _, err := c.Show(ctx, 14); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestWatch(t *testing.T) {
	f := &fake{events: make(chan WatchEvent)}
	c := start(t, f, ServerOptions{})
	watching, cancel := context.WithCancel(ctx)
	got := make(chan WatchEvent)
	done := make(chan error, 1)
	go func() { done <- c.Watch(watching, func(e WatchEvent) error { got <- e; return nil }) }()
	for i := range 3 { // each comes through by itself, not when the next one pushes
		f.events <- WatchEvent{Removed: []engine.JobID{engine.JobID(i)}}
		if e := <-got; len(e.Removed) != 1 || e.Removed[0] != engine.JobID(i) {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("watch ended with %v", err)
	}

	// The daemon may still serve the watch that was just cancelled: each part has a daemon of its own.
	f = &fake{events: make(chan WatchEvent)}
	c = start(t, f, ServerOptions{})
	stop := errors.New("enough")
	go func() { done <- c.Watch(ctx, func(WatchEvent) error { return stop }) }()
	f.events <- WatchEvent{}
	if err := <-done; !errors.Is(err, stop) {
		t.Errorf("watch ended with %v", err)
	}
	f = &fake{events: make(chan WatchEvent)}
	c = start(t, f, ServerOptions{})
	go func() { done <- c.Watch(ctx, func(WatchEvent) error { return nil }) }()
	close(f.events)
	if err := <-done; err != io.EOF {
		t.Errorf("the daemon ended the watch: %v", err)
	}
}

func TestAgentLink(t *testing.T) {
	asked := make(chan Caller, 1)
	f := &fake{agent: func(ctx context.Context, c Caller, conn net.Conn) {
		asked <- c
		_, _ = io.Copy(conn, conn)
	}}
	c := start(t, f, ServerOptions{})
	conn, err := c.DialAgent(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if who := <-asked; who.Name != "alice" || who.PID != os.Getpid() {
		t.Errorf("caller %+v", who)
	}
	fmt.Fprintln(conn, "hello")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "hello\n" {
		t.Errorf("echo %q, %v", line, err)
	}
	conn.Close()

	// What comes in one piece with the upgrade is not lost.
	raw := rawDial(t, c)
	fmt.Fprintf(raw, "POST /v1/agent HTTP/1.1\r\nHost: gputop\r\nConnection: Upgrade\r\nUpgrade: gputop-agent\r\n\r\nearly\n")
	r := bufio.NewReader(raw)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("upgrade: %v, %v", resp, err)
	}
	if line, err := r.ReadString('\n'); err != nil || line != "early\n" {
		t.Errorf("echo %q, %v", line, err)
	}
	raw.Close()
}

func rawDial(t *testing.T, c *Client) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", c.Socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// raw sends bytes and reads one answer.
func raw(t *testing.T, c *Client, request string) (int, *Error) {
	t.Helper()
	conn := rawDial(t, c)
	fmt.Fprint(conn, request)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	e := &Error{}
	if json.Unmarshal(b, e) != nil {
		e.Message = string(b)
	}
	return resp.StatusCode, e
}

func post(body string) string {
	return fmt.Sprintf("POST /v1/jobs HTTP/1.1\r\nHost: gputop\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func TestRefusedRequests(t *testing.T) {
	c := start(t, &fake{}, ServerOptions{Limits: Limits{Body: 200, BodyTimeout: 50 * time.Millisecond, HeaderTimeout: 50 * time.Millisecond}})
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: gputop\r\n\r\n" }
	for _, tc := range []struct {
		name, request string
		status        int
		want          string
	}{
		{"origin", "GET /v1/info HTTP/1.1\r\nHost: gputop\r\nOrigin: http://evil\r\n\r\n", 403, "from a browser"},
		{"host", "GET /v1/info HTTP/1.1\r\nHost: localhost\r\n\r\n", 403, "for another host"},
		{"no such path", get("/v2/info"), 404, "no such request: GET /v2/info"},
		{"wrong method", "DELETE /v1/jobs/1 HTTP/1.1\r\nHost: gputop\r\n\r\n", 404, "no such request: DELETE"},
		{"unknown field", post(`{"spec":{},"force":true}`), 400, `unknown field "force"`},
		{"unknown inner field", post(`{"spec":{"privileged":true}}`), 400, `unknown field "privileged"`},
		{"wrong type", post(`{"spec":{"retries":"many"}}`), 400, `field "spec.retries": want int, not string`},
		{"class", post(`{"spec":{"class":"urgent"}}`), 400, `class "urgent": want critical`},
		{"syntax", post(`{"spec":`), 400, "unexpected EOF"},
		{"not JSON", post(`hello`), 400, "malformed JSON at byte 1"},
		{"empty", post(``), 400, "the request has no body"},
		{"two values", post(`{} {}`), 400, "something behind its JSON value"},
		{"too large", post(`{"spec":{"name":"` + strings.Repeat("x", 300) + `"}}`), 400, "larger than 200 bytes"},
		{"chunked and too large", "POST /v1/jobs HTTP/1.1\r\nHost: gputop\r\nTransfer-Encoding: chunked\r\n\r\n12c\r\n" + strings.Repeat(" ", 300) + "\r\n0\r\n\r\n", 400, "larger than 200 bytes"},
		{"slow body", "POST /v1/jobs HTTP/1.1\r\nHost: gputop\r\nContent-Length: 100\r\n\r\n{", 400, "did not arrive within 50ms"},
		{"bad id", get("/v1/jobs/abc"), 400, `job id "abc"`},
		{"negative id", get("/v1/jobs/-1"), 400, `job id "-1"`},
		{"bad limit", get("/v1/jobs?limit=x"), 400, `limit "x": want a number`},
		{"bad flag", get("/v1/jobs?ended=yes"), 400, `ended "yes": want true or false`},
		{"unknown option", get("/v1/jobs?all=1"), 400, `option "all"`},
		{"agent without upgrade", "POST /v1/agent HTTP/1.1\r\nHost: gputop\r\n\r\n", 400, "want an upgrade"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status, e := raw(t, c, tc.request)
			if status != tc.status || !strings.Contains(e.Message, tc.want) {
				t.Errorf("got %d %v, want %d …%s…", status, e, tc.status, tc.want)
			}
		})
	}
	t.Run("slow header", func(t *testing.T) {
		conn := rawDial(t, c)
		fmt.Fprint(conn, "GET /v1/info HT")
		if b, err := io.ReadAll(conn); err != nil || strings.Contains(string(b), "200 OK") {
			t.Errorf("got %q, %v; want a closed connection", b, err)
		}
	})
	if _, err := c.Info(ctx); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// A link that comes back within the write time-out's reach after a long pause still ends properly.
func TestPauseInStreamIsNoTimeout(t *testing.T) {
	f := &fake{events: make(chan WatchEvent)}
	c := start(t, f, ServerOptions{Limits: Limits{WriteTimeout: 30 * time.Millisecond}})
	n := 0
	done := make(chan error, 1)
	go func() { done <- c.Watch(ctx, func(WatchEvent) error { n++; return nil }) }()
	f.events <- WatchEvent{}
	<-time.After(60 * time.Millisecond) // the pause is what is tested
	f.events <- WatchEvent{}
	<-time.After(60 * time.Millisecond)
	close(f.events)
	if err := <-done; err != io.EOF || n != 2 {
		t.Errorf("%d events, then %v", n, err)
	}
}

func TestConnectionsPerUID(t *testing.T) {
	c := start(t, &fake{}, ServerOptions{Limits: Limits{ConnectionsPerUID: 2}})
	held := []net.Conn{rawDial(t, c), rawDial(t, c)}
	for _, h := range held { // answered, so both are counted
		fmt.Fprint(h, "GET /v1/info HTTP/1.1\r\nHost: gputop\r\n\r\n")
		if _, err := h.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := c.Info(ctx)
	var e *Error
	if !errors.As(err, &e) || e.Code != CodeTooMany || !strings.Contains(e.Message, "has 2 connections open") {
		t.Errorf("got %v", err)
	}
	c.Close()
	for range 2 { // far over the limit there is not even an answer
		held = append(held, rawDial(t, c))
	}
	if b, err := io.ReadAll(rawDial(t, c)); len(b) != 0 {
		t.Errorf("far over the limit: %q, %v", b, err)
	}
	for _, h := range held {
		h.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); ; { // the server sees the close on its own time
		if _, err := c.Info(ctx); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the place is not given back: %v", err)
		}
	}
}

// No bytes bring the server down or make it answer 200 to what is no request.
func FuzzHandshake(f *testing.F) {
	f.Add("POST /v1/agent HTTP/1.1\r\nHost: gputop\r\nConnection: Upgrade\r\nUpgrade: gputop-agent\r\n\r\n")
	f.Add("POST /v1/jobs HTTP/1.1\r\nHost: gputop\r\nContent-Length: 2\r\n\r\n{}")
	f.Add("GET /v1/jobs/%2e%2e HTTP/1.1\r\nHost: gputop\r\n\r\n")
	f.Add("\x00\x01")
	dir, err := os.MkdirTemp("", "gt")
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { os.RemoveAll(dir) })
	back := &fake{events: make(chan WatchEvent), agent: func(context.Context, Caller, net.Conn) {}}
	c := start(f, back, ServerOptions{Limits: Limits{HeaderTimeout: 20 * time.Millisecond, BodyTimeout: 20 * time.Millisecond}})
	f.Fuzz(func(t *testing.T, s string) {
		conn, err := net.Dial("unix", c.Socket)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(conn, s)
		_ = conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
		if _, err := c.Info(ctx); err != nil {
			t.Fatalf("after %q: %v", s, err)
		}
	})
}
