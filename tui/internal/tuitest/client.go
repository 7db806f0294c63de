// Package tuitest stands in for the daemon in tests and in the demo of the terminal interface: a client with made-up
// machines and jobs. It must not be imported by anything that ships.
package tuitest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// Client answers from memory. It panics when called while Drawing is set: inside Update or View.
type Client struct {
	// Drawing is set by a test while Update or View runs.
	Drawing atomic.Bool
	// Now is the clock for what it makes.
	Now func() time.Time
	// Err makes every call but Watch fail.
	Err error
	// Output is what Logs writes; then it waits for the end of its context.
	Output string

	mu        sync.Mutex
	snapshot  api.Snapshot
	submitted []api.SubmitRequest
	stopped   []Stop
	changes   []string
	events    chan api.WatchEvent
	refuse    error
	nextID    engine.JobID
}

// Stop is a cancel or a preempt that was asked for.
type Stop struct {
	ID   engine.JobID
	Why  engine.StopReason
	Note string
}

// New is a client that shows s.
func New(s api.Snapshot) *Client {
	return &Client{snapshot: s, events: make(chan api.WatchEvent), Now: time.Now, nextID: 100}
}

func (c *Client) check() {
	if c.Drawing.Load() {
		panic("tuitest: the client was called inside Update or View")
	}
}

// Submitted lists the jobs submitted so far.
func (c *Client) Submitted() []api.SubmitRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]api.SubmitRequest(nil), c.submitted...)
}

// Stopped lists what was cancelled and preempted.
func (c *Client) Stopped() []Stop {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Stop(nil), c.stopped...)
}

// Refuse makes Watch fail with err; nil lets it work again.
func (c *Client) Refuse(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = err
}

// Send hands an event to the one that watches, or gives up with ctx.
func (c *Client) Send(ctx context.Context, e api.WatchEvent) {
	select {
	case c.events <- e:
	case <-ctx.Done():
	}
}

// Snapshot is what Watch begins with.
func (c *Client) Snapshot() api.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snapshot
}

// Watch sends the snapshot, then what Send hands over.
func (c *Client) Watch(ctx context.Context, send func(api.WatchEvent) error) error {
	c.check()
	c.mu.Lock()
	s, err := c.snapshot, c.refuse
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := send(api.WatchEvent{Snapshot: &s}); err != nil {
		return err
	}
	for {
		select {
		case e := <-c.events:
			if err := send(e); err != nil {
				return err
			}
			c.mu.Lock()
			err := c.refuse
			c.mu.Unlock()
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Submit accepts every job and queues it.
func (c *Client) Submit(ctx context.Context, r api.SubmitRequest) (api.SubmitResponse, error) {
	c.check()
	if c.Err != nil {
		return api.SubmitResponse{}, c.Err
	}
	c.mu.Lock()
	c.submitted = append(c.submitted, r)
	id := c.nextID
	c.nextID++
	c.mu.Unlock()
	j := api.Job{ID: id, Name: r.Spec.Name, Owner: "ana", UID: 1000, Mine: true, Class: r.Spec.Class, State: engine.Pending,
		Position: 99, Request: r.Spec.Request, TimeLimit: r.Spec.TimeLimit, Submitted: c.Now(),
		Reason: &engine.Reason{Code: engine.WaitingForDevice, Needed: 1}}
	go c.Send(ctx, api.WatchEvent{Jobs: []api.Job{j}})
	return api.SubmitResponse{Job: j}, nil
}

// Show tells what the snapshot knows of a job, and a made-up story.
func (c *Client) Show(_ context.Context, id engine.JobID) (api.JobDetail, error) {
	c.check()
	if c.Err != nil {
		return api.JobDetail{}, c.Err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.snapshot.Jobs {
		if j.ID == id {
			return detail(j), nil
		}
	}
	return api.JobDetail{}, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("job %s does not exist", id)}
}

func (c *Client) stop(id engine.JobID, why engine.StopReason, note string) (api.Job, error) {
	c.check()
	if c.Err != nil {
		return api.Job{}, c.Err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = append(c.stopped, Stop{id, why, note})
	return api.Job{ID: id}, nil
}

// Cancel notes the call.
func (c *Client) Cancel(_ context.Context, id engine.JobID, note string) (api.Job, error) {
	return c.stop(id, engine.StopCancelled, note)
}

// Preempt notes the call.
func (c *Client) Preempt(_ context.Context, id engine.JobID, note string) (api.Job, error) {
	return c.stop(id, engine.StopPreempted, note)
}

func (c *Client) change(text string, a ...any) error {
	c.check()
	if c.Err != nil {
		return c.Err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, fmt.Sprintf(text, a...))
	return nil
}

// Changes lists what was held, released, requeued and updated, as words.
func (c *Client) Changes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.changes...)
}

// Hold notes the call.
func (c *Client) Hold(_ context.Context, id engine.JobID, _ string) (api.Job, error) {
	return api.Job{ID: id, Held: true}, c.change("hold %s", id)
}

// Release notes the call.
func (c *Client) Release(_ context.Context, id engine.JobID, _ string) (api.Job, error) {
	return api.Job{ID: id}, c.change("release %s", id)
}

// Requeue notes the call; the job comes back as number 100.
func (c *Client) Requeue(_ context.Context, id engine.JobID, _ string) (api.SubmitResponse, error) {
	return api.SubmitResponse{Job: api.Job{ID: 100}}, c.change("requeue %s", id)
}

// Update notes the new class.
func (c *Client) Update(_ context.Context, id engine.JobID, u api.UpdateRequest) (api.Job, error) {
	return api.Job{ID: id, Class: *u.Class}, c.change("update %s to %s", id, u.Class)
}

// ReadNotices remembers up to where was read.
func (c *Client) ReadNotices(_ context.Context, through int64) error {
	return c.change("read notices through %d", through)
}

// Logs writes Output and waits.
func (c *Client) Logs(ctx context.Context, _ engine.JobID, _ api.LogOptions, w io.Writer) error {
	c.check()
	if c.Err != nil {
		return c.Err
	}
	if _, err := io.WriteString(w, c.Output); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}
