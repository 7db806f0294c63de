package api

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gputop/engine"
)

// fake is a daemon that remembers who asked for what.
type fake struct {
	mu     sync.Mutex
	caller Caller
	got    SubmitRequest
	stop   string
	update UpdateRequest
	query  AuditQuery
	jobs   []Job
	err    error
	events chan WatchEvent
	pieces []string
	marks  []LogMark // behind each piece
	logs   LogOptions
	lateEr error
	agent  func(ctx context.Context, c Caller, conn net.Conn)
}

func (f *fake) note(c Caller) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.caller = c
	return f.err
}

func (f *fake) Info(c Caller) Info {
	_ = f.note(c)
	return Info{API: Version, Version: "test", Caller: c.User, Admin: c.Admin, Defaults: Defaults{Class: engine.Medium}}
}

func (f *fake) GPUs(c Caller) GPUs { return GPUs{Driver: "1.2"} }

func (f *fake) Submit(ctx context.Context, c Caller, r SubmitRequest) (SubmitResponse, error) {
	err := f.note(c)
	f.got = r
	return SubmitResponse{Job: Job{ID: 7, Class: engine.Low}}, err
}

func (f *fake) List(ctx context.Context, c Caller, ended bool, limit int) ([]Job, error) {
	return f.jobs[:min(limit, len(f.jobs))], f.note(c)
}

func (f *fake) Show(ctx context.Context, c Caller, id engine.JobID) (JobDetail, error) {
	if id == 13 {
		panic("unlucky")
	}
	return JobDetail{Job: Job{ID: id, Class: engine.Low}}, f.note(c)
}

func (f *fake) Stop(ctx context.Context, c Caller, id engine.JobID, why engine.StopReason, note string) (Job, error) {
	f.stop = fmt.Sprintf("%v %v %v", id, why, note)
	return Job{ID: id, Class: engine.Low}, f.note(c)
}

func (f *fake) Hold(ctx context.Context, c Caller, id engine.JobID, hold bool, note string) (Job, error) {
	f.stop = fmt.Sprintf("%v hold=%v %v", id, hold, note)
	return Job{ID: id, Held: hold, Class: engine.Low}, f.note(c)
}

func (f *fake) Images(ctx context.Context, c Caller) (Images, error) {
	return Images{Ready: []string{"docker.io/library/python:3"}}, f.note(c)
}

func (f *fake) Notices(ctx context.Context, c Caller, limit int) (Notices, error) {
	return Notices{Notices: []engine.Notice{{ID: int64(limit), Kind: engine.NoticeEnded, Owner: c.User}}, Read: 3}, f.note(c)
}

func (f *fake) ReadNotices(ctx context.Context, c Caller, through int64) error {
	f.stop = fmt.Sprintf("read through %d", through)
	return f.note(c)
}

func (f *fake) Requeue(ctx context.Context, c Caller, id engine.JobID, note string) (SubmitResponse, error) {
	f.stop = fmt.Sprintf("%v requeue %v", id, note)
	return SubmitResponse{Job: Job{ID: id + 1, Class: engine.Low}}, f.note(c)
}

func (f *fake) Update(ctx context.Context, c Caller, id engine.JobID, u UpdateRequest) (Job, error) {
	f.update = u
	return Job{ID: id, Class: engine.Low}, f.note(c)
}

func (f *fake) Audit(ctx context.Context, c Caller, q AuditQuery) (Audit, error) {
	f.query = q
	return Audit{Entries: []engine.AuditEntry{{Action: "cancel"}}, More: true}, f.note(c)
}

func (f *fake) Wait(ctx context.Context, c Caller, id engine.JobID) (Job, error) {
	<-ctx.Done()
	return Job{}, ctx.Err()
}

func (f *fake) Logs(ctx context.Context, c Caller, id engine.JobID, o LogOptions, w io.Writer) error {
	if err := f.note(c); err != nil {
		return err
	}
	f.logs = o
	for i, p := range f.pieces {
		if m, ok := w.(LogMarker); ok && i < len(f.marks) {
			m.Mark(f.marks[i])
		}
		if _, err := io.WriteString(w, p); err != nil {
			return err
		}
	}
	return f.lateEr
}

func (f *fake) Exec(ctx context.Context, c Caller, id engine.JobID) (ExecTarget, error) {
	return ExecTarget{ContainerID: "abc"}, f.note(c)
}

func (f *fake) Watch(ctx context.Context, c Caller, send func(WatchEvent) error) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-f.events:
			if !ok {
				return f.lateEr
			}
			if err := send(e); err != nil {
				return err
			}
		}
	}
}

func (f *fake) PreemptFor(_ context.Context, c Caller, id, gains engine.JobID, note string) (Job, error) {
	return Job{ID: id, Message: fmt.Sprintf("for %s: %s", gains, note)}, f.note(c)
}

func (f *fake) Explain(_ context.Context, c Caller, id engine.JobID) (Explanation, error) {
	return Explanation{Job: Job{ID: id}, Of: 3}, f.note(c)
}

func (f *fake) Report(_ context.Context, c Caller, q ReportQuery) (Report, error) {
	return Report{Rows: []ReportRow{{Day: q.Since.Format(time.DateOnly), User: c.Name}}}, f.note(c)
}

func (f *fake) Users(_ context.Context, c Caller) (Users, error) {
	return Users{Users: []UserTerms{{Name: c.Name, Me: true}}}, nil
}

func (f *fake) Diagnose(ctx context.Context, c Caller) (Diagnosis, error) {
	return Diagnosis{Version: "test", Mode: "shared"}, f.note(c)
}

func (f *fake) ServeAgent(ctx context.Context, c Caller, conn net.Conn) { f.agent(ctx, c, conn) }

// aPerson resolves everybody to alice.
func aPerson(uid uint32) (engine.User, []uint32, error) {
	return engine.User{UID: uid, GID: 100, Name: "alice"}, []uint32{100, 200}, nil
}

// start serves f on a fresh socket until the test ends.
func start(t testing.TB, f *fake, o ServerOptions) *Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "gt") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := ListenUnix(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if o.Resolve == nil {
		o.Resolve = aPerson
	}
	if o.SubIDFile == "" {
		o.SubIDFile = filepath.Join(dir, "subuid")
	}
	o.Log = slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewServer(f, o).Serve(ctx, l) }()
	c := &Client{Socket: path}
	t.Cleanup(func() {
		c.Close()
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the server does not end")
		}
		os.RemoveAll(dir)
	})
	return c
}

func (f *fake) Reserve(_ context.Context, c Caller, r ReserveRequest) (ReserveResponse, error) {
	v := engine.Reservation{ID: 3, Drain: r.Drain, Devices: r.Devices, From: r.From, To: r.To, Reason: r.Reason, By: c.User}
	return ReserveResponse{Reservation: Reservation{Reservation: v, Indices: []int{0}, Whose: v.Whose()}, Warnings: []string{"job 9 may run longer"}}, nil
}

func (f *fake) Reserved(context.Context, Caller) ([]Reservation, error) {
	return []Reservation{{Reservation: engine.Reservation{ID: 3}, Indices: []int{0, 1}, Whose: "reserved for group course"}}, nil
}

func (f *fake) Unreserve(_ context.Context, _ Caller, id engine.ReservationID, _ string) (Reservation, error) {
	return Reservation{Reservation: engine.Reservation{ID: id}}, nil
}

func (f *fake) Undrain(_ context.Context, _ Caller, r UndrainRequest) ([]Reservation, error) {
	return []Reservation{}, nil
}

func (f *fake) Attend(ctx context.Context, c Caller, id engine.JobID) (Job, error) {
	return f.Wait(ctx, c, id)
}

func (f *fake) Detach(_ context.Context, _ Caller, id engine.JobID) (Job, error) {
	return Job{ID: id}, nil
}
