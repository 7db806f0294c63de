// Package deliver sends stored notices by the local mail program and to an admin's own program. Each is taken from the
// store before it is sent: one that a crash comes between is lost rather than sent twice, and it stays readable with
// gputop notices. Nobody waits for the package, and what it starts never runs as root.
package deliver

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"gputop/engine"
	"gputop/engine/store"
)

const (
	// atOnce is how many notices are looked at together.
	atOnce = 256
	// stale is the age from which a notice is not sent any more.
	stale = 24 * time.Hour
	// window is the time over which what one user gets is counted.
	window = time.Hour
	// retry is how long a store that refuses is left alone.
	retry = 10 * time.Second
	// programs is for how many owners programs of one way run at once.
	programs = 4
	// runTime is how long one program may take.
	runTime = 20 * time.Second
)

// Store is what is needed of the store.
type Store interface {
	DueNotices(ctx context.Context, ways store.Ways, limit int) ([]store.Notice, error)
	TakeNotices(ctx context.Context, ways store.Ways, ids ...int64) error
}

// Program is something to run, not as root.
type Program struct {
	Argv []string
	// As is whom it runs as, where this process may choose; empty for itself.
	As string
	// Stdin is what it reads.
	Stdin []byte
}

// Options say what is sent how. The zero value sends nothing.
type Options struct {
	Store Store
	// Mail is the path of a sendmail; empty mails nothing. Command is an admin's program with its arguments.
	Mail    string
	Command []string
	// As is the account that both run as, where the daemon is root.
	As string
	// PerHour is how many notices about one user's jobs go each way in an hour; the rest are told as one number.
	PerHour int
	// Host is the machine's name, for who reads.
	Host string
	Now  func() time.Time
	Log  *slog.Logger
	// Run runs a program; Run of this package when nil.
	Run func(context.Context, Program) error
}

// Deliverer sends notices. Run does the work.
type Deliverer struct {
	o     Options
	lanes []*lane
}

// lane is one way of sending. Each works by itself, so that a program that hangs holds up nobody's mail.
type lane struct {
	*Deliverer
	way  store.Ways
	wake chan struct{}
	// budgets are what users, by uid, have got lately.
	budgets map[uint32]*budget
}

// budget is what one user got since a moment.
type budget struct {
	since        time.Time
	sent, passed int
	owner        engine.User
}

// New makes a deliverer.
func New(o Options) *Deliverer {
	if o.Run == nil {
		o.Run = Run
	}
	d := &Deliverer{o: o}
	for _, w := range []store.Ways{store.ByMail, store.ByCommand} {
		d.lanes = append(d.lanes, &lane{Deliverer: d, way: w, wake: make(chan struct{}, 1), budgets: map[uint32]*budget{}})
	}
	return d
}

// Ways are those that are configured.
func (d *Deliverer) Ways() (w store.Ways) {
	if d.o.Mail != "" {
		w |= store.ByMail
	}
	if len(d.o.Command) > 0 {
		w |= store.ByCommand
	}
	return w
}

// Wake says that there may be something to send.
func (d *Deliverer) Wake() {
	for _, l := range d.lanes {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Run sends what is due, at once what an earlier process left, until ctx is done.
func (d *Deliverer) Run(ctx context.Context) {
	var lanes sync.WaitGroup
	for _, l := range d.lanes {
		lanes.Go(func() { l.run(ctx) })
	}
	lanes.Wait()
}

func (d *lane) run(ctx context.Context) {
	for ctx.Err() == nil {
		more, err := d.step(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			d.o.Log.Error("notices wait", "err", err)
			more = false
		}
		d.summaries(ctx)
		if more {
			continue
		}
		if !d.pause(ctx, err != nil) {
			return
		}
	}
}

// pause waits for something to do; false when ctx is done.
func (d *lane) pause(ctx context.Context, failed bool) bool {
	after := d.nextSummary()
	if failed {
		after = retry
	}
	var due <-chan time.Time
	if after > 0 {
		t := time.NewTimer(after)
		defer t.Stop()
		due = t.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-due:
	case <-d.wake:
	}
	return true
}

// step sends one lot; more says that there may be another.
func (d *lane) step(ctx context.Context) (more bool, err error) {
	list, err := d.o.Store.DueNotices(ctx, d.way, atOnce)
	if err != nil {
		return false, err
	}
	now := d.o.Now()
	var pass []int64 // taken together: nothing is sent of them
	var send []engine.Notice
	for _, n := range list {
		if d.Ways()&d.way == 0 || now.Sub(n.Time) > stale || !d.allowed(n.Owner, now) {
			pass = append(pass, n.ID)
		} else {
			send = append(send, n.Notice)
		}
	}
	if err := d.o.Store.TakeNotices(ctx, d.way, pass...); err != nil {
		return false, err
	}
	// Each owner reads of their jobs in the order of things; owners do not wait for each other.
	byOwner := map[engine.User][]engine.Notice{}
	var owners []engine.User
	for _, n := range send {
		if byOwner[n.Owner] == nil {
			owners = append(owners, n.Owner)
		}
		byOwner[n.Owner] = append(byOwner[n.Owner], n)
	}
	sending := errgroup.Group{}
	sending.SetLimit(programs)
	for _, o := range owners {
		sending.Go(func() error { return d.sendAll(ctx, byOwner[o]) })
	}
	return len(list) == atOnce, sending.Wait()
}

// sendAll sends some notices one after the other, each taken from the store before.
func (d *lane) sendAll(ctx context.Context, list []engine.Notice) error {
	for _, n := range list {
		if err := d.o.Store.TakeNotices(ctx, d.way, n.ID); err != nil {
			return err
		}
		d.send(ctx, n)
	}
	return nil
}

// allowed counts a notice against its user's hour.
func (d *lane) allowed(owner engine.User, now time.Time) bool {
	b := d.budgets[owner.UID]
	if b == nil {
		b = &budget{since: now}
		d.budgets[owner.UID] = b
	}
	b.owner = owner
	if b.sent < d.o.PerHour {
		b.sent++
		return true
	}
	b.passed++
	return false
}

// summaries end the hours that are over, each with one word on what was passed over in it.
func (d *lane) summaries(ctx context.Context) {
	now := d.o.Now()
	for key, b := range d.budgets {
		if now.Sub(b.since) < window {
			continue
		}
		delete(d.budgets, key)
		if b.passed > 0 {
			d.send(ctx, more(b, now))
		}
	}
}

// nextSummary is how long until an hour is over; 0 for none.
func (d *lane) nextSummary() (after time.Duration) {
	now := d.o.Now()
	for _, b := range d.budgets {
		if left := max(window-now.Sub(b.since), time.Second); after == 0 || left < after {
			after = left
		}
	}
	return after
}

// send runs the program of a way. What fails is logged and left.
func (d *lane) send(ctx context.Context, n engine.Notice) {
	p, err := d.hookProgram(n)
	what := "command"
	if d.way == store.ByMail {
		p, err = d.mailProgram(n)
		what = "mail"
	}
	if err == nil {
		rctx, cancel := context.WithTimeout(ctx, runTime)
		err = d.o.Run(rctx, p)
		cancel()
	}
	if err != nil {
		d.o.Log.Warn("notice not delivered", "way", what, "job", n.Job, "kind", n.Kind, "owner", n.Owner.Name, "err", err)
	}
}
