package agentrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// RawObject is undecoded JSON.
type RawObject = json.RawMessage

// ErrClosed is returned by calls on a connection that has ended: the outcome of a call under way is unknown.
var ErrClosed = errors.New("the link to the agent is closed")

// writeTimeout bounds one frame's write: a peer that does not read loses its link, not our goroutine.
const writeTimeout = 10 * time.Second

// maxConcurrent bounds how many of the peer's calls are served at once, and maxAccepted how many are served or wait:
// beyond it nothing more is read.
const (
	maxConcurrent = 32
	maxAccepted   = 1024
)

// Handler serves one call. What it returns is marshalled as the result.
type Handler func(ctx context.Context, method Method, params RawObject) (any, error)

// Conn is one end of a connection: it makes calls, serves the peer's, and passes notes on.
type Conn struct {
	c      net.Conn
	r      *bufio.Reader
	handle Handler
	note   func(Method, RawObject)

	wmu     sync.Mutex
	mu      sync.Mutex
	nextID  uint64
	waiting map[uint64]chan Frame
	err     error
	done    chan struct{}
}

// NewConn wraps a connection. r may hold bytes already read from c. handle serves the peer's calls and note its notes,
// in order, from the reading goroutine; either may be nil.
func NewConn(c net.Conn, r *bufio.Reader, handle Handler, note func(Method, RawObject)) *Conn {
	if r == nil {
		r = bufio.NewReader(c)
	}
	return &Conn{c: c, r: r, handle: handle, note: note, waiting: map[uint64]chan Frame{}, done: make(chan struct{})}
}

// Serve reads frames until the connection ends or ctx is done, and returns why. It waits for the calls it serves.
func (c *Conn) Serve(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.c.Close() })
	defer stop()
	var calls sync.WaitGroup
	slots, accepted := make(chan struct{}, maxConcurrent), make(chan struct{}, maxAccepted)
	err := c.read(func(f Frame) {
		accepted <- struct{}{}
		calls.Go(func() {
			defer func() { <-accepted }()
			if f.Method == MethodPing {
				_ = c.write(Frame{ID: f.ID, Result: RawObject("null")}) // a lost link is seen by the reader
				return
			}
			// Waiting here and not in the reader: a ping is answered also while every slot is taken.
			slots <- struct{}{}
			defer func() { <-slots }()
			c.answer(ctx, f)
		})
	})
	c.fail(err)
	cancel()
	calls.Wait()
	return err
}

func (c *Conn) read(serve func(Frame)) error {
	for {
		line, err := readLine(c.r)
		if err != nil {
			return err
		}
		var f Frame
		if err := json.Unmarshal(line, &f); err != nil {
			return fmt.Errorf("malformed frame: %w", err)
		}
		if f.Attached < 0 || f.Attached > MaxFrame {
			return fmt.Errorf("malformed frame: %d bytes attached", f.Attached)
		}
		if f.Attached > 0 {
			f.attached = make([]byte, f.Attached)
			if _, err := io.ReadFull(c.r, f.attached); err != nil {
				return err
			}
		}
		switch {
		case f.Method != "" && f.ID != 0:
			if c.handle == nil {
				return fmt.Errorf("unexpected call %q", f.Method)
			}
			serve(f)
		case f.Method != "":
			if c.note != nil {
				c.note(f.Method, f.Params)
			}
		case f.ID != 0:
			c.mu.Lock()
			ch := c.waiting[f.ID]
			delete(c.waiting, f.ID)
			c.mu.Unlock()
			if ch != nil {
				ch <- f
			}
		default:
			return errors.New("malformed frame: neither call, answer nor note")
		}
	}
}

// readLine reads one line of at most MaxFrame bytes.
func readLine(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > MaxFrame {
			return nil, fmt.Errorf("frame larger than %d bytes", MaxFrame)
		}
		if err == nil {
			return line, nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

func (c *Conn) answer(ctx context.Context, f Frame) {
	result, err := c.handle(ctx, f.Method, f.Params)
	out := Frame{ID: f.ID}
	if r, ok := result.(LogChunk); ok && err == nil {
		out.attached, out.Attached = r.Data, len(r.Data)
		r.Data = nil
		result = r
	}
	if err == nil && result != nil {
		out.Result, err = json.Marshal(result)
	}
	if err != nil {
		out = Frame{ID: f.ID, Error: &Error{Code: CodeOf(err), Message: err.Error()}}
	} else if out.Result == nil {
		out.Result = RawObject("null")
	}
	// A lost link is seen by the reader.
	_ = c.write(out)
}

func (c *Conn) write(f Frame) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if n := max(len(b), len(f.attached)); n >= MaxFrame {
		return &Error{Code: CodeInvalid, Message: fmt.Sprintf("message of %d bytes is larger than the %d allowed", n, MaxFrame)}
	}
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err = c.c.Write(append(b, '\n'))
	if err == nil && len(f.attached) > 0 {
		_, err = c.c.Write(f.attached)
	}
	if err != nil {
		c.c.Close()
	}
	return err
}

// Call makes one call and decodes its result into out, unless out is nil. An *Error is the peer's word; any other error
// means that the outcome is unknown.
func (c *Conn) Call(ctx context.Context, m Method, params, out any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	ch := make(chan Frame, 1)
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return c.err
	}
	c.nextID++
	id := c.nextID
	c.waiting[id] = ch
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
	}()
	if err := c.write(Frame{ID: id, Method: m, Params: raw}); err != nil {
		return fmt.Errorf("%s: %w", m, err)
	}
	select {
	case f := <-ch:
		if f.Error != nil {
			return f.Error
		}
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(f.Result, out); err != nil {
			return fmt.Errorf("%s: malformed answer: %w", m, err)
		}
		if chunk, ok := out.(*LogChunk); ok {
			chunk.Data = f.attached
		}
		return nil
	case <-c.done:
		return fmt.Errorf("%s: %w", m, ErrClosed)
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", m, ctx.Err())
	}
}

// Note sends a note.
func (c *Conn) Note(m Method, params any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return c.write(Frame{Method: m, Params: raw})
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close ends the connection; Serve returns.
func (c *Conn) Close() error { return c.c.Close() }

func (c *Conn) fail(err error) {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		err = ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
		c.c.Close()
	}
}
