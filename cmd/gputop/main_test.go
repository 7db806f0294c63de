package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/draft"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"gputop": func() { os.Exit(run()) }})
}

// TestScripts runs testdata/*.txtar against a server on a real socket with a box of the test's own behind it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			socket, stop := serve(t, newBox())
			e.Defer(stop)
			e.Setenv("GPUTOP_SOCKET", socket)
			e.Setenv("TZ", "UTC")
			e.Setenv("ESC", "\x1b[31m")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"status": status},
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
	})
}

// serve has a server answer for a box, on a socket, until it is stopped.
func serve(t testing.TB, b *box) (socket string, stop func()) {
	dir, err := os.MkdirTemp("", "gt") // a test's own directory is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, "s")
	l, err := api.ListenUnix(socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s := api.NewServer(b, api.ServerOptions{SubIDFile: filepath.Join(dir, "subuid"), Resolve: func(uid uint32) (engine.User, []uint32, error) {
		return engine.User{UID: uid, Name: "alice"}, nil, nil
	}})
	go func() { done <- s.Serve(ctx, l) }()
	return socket, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
		os.RemoveAll(dir)
	}
}

// status runs a command and wants exactly this exit code: status CODE COMMAND ARG...
func status(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("exit code %d, want %s (%v)", got, args[0], err)
	}
}

// box is a daemon with a few jobs in every state that matters. Submitted jobs only queue.
type box struct {
	mu   sync.Mutex
	jobs []api.Job
	last engine.Spec
	read int64 // notices
}

func ref[T any](v T) *T { return &v }

func newBox() *box {
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	job := func(id int64, name string, s engine.JobState) api.Job {
		return api.Job{ID: engine.JobID(id), Name: name, Owner: "alice", Mine: true, Class: engine.Medium, State: s,
			Request: engine.Request{GPUs: 1}, TimeLimit: 24 * time.Hour, Submitted: at}
	}
	running, waiting, foreign := job(1, "train.py", engine.Running), job(2, "wide.py", engine.Pending), job(3, "other", engine.Running)
	running.Started, running.Grants = at.Add(time.Minute), []api.Grant{{Device: "GPU-a", Index: 0, Whole: true}}
	waiting.Request, waiting.Class = engine.Request{GPUs: 2}, engine.High
	waiting.Reason = &engine.Reason{Code: engine.WaitingForDevice, Needed: 2, Free: 1}
	foreign.Owner, foreign.Mine, foreign.Name = "bob", false, "evil\x1b]0;title\x07\nname"
	foreign.Request = engine.Request{GPUMemory: 12 * engine.GiB}
	waiting.ExpectedStart = time.Date(2199, 7, 8, 9, 10, 0, 0, time.UTC)
	b := &box{jobs: []api.Job{running, waiting, foreign}}
	for i, s := range []engine.JobState{engine.Succeeded, engine.Failed, engine.Cancelled, engine.TimedOut, engine.Lost} {
		j := job(int64(i+4), string(s), s)
		j.Started, j.Ended = at, at.Add(90*time.Minute)
		b.jobs = append(b.jobs, j)
	}
	b.jobs[4].ExitCode = ref(3)
	b.jobs[7].Message = "the machine was switched off"
	return b
}

func (b *box) find(c api.Caller, id engine.JobID) (*api.Job, error) {
	for i := range b.jobs {
		if b.jobs[i].ID == id {
			return &b.jobs[i], nil
		}
	}
	return nil, &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no job %s", id)}
}

func (b *box) Info(c api.Caller) api.Info {
	return api.Info{API: api.Version, Version: "test", Mode: "shared", Host: "lab", Caller: c.User,
		Defaults: api.Defaults{Profile: "host-env", Class: engine.Medium, GPUs: 1, TimeLimit: 24 * time.Hour},
		Profiles: []api.Profile{{Name: "host-env", Description: "your own programs"}, {Name: "packed", Image: "localhost/x"}}}
}

func (b *box) GPUs(c api.Caller) api.GPUs {
	g := api.GPU{GPU: engine.GPU{UUID: "GPU-a", Model: "NVIDIA A100-SXM4-40GB", MemoryTotal: ref(40 * engine.GiB), MemoryUsed: ref(12 * engine.GiB),
		SM: ref(0.85), Temperature: ref(61), Power: ref(250.4), PowerLimit: ref(400.0), Health: engine.HealthOK}}
	g.Processes = []api.Process{
		{GPUProcess: engine.GPUProcess{PID: 10}, Device: "GPU-a", Job: 1, User: "alice"},
		{GPUProcess: engine.GPUProcess{PID: 11}, Device: "GPU-a", Job: 1, User: "alice"},
		{GPUProcess: engine.GPUProcess{PID: 12}, Device: "GPU-a", User: "carol"},
	}
	lost := api.GPU{GPU: engine.GPU{UUID: "GPU-b", Index: 1, Model: "NVIDIA A100-SXM4-40GB", Health: engine.HealthLost, HealthDetail: "fell off the bus"}}
	mig := api.GPU{GPU: engine.GPU{UUID: "GPU-c", Index: 2, Model: "NVIDIA A100-SXM4-40GB", MemoryTotal: ref(40 * engine.GiB), Health: engine.HealthOK,
		MIG: []engine.MIGDevice{{UUID: "MIG-a", Profile: "3g.20gb", MemoryTotal: ref(20 * engine.GiB), MemoryUsed: ref(engine.Bytes(0))}}}}
	return api.GPUs{Driver: "570.1", Simulated: true, GPUs: []api.GPU{g, lost, mig}}
}

func (b *box) Submit(ctx context.Context, c api.Caller, r api.SubmitRequest) (api.SubmitResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := draft.CheckSpec(r.Spec); err != nil {
		return api.SubmitResponse{}, &api.Error{Code: api.CodeInvalid, Message: err.Error()}
	}
	if r.Spec.Request.GPUs > 4 {
		return api.SubmitResponse{}, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("%d GPUs are more than the 4 of this machine", r.Spec.Request.GPUs), Hint: "Ask for fewer with --gpus."}
	}
	if r.Spec.Name == "full" {
		return api.SubmitResponse{}, &api.Error{Code: api.CodeUnavailable, Message: "the disk is full", Hint: "Nothing was kept."}
	}
	j := api.Job{ID: engine.JobID(len(b.jobs) + 34), Name: r.Spec.Name, Owner: c.Name, Mine: true, Class: r.Spec.Class, State: engine.Pending,
		Request: r.Spec.Request, TimeLimit: r.Spec.TimeLimit, Submitted: time.Now()}
	if !r.DryRun {
		b.last = r.Spec
		b.jobs = append(b.jobs, j)
	}
	return api.SubmitResponse{Job: j, Warnings: []string{"a logout ends your jobs: loginctl enable-linger"}}, nil
}

func (b *box) List(ctx context.Context, c api.Caller, ended bool, limit int) ([]api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]api.Job(nil), b.jobs[:min(limit, len(b.jobs))]...), nil
}

func (b *box) Show(ctx context.Context, c api.Caller, id engine.JobID) (api.JobDetail, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	if err != nil {
		return api.JobDetail{}, err
	}
	d := api.JobDetail{Job: *j, Events: []engine.Event{{Time: j.Submitted, Job: id, Kind: "submitted", Text: "by " + j.Owner}}}
	if j.Mine {
		d.Spec = &engine.Spec{Name: j.Name, Command: []string{"python", "train.py", "it's"}, Workdir: "/home/alice", Profile: "host-env", Class: j.Class,
			Env: map[string]string{"TOKEN": "s3cret"}, Mounts: []engine.Mount{{Source: "/data", Target: "/data", ReadOnly: true}}}
		if id == engine.JobID(len(b.jobs)+33) {
			d.Spec = &b.last
		}
		d.Attempts = []api.Attempt{{Number: 1, Container: "gputop-x-1-1", ContainerID: "abc", Allocation: engine.Active, DirectEdits: true,
			Grants: j.Grants, Started: j.Started, Curve: &engine.Curve{Start: j.Started, Step: time.Minute, Memory: []engine.Bytes{0, engine.GiB, engine.Unknown, 4 * engine.GiB}, SM: []int{0, 500, engine.Unknown, 1000}}}}
	}
	return d, nil
}

func (b *box) Stop(ctx context.Context, c api.Caller, id engine.JobID, why engine.StopReason, note string) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	switch {
	case err != nil:
		return api.Job{}, err
	case !j.Mine:
		return api.Job{}, &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("job %s is %s's", id, j.Owner)}
	case j.State.Final():
		return api.Job{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s has ended", id)}
	}
	if j.State == engine.Running {
		j.State, j.StopReason = engine.Stopping, why
	} else {
		j.State = engine.Cancelled
	}
	return *j, nil
}

func (b *box) Hold(ctx context.Context, c api.Caller, id engine.JobID, hold bool, note string) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	switch {
	case err != nil:
		return api.Job{}, err
	case !j.State.Queued():
		return api.Job{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s is %s", id, j.State), Hint: "Preempt it first."}
	}
	j.Held = hold
	return *j, nil
}

func (b *box) Requeue(ctx context.Context, c api.Caller, id engine.JobID, note string) (api.SubmitResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	if err != nil {
		return api.SubmitResponse{}, err
	}
	again := *j
	if j.State.Final() {
		again.ID, again.State = 99, engine.Pending
	}
	return api.SubmitResponse{Job: again}, nil
}

func (b *box) Update(ctx context.Context, c api.Caller, id engine.JobID, u api.UpdateRequest) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	if err != nil {
		return api.Job{}, err
	}
	if u.TimeLimit != nil {
		j.TimeLimit = *u.TimeLimit
	}
	if u.Class != nil {
		j.Class = *u.Class
	}
	if u.GPUMemory != nil {
		j.Request = engine.Request{GPUMemory: *u.GPUMemory}
	}
	return *j, nil
}

func (b *box) Audit(ctx context.Context, c api.Caller, q api.AuditQuery) (api.Audit, error) {
	if q.User == "nobody" {
		return api.Audit{}, nil
	}
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	alice, bob := engine.User{UID: 1000, Name: "alice"}, engine.User{UID: 1001, Name: "bob"}
	return api.Audit{More: true, Entries: []engine.AuditEntry{
		{Time: at.Add(time.Minute), User: engine.User{Name: "root"}, PID: 9, Action: "preempt", Job: 1, Owner: alice, Allowed: true, Reason: "evil\x1b]0;t\x07"},
		{Time: at, User: bob, PID: 8, Action: "cancel", Job: 1, Owner: alice, Text: "job 1 belongs to alice"}}}, nil
}

func (b *box) Notices(ctx context.Context, c api.Caller, limit int) (api.Notices, error) {
	at := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
	me := engine.User{UID: 1000, Name: "alice"}
	b.mu.Lock()
	defer b.mu.Unlock()
	return api.Notices{Read: max(b.read, 1), Notices: []engine.Notice{
		{ID: 2, Time: at.Add(time.Minute), Kind: engine.NoticeEnded, Job: 1, Name: "evil\x1b]0;t\x07", Owner: me, Attempt: 1, Text: "failed with exit code 3"},
		{ID: 1, Time: at, Kind: engine.NoticePreempted, Job: 1, Name: "train", Owner: me, Attempt: 1, Text: "stopped and put back in the queue", Detail: "preempted by root: demo"},
	}[:min(limit, 2)]}, nil
}

func (b *box) Images(context.Context, api.Caller) (api.Images, error) {
	return api.Images{Ready: []string{"docker.io/library/python:3", "localhost/mine:latest"}, Archives: "/nonexistent",
		Images: []agentrpc.StoredImage{{Name: "localhost/mine:latest", ID: "sha256:0123456789abcdef", Digest: "sha256:77", Size: 3 * engine.GiB},
			{Name: "evil\x1b[31m:1", ID: "ab"}}}, nil
}

func (b *box) ReadNotices(ctx context.Context, c api.Caller, through int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.read = through
	return nil
}

func (b *box) Wait(ctx context.Context, c api.Caller, id engine.JobID) (api.Job, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	if err != nil {
		return api.Job{}, err
	}
	return *j, nil
}

func (b *box) Logs(ctx context.Context, c api.Caller, id engine.JobID, o api.LogOptions, w io.Writer) error {
	if _, err := b.find(c, id); err != nil {
		return err
	}
	lines := strings.SplitAfter("epoch 1\nepoch 2\nepoch 3\n", "\n")[:3]
	if o.Tail > 0 {
		lines = lines[len(lines)-min(o.Tail, len(lines)):]
	}
	_, err := fmt.Fprintf(w, "attempt %d follow %t\n%s", o.Attempt, o.Follow, strings.Join(lines, ""))
	return err
}

func (b *box) Exec(ctx context.Context, c api.Caller, id engine.JobID) (api.ExecTarget, error) {
	if id != 1 {
		return api.ExecTarget{}, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("job %s does not run", id)}
	}
	return api.ExecTarget{ContainerID: "abc", Workdir: "/home/alice"}, nil
}

func (b *box) Watch(ctx context.Context, c api.Caller, send func(api.WatchEvent) error) error {
	<-ctx.Done()
	return ctx.Err()
}

func (b *box) Users(_ context.Context, c api.Caller) (api.Users, error) {
	return api.Users{Users: []api.UserTerms{
		{Name: c.Name, Me: true, Usage: 5400, Weight: 1, Held: api.Held{GPUs: 1.25, Jobs: 2, CPUs: 3, Memory: 4 * engine.GiB}, Pending: 7, Quota: engine.Quota{GPUs: ref(2.0), Jobs: ref(5)},
			MaxPending: ref(100), Classes: []engine.Class{engine.Low, engine.Medium}, Class: engine.Low, TimeLimit: time.Hour, MaxTimeLimit: 48 * time.Hour,
			Images: []string{"localhost/*"}, Groups: []string{"vision"}, From: map[string]string{"max_gpus": "group vision"}},
		{Name: "zoe\x1b[31m", Weight: 2.5, Classes: []engine.Class{engine.High}, Class: engine.High, TimeLimit: time.Hour}},
		Groups: []api.GroupTerms{{Name: "vision", Held: api.Held{GPUs: 3, Jobs: 4}, Quota: engine.Quota{GPUs: ref(6.0)}}, {Name: "gone", Unknown: true}}}, nil
}

func (b *box) Report(_ context.Context, c api.Caller, q api.ReportQuery) (api.Report, error) {
	row := func(day, user string, class engine.Class, hours float64) api.ReportRow {
		return api.ReportRow{Day: day, User: user, Class: class, GPUSeconds: hours * 3600, GPUMemory: hours * 3600 * 40 * float64(engine.GiB), CPUSeconds: hours * 7200, Attempts: 1}
	}
	return api.Report{Rows: []api.ReportRow{row("2019-11-30", "zoe\x1b[31m", engine.Low, 100), row(q.Since.Format(time.DateOnly), "alice", engine.High, 1.5),
		row("2019-12-02", "alice", engine.Low, 2)}}, nil
}

func (b *box) Explain(_ context.Context, c api.Caller, id engine.JobID) (api.Explanation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	j, err := b.find(c, id)
	switch {
	case err != nil:
		return api.Explanation{}, err
	case j.State != engine.Pending:
		return api.Explanation{Job: *j}, nil
	}
	held := api.Candidate{Job: 1, Owner: "zoe\x1b[31m", Class: engine.Low, Grants: []api.Grant{{Index: 0, Whole: true}}}
	e := api.Explanation{Job: *j, Of: 4, Preempts: engine.PreemptsNobody, Usage: 7200, Weight: 2, HalfLife: 7 * 24 * time.Hour}
	e.Job.Position = 2
	for _, s := range []engine.Spared{engine.SparedLoss, engine.SparedClass, engine.SparedSite, engine.SparedProtected, ""} {
		held.Spared, held.Loss, held.Allowed = s, 7500, 3600
		e.Running = append(e.Running, held)
	}
	return e, nil
}

func (b *box) PreemptFor(ctx context.Context, c api.Caller, id, gains engine.JobID, note string) (api.Job, error) {
	return b.Stop(ctx, c, id, engine.StopPreempted, "for "+gains.String()+note)
}

func (b *box) Diagnose(ctx context.Context, c api.Caller) (api.Diagnosis, error) {
	return api.Diagnosis{Version: "other", Mode: "shared", PID: 7, Simulated: true, StateDir: "/var/lib/gputop", StateWritable: true, StateFree: ref(40 * engine.GiB),
		Cards: []api.CardDiagnosis{{Device: "GPU-a", Health: engine.HealthOK}, {Device: "GPU-b", Index: 1, Health: engine.HealthOK, Problems: []api.SpecProblem{
			{Code: "stale", File: "/etc/cdi/nvidia.yaml", Message: "is out of date\x1b[31m", Fix: "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"}}}},
		Agent: api.AgentDiagnosis{Connected: true, Runtime: &agentrpc.RuntimeInfo{PodmanVersion: "5.4.2", OCIRuntime: "crun", CgroupVersion: 2,
			Controllers: []string{"cpu", "memory", "pids"}, StorageDriver: "overlay", CDISpecDirs: []string{"/etc/cdi", "/var/run/cdi"}}}}, nil
}

func (b *box) ServeAgent(ctx context.Context, c api.Caller, conn net.Conn) {}

func (b *box) Reserve(_ context.Context, c api.Caller, r api.ReserveRequest) (api.ReserveResponse, error) {
	v := engine.Reservation{ID: 3, Drain: r.Drain, Devices: r.Devices, From: r.From, To: r.To, Reason: r.Reason, By: c.User}
	return api.ReserveResponse{Reservation: api.Reservation{Reservation: v, Indices: []int{0}, Whose: v.Whose()}, Warnings: []string{"job 9 may run longer"}}, nil
}

func (b *box) Reserved(context.Context, api.Caller) ([]api.Reservation, error) {
	return []api.Reservation{{Reservation: engine.Reservation{ID: 3}, Indices: []int{0, 1}, Whose: "reserved for group course"}}, nil
}

func (b *box) Unreserve(_ context.Context, _ api.Caller, id engine.ReservationID, _ string) (api.Reservation, error) {
	return api.Reservation{Reservation: engine.Reservation{ID: id}}, nil
}

func (b *box) Undrain(_ context.Context, _ api.Caller, r api.UndrainRequest) ([]api.Reservation, error) {
	return []api.Reservation{}, nil
}

func (b *box) Attend(ctx context.Context, c api.Caller, id engine.JobID) (api.Job, error) {
	return b.Wait(ctx, c, id)
}

func (b *box) Detach(_ context.Context, _ api.Caller, id engine.JobID) (api.Job, error) {
	return api.Job{ID: id}, nil
}
