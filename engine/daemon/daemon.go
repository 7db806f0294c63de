// Package daemon is the engine: the one writer of gputop's state. A single loop owns jobs, attempts and the newest
// sample; it plans, re-checks, persists, publishes and only then acts. Work that blocks (an agent's calls, waiting for
// an exit) runs in a goroutine per attempt that reports back to the loop. The package talks to Podman and NVML never:
// agents and the sampler do, each in a process of its own.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"gputop/cdi"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/host"
	"gputop/engine/store"
)

// Mode says for whom the daemon works.
type Mode string

// The modes.
const (
	Personal Mode = "personal" // one user, unprivileged
	Shared   Mode = "shared"   // root, many users
)

// Options are what a daemon is made of.
type Options struct {
	Mode    Mode
	Version string
	Host    string
	Store   *store.Store
	Policy  Policy
	// LeaseDir is where leases are written as CDI specs, and SpecDirs where specs are looked for.
	LeaseDir string
	SpecDirs []string
	// Devices are the simulated cards; empty on a real machine.
	Devices []cdi.SimulatedDevice
	// StartAgent starts an agent as the user; it connects by itself.
	StartAgent func(engine.User) error
	// StateDir is the store's directory, for doctor.
	StateDir string
	// System is what the daemon reads of the machine.
	System System
	// UserName names a uid for display; it must not block for long.
	UserName func(uint32) string
	// Groups are the groups a user has now, asked within a time-out; nil knows none.
	Groups func(uid uint32) ([]uint32, error)
	// GroupID is the number of a group by its name; nil knows none.
	GroupID func(name string) (uint32, error)
	// Account is who has a uid now; its error is ErrNoAccount when nobody has. Nil is not asked. AccountsEvery is how often
	// it is asked of people with live jobs; a minute when 0.
	Account       func(uid uint32) (engine.User, error)
	AccountsEvery time.Duration
	// UserID is the number of a user by their name; nil knows none.
	UserID func(name string) (uint32, error)
	// Deliver sends notices out of this program; nil sends none.
	Deliver Deliverer
	Log     *slog.Logger
}

func (o *Options) accountsEvery() time.Duration {
	if o.AccountsEvery > 0 {
		return o.AccountsEvery
	}
	return departedLook
}

// System is the machine as the daemon sees it; tests give their own.
type System struct {
	Now func() time.Time
	// Boottime is CLOCK_BOOTTIME in nanoseconds, and BootID the kernel's id of this boot.
	Boottime func() int64
	BootID   string
	CPUs     engine.CPUs
	Memory   engine.Bytes
	// Process reads a process; ok is false when it is gone or cannot be read.
	Process func(pid int) (p host.Process, ok bool)
	// Groups are those of a process; nil knows none.
	Groups func(pid int) (groups []uint32, ok bool)
	// HostMemory is what the container of a process uses of the host's memory; nil knows nothing.
	HostMemory func(pid int) (used engine.Bytes, ok bool)
	// Kill ends a process, if it still is the one that started then; nil kills nothing.
	Kill func(pid int, start uint64) error
	// LockDevice takes the machine-wide lock of a device, or says who has it; nil locks nothing.
	LockDevice func(engine.DeviceID) (release func(), err error)
}

// Daemon is a running engine. It implements api.Backend.
type Daemon struct {
	o     Options
	store *store.Store
	log   *slog.Logger
	calls chan func()
	stop  chan struct{} // closed when the loop has ended
	seen  chan struct{} // closed at the first sample
	work  workers
	// runCtx is done when Run ends; what works for the daemon as a whole works under it.
	runCtx context.Context
	end    context.CancelFunc

	state  *state
	hub    *hub
	agents *agents
	images *imageCache
	queue  *queue
	told   *told
	tell   *teller
	// unsaved are the jobs with a stop that the disk has not taken yet.
	unsaved map[engine.JobID]bool
	// applyFact is the store's; tests let it fail.
	applyFact func(context.Context, ...store.Change) error
	// current is the policy in force; people are the owners of live jobs, and asking that their groups are being read.
	current  atomic.Pointer[Policy]
	people   map[uint32]*person
	asking   bool
	refusals refusals
	turns    turns
	// accepting counts, by uid, the jobs that are being accepted and are not in the queue yet.
	accepting map[uint32]int
	// attended are the live jobs that end when nobody is there.
	attended map[engine.JobID]*attendance
	gone     departed
	// reserved are the reservations and drains that are not over.
	reserved []engine.Reservation
	// configProblem is why the configuration file is not what is in force.
	configProblem atomic.Pointer[string]
	// specsAt is when the cards' specs were looked at last, and specsBusy that they are being looked at.
	specsAt   int64
	specsBusy bool
	gate      gatekeeper
	outside   outside
	// usage is what people have used, without what they hold now; preempted is when the daemon preempted jobs of late.
	usage     usage
	daily     daily
	preempted []time.Time
	depends   dependencies
	// unended counts the elements of arrays that are not over, by the id of the first.
	unended map[engine.JobID]int
	// drained is until when the errors of a card's hardware have led to a drain, and forgiven until when they count no more.
	drained, forgiven map[engine.DeviceID]time.Time
	// lostSince is since when a card is seen lost, on CLOCK_BOOTTIME in nanoseconds.
	lostSince map[engine.DeviceID]int64
	// curves are what running attempts have used so far.
	curves map[engine.AttemptID]*curve
	// over are the attempts that hold more than their share.
	over map[engine.AttemptID]*overuse
}

var _ api.Backend = (*Daemon)(nil)

// errStopped is returned to a request that comes after the loop has ended.
var errStopped = &api.Error{Code: api.CodeUnavailable, Message: "the daemon is stopping", Hint: "Try again in a moment."}

// New loads what the store holds. Run starts the work.
func New(ctx context.Context, o Options) (*Daemon, error) {
	live, err := o.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load the state: %w", err)
	}
	reserved, err := o.Store.Reservations(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := o.Store.Ended(ctx, 0, recentEnded)
	if err != nil {
		return nil, fmt.Errorf("load ended jobs: %w", err)
	}
	d := &Daemon{o: o, store: o.Store, log: o.Log, calls: make(chan func(), 256), stop: make(chan struct{}), seen: make(chan struct{}),
		state: newState(live, ended), hub: newHub()}
	d.runCtx, d.end = context.WithCancel(context.WithoutCancel(ctx))
	d.agents = newAgents(d)
	d.images = newImageCache(o.System.Now)
	d.unsaved, d.applyFact = map[engine.JobID]bool{}, o.Store.ApplyFact
	d.reserved = reserved
	d.accepting = map[uint32]int{}
	d.attended = map[engine.JobID]*attendance{}
	for _, j := range live.Jobs {
		if j.Spec.Attended && !j.State.Final() {
			d.attendanceOf(j.ID)
		}
	}
	d.people = map[uint32]*person{}
	d.gate.begin(&d.o)
	d.current.Store(&o.Policy)
	d.queue, d.told = newQueue(), &told{at: map[toldKey]time.Time{}}
	waits, err := o.Store.WaitsTold(ctx)
	if err != nil {
		return nil, err
	}
	if d.usage, err = loadUsage(ctx, o.Store); err != nil {
		return nil, err
	}
	if d.daily, err = loadDaily(ctx, o.Store, o.System.Now()); err != nil {
		return nil, err
	}
	if d.preempted, err = o.Store.Preempted(ctx); err != nil {
		return nil, err
	}
	d.lostSince = map[engine.DeviceID]int64{}
	d.drained, d.forgiven = map[engine.DeviceID]time.Time{}, map[engine.DeviceID]time.Time{}
	d.loadCurves()
	d.over = map[engine.AttemptID]*overuse{}
	d.unended = map[engine.JobID]int{}
	for i := range live.Jobs {
		if !live.Jobs[i].State.Final() {
			d.elementQueued(&live.Jobs[i])
		}
	}
	d.depends.on = map[engine.JobID][]engine.JobID{}
	if err := d.loadDependencies(ctx); err != nil {
		return nil, err
	}
	d.tell = newTeller(d.state, waits)
	return d, nil
}

// Run works until ctx is done. Running jobs go on without it.
func (d *Daemon) Run(ctx context.Context) error {
	defer func() {
		d.end()
		d.agents.closeAll()
		close(d.stop)
		d.hub.close()
		d.work.finish()
	}()
	d.adoptAll()
	d.goWork(d.retain)
	d.goWork(d.watchHostMemory)
	if d.o.Deliver != nil {
		d.goWork(d.o.Deliver.Run)
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	d.queue.kick()
	for {
		select {
		case <-ctx.Done():
			return nil
		case f := <-d.calls:
			f()
		case <-tick.C:
			d.tick()
		case <-d.queue.due():
			d.plan()
		}
	}
}

// do runs f in the loop and waits for it.
func (d *Daemon) do(ctx context.Context, f func()) error {
	done := make(chan struct{})
	select {
	case d.calls <- func() { defer close(done); f() }:
	case <-d.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-d.stop:
		return errStopped
	}
}

// Alive returns once the loop has taken a turn; a loop that hangs is how an engine dies without ending. The error is
// ctx's, or says that Run has ended.
func (d *Daemon) Alive(ctx context.Context) error {
	done := make(chan struct{})
	select {
	case d.calls <- func() { close(done) }:
	case <-d.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-d.stop:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
}

// workers are the goroutines that Run waits for.
type workers struct {
	mu    sync.Mutex
	ended bool
	group sync.WaitGroup
}

// goWork starts a goroutine that Run waits for. Once Run is ending nothing is started any more.
func (d *Daemon) goWork(f func(ctx context.Context)) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	if !d.work.ended {
		d.work.group.Go(func() { f(d.runCtx) })
	}
}

// finish lets no more work begin and waits for what is under way.
func (w *workers) finish() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.group.Wait()
}

// tick does what depends on the clock alone.
func (d *Daemon) tick() {
	d.enforceTimeLimits()
	d.saveStops()
	d.prepareSome()
	d.agents.reap()
	d.checkSpecs()
	d.keepGate()
	d.askGroups()
	d.keepReservations()
	d.lookForDeparted()
	d.endUnattended()
	d.saveCurves()
	d.tellWaits()
	if d.state.queued > 0 {
		d.queue.kick()
	}
	d.publishStaleness()
}

// change is one step of one job: copies that become the state once they are on disk.
type change struct {
	job     engine.Job
	attempt *engine.Attempt
	events  []engine.Event
	// audit are the lines of the audit trail that are kept with it.
	audit []engine.AuditEntry
	// usage is what the owner has used, where that changes.
	usage *store.Usage
	// used is the same by days, to be added.
	used []store.Used
	// preempted is when jobs were preempted by the daemon itself, where that changes.
	preempted []time.Time
	now       time.Time
	// fact says that it has happened already: on a full disk it may use the reserve.
	fact bool
}

// event adds a line to the job's story.
func (c *change) event(kind, text string) {
	c.events = append(c.events, engine.Event{Time: c.now, Job: c.job.ID, Kind: kind, Text: text})
}

// move takes the job's state machine one step.
func (c *change) move(e engine.JobEvent) error {
	to, err := engine.Next(c.job.State, e)
	if err != nil {
		return err
	}
	c.job.State = to
	return nil
}

// notSavedError is a step that the disk refused: nothing has changed.
type notSavedError struct {
	job engine.JobID
	err error
}

func (e *notSavedError) Error() string { return fmt.Sprintf("save job %s: %v", e.job, e.err) }
func (e *notSavedError) Unwrap() error { return e.err }

// errUnknownJob is returned for a job that is not live.
var errUnknownJob = errors.New("no such live job")

// transact persists one step of a job, then makes it the state, then publishes it. attempt 0 leaves attempts alone.
// It runs in the loop. When the disk refuses, nothing has changed.
func (d *Daemon) transact(id engine.JobID, attempt int, f func(c *change) error) error {
	e := d.state.jobs[id]
	if e == nil {
		return fmt.Errorf("job %s: %w", id, errUnknownJob)
	}
	c := &change{job: e.job, now: d.o.System.Now()}
	if attempt > 0 {
		a := d.state.attempts[engine.AttemptID{Job: id, Number: attempt}]
		if a == nil {
			return fmt.Errorf("attempt %d of job %s: %w", attempt, id, errUnknownJob)
		}
		copied := *a
		c.attempt = &copied
	}
	if err := e.unsaved.apply(c); err != nil {
		return err
	}
	if err := f(c); err != nil {
		return err
	}
	changes := []store.Change{store.PutJob(c.job)}
	if c.attempt != nil {
		changes = append(changes, store.PutAttempt(*c.attempt))
	}
	for _, ev := range c.events {
		changes = append(changes, store.AddEvent(ev))
	}
	for _, a := range c.audit {
		changes = append(changes, store.AddAudit(a))
	}
	if c.usage != nil {
		changes = append(changes, store.PutUsage(*c.usage))
	}
	for _, u := range c.used {
		changes = append(changes, store.AddUsed(u))
	}
	if c.preempted != nil {
		changes = append(changes, store.SetPreempted(c.preempted))
	}
	told := d.changed(e, c)
	changes = append(changes, kept(told)...)
	apply := d.store.Apply
	if c.fact {
		apply = d.applyFact
	}
	if err := apply(d.runCtx, changes...); err != nil {
		return &notSavedError{job: id, err: err}
	}
	e.unsaved = nil
	delete(d.unsaved, id)
	if c.usage != nil {
		d.usage.put(*c.usage)
	}
	d.daily.add(c.used...)
	if c.preempted != nil {
		d.preempted = c.preempted
	}
	was := e.job.State
	d.state.put(e, c)
	if !was.Final() && e.job.State.Final() {
		d.elementEnded(&e.job)
	}
	if !was.Final() && e.job.State.Final() && len(d.depends.on[id]) > 0 {
		d.depends.ended = append(d.depends.ended, id)
	}
	d.publish(e)
	d.tell.follow(was, &e.job, c.now)
	d.publishNotices(told)
	d.queue.kick()
	return nil
}

// persist runs transact in the loop, from a working goroutine, and tries again until the disk takes it: what has
// happened to a container can't be refused.
func (d *Daemon) persist(ctx context.Context, id engine.AttemptID, f func(c *change) error) error {
	for wait := 200 * time.Millisecond; ; wait = min(2*wait, 10*time.Second) {
		var err error
		fact := func(c *change) error { c.fact = true; return f(c) }
		if doErr := d.do(ctx, func() { err = d.transact(id.Job, id.Number, fact) }); doErr != nil {
			return doErr
		}
		var refused *notSavedError
		if !errors.As(err, &refused) || errors.Is(err, store.ErrClosed) {
			return err
		}
		d.log.Error("state not saved, trying again", "job", id.Job, "err", err)
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// sleep waits, and says false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
