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
	Changes
	Reservations
	Noticer
	Imager
	Info(c Caller) Info
	GPUs(c Caller) GPUs
	// Diagnose says what of this machine decides whether the caller's jobs can run; it starts the caller's agent.
	Diagnose(ctx context.Context, c Caller) (Diagnosis, error)
	// Users says what each person holds and may.
	Users(ctx context.Context, c Caller) (Users, error)
	// Report says who used how much of the machine.
	Report(ctx context.Context, c Caller, q ReportQuery) (Report, error)
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
	// Explain says why a job waits.
	Explain(ctx context.Context, c Caller, id engine.JobID) (Explanation, error)
	// Stop cancels or preempts; it answers when the decision is on disk.
	Stop(ctx context.Context, c Caller, id engine.JobID, why engine.StopReason, note string) (Job, error)
	// Wait returns when the job is final or ctx ends.
	Wait(ctx context.Context, c Caller, id engine.JobID) (Job, error)
	// Logs writes the attempt's output (0: the newest) to w, the last tail lines of it when tail > 0, until its end;
	// with follow until the job is final. If w is a LogMarker, it is told before each write what place comes behind it.
	Logs(ctx context.Context, c Caller, id engine.JobID, o LogOptions, w io.Writer) error
	Terminals
}

// Terminals is the part of the backend for who works inside a job.
type Terminals interface {
	Exec(ctx context.Context, c Caller, id engine.JobID) (ExecTarget, error)
	// Attend says that the caller is there for a job, and returns when it is final or ctx ends.
	Attend(ctx context.Context, c Caller, id engine.JobID) (Job, error)
	// Detach lets a job go on although nobody is there.
	Detach(ctx context.Context, c Caller, id engine.JobID) (Job, error)
}

// Changes is the part of the backend that changes what waits or has ended, and tells who did what.
type Changes interface {
	// Hold keeps a waiting job from its turn, or releases it; it answers when that is on disk.
	Hold(ctx context.Context, c Caller, id engine.JobID, hold bool, note string) (Job, error)
	// PreemptFor stops somebody's running job for a waiting one of the caller's that gains by it.
	PreemptFor(ctx context.Context, c Caller, id, gains engine.JobID, note string) (Job, error)
	// Requeue preempts a running job, and submits an ended one again: the answer's job is then a new one.
	Requeue(ctx context.Context, c Caller, id engine.JobID, note string) (SubmitResponse, error)
	Update(ctx context.Context, c Caller, id engine.JobID, u UpdateRequest) (Job, error)
	// Audit reads the trail: all of it for admins, else what the caller did and what was done to their jobs.
	Audit(ctx context.Context, c Caller, q AuditQuery) (Audit, error)
}

// LogOptions say what of a job's output to send.
type LogOptions struct {
	Attempt int
	Follow  bool
	Tail    int
	// From goes on behind a mark, over the attempts after it too; the zero value begins at the beginning.
	From LogMark
	// JSON sends agentrpc.LogLine objects, one a line.
	JSON bool
}

// LogMark is a place in a job's output. Offset means something only to the agent that gave it.
type LogMark struct {
	Attempt int
	Offset  int64
	File    uint64
}

// LogMarker is a reader of output that can go on where it was broken off.
type LogMarker interface {
	Mark(LogMark)
}
