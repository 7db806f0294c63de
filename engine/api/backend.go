package api

import (
	"context"
	"io"
	"net"

	"gputop/engine"
)

// Caller is who makes a request, from the socket's peer credentials.
type Caller struct {
	engine.User
	Groups []uint32
	PID    int
	Admin  bool
}

// Backend is what the server needs of the daemon. Each method enforces permission itself, answers within its context,
// and returns *Error for what a caller did wrong.
type Backend interface {
	Jobs
	Info(c Caller) Info
	GPUs(c Caller) GPUs
	// Watch calls send with a snapshot, then with every change, until ctx ends or send fails.
	Watch(ctx context.Context, c Caller, send func(WatchEvent) error) error
	// ServeAgent takes over the connection of the caller's own agent.
	ServeAgent(ctx context.Context, c Caller, conn net.Conn)
}

// Jobs is the part of the backend that is about jobs.
type Jobs interface {
	Submit(ctx context.Context, c Caller, r SubmitRequest) (SubmitResponse, error)
	// List returns queued, active and recently ended jobs; with ended true also older ones, newest first, at most limit.
	List(ctx context.Context, c Caller, ended bool, limit int) ([]Job, error)
	Show(ctx context.Context, c Caller, id engine.JobID) (JobDetail, error)
	// Stop cancels or preempts; it answers when the decision is on disk.
	Stop(ctx context.Context, c Caller, id engine.JobID, why engine.StopReason, note string) (Job, error)
	// Wait returns when the job is final or ctx ends.
	Wait(ctx context.Context, c Caller, id engine.JobID) (Job, error)
	// Logs writes the attempt's output (0: the newest) to w, the last tail lines of it when tail > 0, until its end;
	// with follow until the job is final.
	Logs(ctx context.Context, c Caller, id engine.JobID, o LogOptions, w io.Writer) error
	Exec(ctx context.Context, c Caller, id engine.JobID) (ExecTarget, error)
}

// LogOptions say what of a job's output to send.
type LogOptions struct {
	Attempt int
	Follow  bool
	Tail    int
}
