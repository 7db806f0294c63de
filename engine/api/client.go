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
	"net/url"
	"strconv"
	"sync"
	"time"

	"gputop/engine"
)

// ErrUnreachable means that nobody answers on the socket: start the daemon, or look at why it is down.
var ErrUnreachable = errors.New("the gputop daemon does not answer")

// maxAnswer bounds an answer that is one JSON value, maxLine one line of a stream, in bytes.
const (
	maxAnswer = 64 << 20
	maxLine   = 64 << 20
)

// Client talks to the daemon behind Socket. The zero value with a Socket works; it must not be copied after use. Errors
// of the daemon unwrap to *Error, those of nobody answering to ErrUnreachable. Times are bounded by ctx alone.
type Client struct {
	Socket string

	once sync.Once
	http *http.Client
}

func (c *Client) transport() *http.Client {
	c.once.Do(func() {
		c.http = &http.Client{Transport: &http.Transport{
			DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
			DisableCompression: true,
			MaxIdleConns:       4,
			ReadBufferSize:     64 << 10,
		}}
	})
	return c.http
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	if err := CheckSocketPath(c.Socket); err != nil {
		return nil, err
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("%w on %s: %w", ErrUnreachable, c.Socket, err)
	}
	return conn, err
}

// Close drops idle connections.
func (c *Client) Close() { c.transport().CloseIdleConnections() }

// do sends a request and returns an answer with status 200; its body is the caller's to close.
func (c *Client) do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+Host+path, r)
	if err != nil {
		return nil, err
	}
	resp, err := c.transport().Do(req)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the address says nothing to a person
		}
		return nil, err
	}
	if err := checkAnswer(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// checkAnswer refuses answers of another wire version and turns refusals into *Error.
func checkAnswer(resp *http.Response) error {
	switch v := resp.Header.Get(VersionHeader); {
	case v == "":
		return errors.New("what answers on the socket is not gputop's daemon")
	case v != strconv.Itoa(Version):
		return fmt.Errorf("the daemon speaks version %.20s, this gputop %d: install the same version of both", strconv.Quote(v), Version)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("the daemon's answer (%s) broke off: %w", resp.Status, err)
	}
	e := &Error{}
	if json.Unmarshal(b, e) != nil || e.Message == "" {
		return &Error{Code: CodeInternal, Message: "the daemon answered " + resp.Status}
	}
	return e
}

// call sends a request and decodes its answer.
func call[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		return out, fmt.Errorf("the daemon's answer broke off or can't be read: %w", err)
	}
	return out, nil
}

func jobPath(id engine.JobID, what string) string { return "/v1/jobs/" + id.String() + what }

// Info says who answers.
func (c *Client) Info(ctx context.Context) (Info, error) {
	return call[Info](ctx, c, http.MethodGet, "/v1/info", nil)
}

// GPUs is the newest sample.
func (c *Client) GPUs(ctx context.Context) (GPUs, error) {
	return call[GPUs](ctx, c, http.MethodGet, "/v1/gpus", nil)
}

// Submit hands a job in; it is on disk when this returns.
func (c *Client) Submit(ctx context.Context, r SubmitRequest) (SubmitResponse, error) {
	return call[SubmitResponse](ctx, c, http.MethodPost, "/v1/jobs", r)
}

// Show is everything the caller may see of one job.
func (c *Client) Show(ctx context.Context, id engine.JobID) (JobDetail, error) {
	return call[JobDetail](ctx, c, http.MethodGet, jobPath(id, ""), nil)
}

// Cancel ends a job for good; note is a sentence for its story. The decision is on disk when this returns.
func (c *Client) Cancel(ctx context.Context, id engine.JobID, note string) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/cancel"), StopRequest{Reason: note})
}

// Preempt stops a running job and puts it back in the queue.
func (c *Client) Preempt(ctx context.Context, id engine.JobID, note string) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/preempt"), StopRequest{Reason: note})
}

// PreemptFor preempts somebody's running job for a waiting one of one's own that gains by it.
func (c *Client) PreemptFor(ctx context.Context, id, gains engine.JobID, note string) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/preempt"), StopRequest{Reason: note, For: gains})
}

// Hold keeps a waiting job from its turn until it is released.
func (c *Client) Hold(ctx context.Context, id engine.JobID, note string) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/hold"), StopRequest{Reason: note})
}

// Release lets a held job have its turn, at its old place.
func (c *Client) Release(ctx context.Context, id engine.JobID, note string) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/release"), StopRequest{Reason: note})
}

// Requeue preempts a running job; an ended one is submitted again, and the answer has the new job.
func (c *Client) Requeue(ctx context.Context, id engine.JobID, note string) (SubmitResponse, error) {
	return call[SubmitResponse](ctx, c, http.MethodPost, jobPath(id, "/requeue"), StopRequest{Reason: note})
}

// Update changes a job. The change is on disk when this returns.
func (c *Client) Update(ctx context.Context, id engine.JobID, u UpdateRequest) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/update"), u)
}

// Audit reads the audit trail: all of it for admins, else what concerns the caller.
func (c *Client) Audit(ctx context.Context, q AuditQuery) (Audit, error) {
	v := url.Values{}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339))
	}
	if q.User != "" {
		v.Set("user", q.User)
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return call[Audit](ctx, c, http.MethodGet, "/v1/audit?"+v.Encode(), nil)
}

// Wait returns when the job is final or ctx ends.
func (c *Client) Wait(ctx context.Context, id engine.JobID) (Job, error) {
	return call[Job](ctx, c, http.MethodGet, jobPath(id, "/wait"), nil)
}

// Attend says that one is there for a job, and returns when it is final or ctx ends.
func (c *Client) Attend(ctx context.Context, id engine.JobID) (Job, error) {
	return call[Job](ctx, c, http.MethodGet, jobPath(id, "/attend"), nil)
}

// Detach lets a job go on although nobody is there.
func (c *Client) Detach(ctx context.Context, id engine.JobID) (Job, error) {
	return call[Job](ctx, c, http.MethodPost, jobPath(id, "/detach"), nil)
}

// Exec is what the owner needs to enter the job's container.
func (c *Client) Exec(ctx context.Context, id engine.JobID) (ExecTarget, error) {
	return call[ExecTarget](ctx, c, http.MethodGet, jobPath(id, "/exec"), nil)
}

// List returns queued, active and recently ended jobs; with ended also older ones, newest first, at most limit.
func (c *Client) List(ctx context.Context, ended bool, limit int) ([]Job, error) {
	resp, err := c.do(ctx, http.MethodGet, fmt.Sprintf("/v1/jobs?ended=%t&limit=%d", ended, limit), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	count, _ := strconv.Atoi(resp.Header.Get(countHeader)) // a wrong number costs only time
	jobs := make([]Job, 0, min(max(count, 0), maxList))
	reader := newJobReader()
	err = eachLine(resp.Body, func(line []byte) error {
		if len(jobs) == cap(jobs) {
			jobs = append(make([]Job, 0, 2*len(jobs)+64), jobs...)
		}
		jobs = jobs[:len(jobs)+1]
		return reader.read(line, &jobs[len(jobs)-1])
	})
	if err != nil {
		return nil, fmt.Errorf("the list broke off or can't be read: %w", err)
	}
	return jobs, streamError(resp)
}

// Logs writes a job's output to w until its end; with o.Follow until the job is final.
func (c *Client) Logs(ctx context.Context, id engine.JobID, o LogOptions, w io.Writer) error {
	return c.LogsFrom(ctx, id, &o, w)
}

// LogsFrom is Logs that keeps o.From behind what it has written: called again after a break it goes on there.
func (c *Client) LogsFrom(ctx context.Context, id engine.JobID, o *LogOptions, w io.Writer) error {
	q := fmt.Sprintf("/logs?attempt=%d&follow=%t&tail=%d&marks=true", o.Attempt, o.Follow, o.Tail)
	if o.From != (LogMark{}) {
		q += "&from=" + o.From.String()
	}
	if o.JSON {
		q += "&json=true"
	}
	resp, err := c.do(ctx, http.MethodGet, jobPath(id, q), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := copyMarked(w, resp.Body, &o.From); err != nil {
		return fmt.Errorf("output of job %s broke off: %w", id, err)
	}
	return streamError(resp)
}

// Watch calls send with a snapshot, then with every change, until ctx ends, send fails or the link breaks. A watch that
// the daemon ended, for example because it stops, is io.EOF: connect again.
func (c *Client) Watch(ctx context.Context, send func(WatchEvent) error) error {
	resp, err := c.do(ctx, http.MethodGet, "/v1/watch", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	err = eachLine(resp.Body, func(line []byte) error {
		var e WatchEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("an event can't be read: %w", err)
		}
		return send(e)
	})
	if err == nil {
		err = streamError(resp)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil:
		return io.EOF
	}
	return err
}

// streamError is the error that ended a stream, once all of it was read.
func streamError(resp *http.Response) error {
	t := resp.Trailer.Get(errorTrailer)
	if t == "" {
		return nil
	}
	e := &Error{}
	if json.Unmarshal([]byte(t), e) != nil {
		return &Error{Code: CodeInternal, Message: "the daemon ended the stream with an error it could not send"}
	}
	return e
}

// eachLine calls f with each line; the line is f's until it returns.
func eachLine(r io.Reader, f func([]byte) error) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var long []byte
	for {
		part, err := br.ReadSlice('\n')
		line := part
		if errors.Is(err, bufio.ErrBufferFull) || len(long) > 0 {
			if long = append(long, part...); len(long) > maxLine {
				return fmt.Errorf("a line is longer than %d bytes", maxLine)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			line, long = long, long[:0]
		}
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		if err := f(line); err != nil {
			return err
		}
	}
}

// DialAgent opens the link on which the daemon talks to the calling user's agent. What follows on it is the agent
// protocol.
func (c *Client) DialAgent(ctx context.Context) (net.Conn, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	_, err = fmt.Fprintf(conn, "POST /v1/agent HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Host, AgentProtocol)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("agent link: %w", err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodPost})
	if err == nil {
		err = checkAnswer(resp)
	}
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("the daemon answered %s", resp.Status)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("agent link: %w", err)
	}
	return withBuffered(conn, r), nil
}
