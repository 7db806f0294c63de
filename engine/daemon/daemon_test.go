package daemon

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"

	"gputop/cdi"
	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/host"
	"gputop/engine/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is a daemon over a real store with one or more cards, and one user's agent. It can be stopped and started again.
type box struct {
	t      *testing.T
	dir    string
	cards  int
	bootID string
	boot   atomic.Int64
	agent  *fakeAgent
	silent atomic.Bool // agents do not come
	lock   func(engine.DeviceID) (func(), error)
	groups func(uint32) ([]uint32, error)
	with   func(*Options)
	// namespace is the PID namespace that all processes are in, the daemon's own too; 0 is unknown.
	namespace atomic.Uint64
	log       syncBuffer // what the daemon logs
	// ahead is how far its wall clock is ahead, in nanoseconds; idle that its cards do nothing, else that is not known.
	ahead   atomic.Int64
	idle    atomic.Bool
	hostMem atomic.Int64 // what each container uses, in bytes; 0 is not known
	policy  Policy
	deliver Deliverer
	alter   atomic.Pointer[func(*engine.Sample)] // changes each sample; nil for nothing

	store  *store.Store
	d      *Daemon
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newBoxWith(t *testing.T, cards int, with func(*Options)) *box {
	return newBox(t, cards, func(b *box) { b.with = with })
}

func newBox(t *testing.T, cards int, with ...func(*box)) *box {
	b := &box{t: t, dir: t.TempDir(), cards: cards, bootID: "boot-1", agent: newFakeAgent(t, me()), policy: DefaultPolicy()}
	for _, f := range with {
		f(b)
	}
	b.boot.Store(int64(time.Hour))
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *box) start() {
	log := slog.New(slog.NewTextHandler(&b.log, nil))
	st, err := store.Open(b.t.Context(), b.dir, store.Options{Now: time.Now, Log: log})
	if err != nil {
		b.t.Fatal(err)
	}
	b.store = st
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	b.cancel = cancel
	var devices []cdi.SimulatedDevice
	for i := range b.cards {
		devices = append(devices, cdi.SimulatedDevice{Name: cardName(i), HostPath: "/dev/null", ContainerPath: "/dev/nvidia0"})
	}
	o := Options{Mode: Shared, GroupID: func(string) (uint32, error) { return sharedGID, nil }, Groups: b.groups, UserID: userID, Store: st, Devices: devices, Policy: b.policy, Log: log, Deliver: b.deliver,
		StartAgent: func(engine.User) error {
			if !b.silent.Load() {
				b.agent.connect(ctx, b.d, &b.done)
			}
			return nil
		},
		System: System{LockDevice: b.lock, Now: b.now, HostMemory: b.hostMemory, Boottime: b.boot.Load, BootID: b.bootID, CPUs: 64, Memory: 256 * engine.GiB,
			Process: func(pid int) (host.Process, bool) {
				return host.Process{UID: me().UID, Start: 7, PIDNamespace: b.namespace.Load()}, b.running(pid)
			}}}
	if b.with != nil {
		b.with(&o)
	}
	b.d, err = New(ctx, o)
	if err != nil {
		b.t.Fatal(err)
	}
	b.done.Add(1)
	go func() {
		defer b.done.Done()
		_ = b.d.Run(ctx)
	}()
	// Samples come until the box stops, as a sampler's do.
	b.done.Add(1)
	go func() {
		defer b.done.Done()
		for ctx.Err() == nil {
			b.sample()
			sleep(ctx, 20*time.Millisecond)
		}
	}()
}

func userID(name string) (uint32, error) {
	if name == "somebody" {
		return 5555, nil
	}
	return 0, errors.New("not here")
}

func (b *box) now() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }

func (b *box) hostMemory(int) (engine.Bytes, bool) {
	n := b.hostMem.Load()
	return engine.Bytes(n), n != 0
}

func cardName(i int) string { return "GPU-" + string(rune('a'+i)) }

// running says whether some container has a live process; the fake gives all of them the test's own PID.
func (b *box) running(int) bool {
	b.agent.mu.Lock()
	defer b.agent.mu.Unlock()
	for _, c := range b.agent.containers {
		if c.PID != 0 {
			return true
		}
	}
	return false
}

func (b *box) sample() {
	total, used := 40*engine.GiB, engine.Bytes(0)
	s := engine.Sample{Time: b.now(), Simulated: true}
	var sm *float64
	if b.idle.Load() {
		sm = new(float64)
	}
	for i := range b.cards {
		s.GPUs = append(s.GPUs, engine.GPU{UUID: engine.DeviceID(cardName(i)), Index: i, Model: "A100", MemoryTotal: &total,
			MemoryUsed: &used, SM: sm, ProcessesKnown: true, Health: engine.HealthOK})
	}
	if f := b.alter.Load(); f != nil {
		(*f)(&s)
	}
	_ = b.d.do(context.Background(), func() { b.d.takeSample(s) })
}

func (b *box) stop() {
	if b.cancel == nil {
		return
	}
	b.cancel()
	b.done.Wait()
	b.store.Close()
	b.cancel = nil
	b.counted()
}

// counted holds what the state counts to the jobs that it has.
func (b *box) counted() {
	b.t.Helper()
	s, queued, owners := b.d.state, 0, map[engine.User]int{}
	for _, e := range s.jobs {
		if e.job.State.Queued() {
			queued++
		}
		if !e.job.State.Final() {
			owners[e.job.Owner]++
		}
	}
	if queued != s.queued || !maps.Equal(owners, s.owners) {
		b.t.Errorf("counted %d queued, and live ones by owner %v; there are %d, %v", s.queued, s.owners, queued, owners)
	}
}

func (b *box) restart() { b.stop(); b.start() }

func (b *box) caller() api.Caller { return api.Caller{User: me(), Groups: []uint32{sharedGID}} }

func (b *box) submit(s engine.Spec) engine.JobID {
	b.t.Helper()
	if s.Workdir == "" {
		s.Workdir = "/tmp"
	}
	r, err := b.d.Submit(b.t.Context(), b.caller(), api.SubmitRequest{Spec: s})
	if err != nil {
		b.t.Fatalf("submit: %v", err)
	}
	return r.Job.ID
}

func spec(class engine.Class, command ...string) engine.Spec {
	return engine.Spec{Name: "t", Command: command, Class: class, Request: engine.Request{GPUs: 1}, TimeLimit: time.Hour}
}

// until waits for a job to be what f wants, by the watch stream.
func (b *box) until(id engine.JobID, what string, f func(api.Job) bool) api.Job {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 20*time.Second)
	defer cancel()
	var got api.Job
	stop := errors.New("found")
	err := b.d.Watch(ctx, b.caller(), func(ev api.WatchEvent) error {
		jobs := ev.Jobs
		if ev.Snapshot != nil {
			jobs = ev.Snapshot.Jobs
		}
		for _, j := range jobs {
			if j.ID == id {
				if got = j; f(j) {
					return stop
				}
			}
		}
		return nil
	})
	if !errors.Is(err, stop) {
		b.t.Fatalf("job %s is never %s; last seen %s: %s (%v)", id, what, got.State, got.Message, err)
	}
	return got
}

func (b *box) untilState(id engine.JobID, s engine.JobState) api.Job {
	b.t.Helper()
	return b.until(id, string(s), func(j api.Job) bool { return j.State == s })
}

func (b *box) container(id engine.JobID, n int) string {
	return engine.AttemptID{Job: id, Number: n}.ContainerName(b.store.Instance())
}

func TestJobRunsAndEnds(t *testing.T) {
	b := newBox(t, 1)
	ok, bad := b.submit(spec(engine.Medium, "exit", "0")), b.submit(spec(engine.Medium, "exit", "3"))
	b.untilState(ok, engine.Succeeded)
	if j := b.untilState(bad, engine.Failed); j.ExitCode == nil || *j.ExitCode != 3 || j.Message != "the program exited with code 3" {
		t.Errorf("failed job: %+v", j)
	}
	for _, id := range []engine.JobID{ok, bad} { // either may have gone first: the one that was ready first
		b.until(id, "released", func(j api.Job) bool { return len(j.Grants) == 0 })
	}
	det, err := b.d.Show(t.Context(), b.caller(), ok)
	if err != nil || len(det.Attempts) != 1 || det.Attempts[0].Allocation != engine.Released {
		t.Fatalf("show: %+v, %v", det.Attempts, err)
	}
	var kinds []string
	for _, e := range det.Events {
		kinds = append(kinds, e.Kind)
	}
	if want := []string{"submitted", "granted", "started", "succeed", "released"}; !slices.Equal(kinds, want) {
		t.Errorf("events %v, want %v", kinds, want)
	}
}

func TestClassOrderOnOneCard(t *testing.T) {
	b := newBox(t, 1)
	first := b.submit(spec(engine.Low, "run"))
	b.untilState(first, engine.Running)
	var ids []engine.JobID
	for _, c := range []engine.Class{engine.Low, engine.Medium, engine.High} {
		ids = append(ids, b.submit(spec(c, "run")))
	}
	for _, id := range ids {
		b.until(id, "waiting for a device", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code != engine.ReasonPreparing })
	}
	b.agent.end(b.container(first, 1), 0)
	for _, id := range []engine.JobID{ids[2], ids[1], ids[0]} {
		b.untilState(id, engine.Running)
		for _, other := range ids {
			if n := b.agent.started(b.container(other, 1)); other < id && n != 0 {
				t.Fatalf("job %s ran before %s", other, id)
			}
		}
		b.agent.end(b.container(id, 1), 0)
	}
}

func TestCancelInEveryState(t *testing.T) {
	b := newBox(t, 1)
	running := b.submit(spec(engine.Medium, "run"))
	b.untilState(running, engine.Running)
	queued := b.submit(spec(engine.Medium, "run"))
	for _, id := range []engine.JobID{queued, running} {
		if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, "enough"); err != nil {
			t.Fatal(err)
		}
		b.untilState(id, engine.Cancelled)
	}
	_, err := b.d.Stop(t.Context(), b.caller(), running, engine.StopCancelled, "")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeConflict {
		t.Errorf("cancelling an ended job: %v", err)
	}
	_, err = b.d.Stop(t.Context(), b.caller(), 999, engine.StopCancelled, "")
	if !errors.As(err, &e) || e.Code != api.CodeNotFound {
		t.Errorf("cancelling no job: %v", err)
	}
	if n := b.agent.started(b.container(queued, 1)); n != 0 {
		t.Errorf("the queued job was started %d times", n)
	}
}

func TestPreemptedJobComesBackAtItsOldPlace(t *testing.T) {
	b := newBox(t, 1)
	low := b.submit(spec(engine.Low, "run"))
	b.untilState(low, engine.Running)
	later := b.submit(spec(engine.Low, "run"))
	high := b.submit(spec(engine.High, "run"))
	b.until(high, "prepared", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	if _, err := b.d.Stop(t.Context(), b.caller(), low, engine.StopPreempted, ""); err != nil {
		t.Fatal(err)
	}
	b.untilState(high, engine.Running)
	j := b.until(low, "back in the queue, prepared", func(j api.Job) bool { return j.State == engine.Pending && j.Position == 1 })
	if j.Preemptions != 1 {
		t.Errorf("preemptions = %d", j.Preemptions)
	}
	b.agent.end(b.container(high, 1), 0)
	b.until(low, "running again", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
	if b.agent.started(b.container(later, 1)) != 0 {
		t.Error("a later job of its class went first")
	}
}

func TestOthersSeeNoCommandAndStopNothing(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run", "--token", "s3cret"))
	b.untilState(id, engine.Running)
	other := api.Caller{User: engine.User{UID: 4242, Name: "mallory"}}
	det, err := b.d.Show(t.Context(), other, id)
	if err != nil {
		t.Fatal(err)
	}
	if det.Spec != nil || det.Command != "" || det.Mine || len(det.Events) > 0 || det.Attempts[0].ContainerID != "" {
		t.Errorf("a stranger sees %+v", det)
	}
	for name, err := range map[string]error{
		"cancel": second(b.d.Stop(t.Context(), other, id, engine.StopCancelled, "")),
		"exec":   second(b.d.Exec(t.Context(), other, id)),
		"logs":   b.d.Logs(t.Context(), other, id, api.LogOptions{}, io.Discard),
		// The same number with another name is somebody else: uids are used again.
		"reused uid": second(b.d.Stop(t.Context(), api.Caller{User: engine.User{UID: me().UID, Name: "new"}}, id, engine.StopCancelled, "")),
	} {
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeForbidden {
			t.Errorf("%s by a stranger: %v", name, err)
		}
	}
	if _, err := b.d.Stop(t.Context(), api.Caller{User: engine.User{Name: "root"}, Admin: true}, id, engine.StopCancelled, "maintenance"); err != nil {
		t.Errorf("cancel by an admin: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

func TestTimeLimitOnBootClock(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.boot.Add(int64(2 * time.Hour))
	if j := b.untilState(id, engine.TimedOut); !strings.Contains(j.Message, "1h0m0s") {
		t.Errorf("message %q", j.Message)
	}
}

func TestFailedProgramIsRetriedAsOftenAsAsked(t *testing.T) {
	b := newBox(t, 1)
	s := spec(engine.Medium, "exit", "1")
	s.Retries = 1
	id := b.submit(s)
	if j := b.untilState(id, engine.Failed); j.Attempt != 2 {
		t.Errorf("attempts = %d, want 2", j.Attempt)
	}
}

func TestStopWithoutAnswersWaitsForALivingProcess(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	asked := make(chan struct{}, 100)
	b.agent.hooks(func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodStop {
			asked <- struct{}{}
		}
		return errors.New("no answer")
	}, nil)
	if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil {
		t.Fatal(err)
	}
	<-asked
	<-asked
	if held := b.d.snapshotForTest(t).Held; len(held) != 1 {
		t.Errorf("held %+v while the process is there", held)
	}
	b.agent.hooks(nil, nil)
	b.untilState(id, engine.Cancelled)
}

// A process of the host, as the container's, would have everybody's processes on the card count as this job's.
func TestProcessOfTheHostIsNoContainers(t *testing.T) {
	b := newBox(t, 1)
	b.namespace.Store(4026531836)
	id := b.submit(spec(engine.Medium, "run"))
	j := b.until(id, "back in the queue after a fault", func(j api.Job) bool { return j.State == engine.Pending && j.Attempt == 1 })
	if n := b.agent.started(b.container(id, 1)); n != 0 || !strings.Contains(j.Message, "is in no container") {
		t.Errorf("started %d times: %s", n, j.Message)
	}
}

func TestAgentsSentencesAreBounded(t *testing.T) {
	if got := said("short"); got != "short" {
		t.Errorf("said: %q", got)
	}
	if got := said(strings.Repeat("é", maxSaid)); len(got) > maxSaid+len("…") || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid %t", len(got), utf8.ValidString(got))
	}
}

func TestSecretsAreShownToNobody(t *testing.T) {
	b := newBox(t, 1)
	s := spec(engine.Medium, "run")
	s.Env, s.SecretEnv = map[string]string{"TOKEN": "s3cret", "OPEN": "1"}, []string{"TOKEN"}
	id := b.submit(s)
	det, err := b.d.Show(t.Context(), b.caller(), id)
	if err != nil || det.Spec.Env["TOKEN"] != hidden || det.Spec.Env["OPEN"] != "1" {
		t.Errorf("show gives %v, %v", det.Spec.Env, err)
	}
	b.untilState(id, engine.Running)
	if got := b.agent.env(b.container(id, 1))["TOKEN"]; got != "s3cret" {
		t.Errorf("the job itself gets TOKEN=%q", got)
	}
}
