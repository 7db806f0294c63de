package daemon

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/scheduler"
)

const (
	// maxReservations bounds how many may be promised at once, longestReservation how long one lasts, and reserveAhead how
	// far ahead it may begin.
	maxReservations    = 1000
	longestReservation = 90 * 24 * time.Hour
	reserveAhead       = 366 * 24 * time.Hour
)

// Reserve promises devices to people for a time, or drains them. It is on disk when it answers.
func (d *Daemon) Reserve(ctx context.Context, c api.Caller, r api.ReserveRequest) (api.ReserveResponse, error) {
	var out api.ReserveResponse
	if err := permit(c, actReserve, &engine.Job{}, r.Reason); err != nil {
		return out, d.record(ctx, c, err)
	}
	if err := d.awaitSeen(ctx); err != nil {
		return out, err
	}
	v, err := d.reservation(c, r)
	if err != nil {
		return out, err
	}
	derr := d.do(ctx, func() { out, err = d.reserve(c, v, r) })
	if derr != nil {
		return out, derr
	}
	return out, err
}

// reservation reads a request; whom it names is asked outside the loop.
func (d *Daemon) reservation(c api.Caller, r api.ReserveRequest) (engine.Reservation, error) {
	now := d.o.System.Now()
	v := engine.Reservation{Drain: r.Drain, From: r.From, To: r.To, Preempt: r.Preempt || !r.Drain, Reason: r.Reason, By: c.User, Made: now}
	if v.From.IsZero() || v.From.Before(now) && now.Sub(v.From) < time.Minute {
		v.From = now
	}
	switch {
	case d.o.Mode == Personal && !r.Drain:
		return v, invalid(fmt.Errorf("a personal daemon is for one user, and reserves nothing for others"))
	case r.GPUs < 0 || r.GPUs > 0 && len(r.Devices) > 0:
		return v, invalid(fmt.Errorf("give a number of GPUs or name them, one of both"))
	case r.GPUs == 0 && len(r.Devices) == 0:
		return v, invalid(fmt.Errorf("which GPUs? give a number of them or name them"))
	case v.From.Before(now):
		return v, invalid(fmt.Errorf("it would begin in the past, at %s", v.From.Format(time.DateTime)))
	case v.From.Sub(now) > reserveAhead:
		return v, invalid(fmt.Errorf("it would begin more than a year ahead"))
	case !v.To.IsZero() && !v.To.After(v.From):
		return v, invalid(fmt.Errorf("it would end before it begins"))
	case !r.Drain && v.To.IsZero():
		return v, invalid(fmt.Errorf("until when? a reservation needs an end"))
	case !r.Drain && v.To.Sub(v.From) > longestReservation:
		return v, invalid(fmt.Errorf("a reservation lasts %d days at most", int(longestReservation.Hours()/24)))
	case r.Drain && len(r.Users)+len(r.Groups) > 0:
		return v, invalid(fmt.Errorf("a drain is for nobody: reserve the GPUs for people instead"))
	case !r.Drain && len(r.Users)+len(r.Groups) == 0:
		return v, invalid(fmt.Errorf("for whom? name users or groups"))
	}
	for _, name := range r.Users {
		uid, err := lookUp(d.o.UserID, name)
		if err != nil {
			return v, invalid(fmt.Errorf("user %q: this machine does not know them", name))
		}
		v.Users = append(v.Users, engine.User{UID: uid, Name: name})
	}
	for _, name := range r.Groups {
		gid, err := lookUp(d.o.GroupID, name)
		if err != nil {
			return v, invalid(fmt.Errorf("group %q: this machine does not know it", name))
		}
		v.Groups = append(v.Groups, engine.Group{Name: name, GID: gid})
	}
	return v, nil
}

func lookUp(f func(string) (uint32, error), name string) (uint32, error) {
	if f == nil {
		return 0, fmt.Errorf("no names are known")
	}
	return f(name)
}

// reserve chooses the devices and stores. It runs in the loop.
func (d *Daemon) reserve(c api.Caller, v engine.Reservation, r api.ReserveRequest) (out api.ReserveResponse, err error) {
	if len(d.reserved) >= maxReservations {
		return out, &api.Error{Code: api.CodeTooMany, Message: fmt.Sprintf("there are %d reservations, the most allowed", len(d.reserved)), Hint: "Take some back: gputop unreserve"}
	}
	if v.Devices, err = d.chooseDevices(v, r); err != nil {
		return out, err
	}
	entry := d.audit(c, actReserve, &engine.Job{}, r.Reason, d.reservationText(&v))
	if v, err = d.store.AddReservation(d.runCtx, v, entry); err != nil {
		return out, d.saved(err)
	}
	d.reserved = append(d.reserved, v)
	out.Reservation, out.Warnings = d.reservationView(&v), d.inTheWay(&v)
	d.reservationsChanged()
	return out, nil
}

// reservationsChanged has everybody see it, and the queue planned anew.
func (d *Daemon) reservationsChanged() {
	d.hub.gpus(d.gpusView())
	d.queue.kick()
}

// chooseDevices are those that were named, or the ones on which least is in the way.
func (d *Daemon) chooseDevices(v engine.Reservation, r api.ReserveRequest) ([]engine.DeviceID, error) {
	taken := func(id engine.DeviceID) *engine.Reservation {
		for i := range d.reserved {
			o := &d.reserved[i]
			if slices.Contains(o.Devices, id) && o.Overlaps(&v) && (!v.Drain || o.Drain) {
				return o
			}
		}
		return nil
	}
	for _, id := range r.Devices {
		switch o := taken(id); {
		case d.indexOf(id) < 0:
			return nil, invalid(fmt.Errorf("there is no GPU %s on this machine", id))
		case o != nil:
			return nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("GPU %d is %s then (number %s)", d.indexOf(id), o.Whose(), o.ID), Hint: "See gputop reserve."}
		}
	}
	if len(r.Devices) > 0 {
		slices.Sort(r.Devices)
		return slices.Compact(r.Devices), nil
	}
	type choice struct {
		id           engine.DeviceID
		index, inWay int
	}
	var free []choice
	for i := range d.state.sample.GPUs {
		g := &d.state.sample.GPUs[i]
		if taken(g.UUID) == nil && g.Health == engine.HealthOK {
			one := v
			one.Devices = []engine.DeviceID{g.UUID}
			free = append(free, choice{g.UUID, g.Index, len(d.inTheWay(&one))})
		}
	}
	if len(free) < r.GPUs {
		return nil, &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf("%s asked for; %d of this machine's %d are in order and not promised then", engine.Count(r.GPUs, "GPU"), len(free), len(d.state.sample.GPUs)),
			Hint: "See gputop reserve."}
	}
	slices.SortFunc(free, func(a, b choice) int { return cmp.Or(cmp.Compare(a.inWay, b.inWay), cmp.Compare(a.index, b.index)) })
	out := mapped(free[:r.GPUs], func(c choice) engine.DeviceID { return c.id })
	slices.Sort(out)
	return out, nil
}

// inTheWay names the jobs that may still run on the devices when it begins.
func (d *Daemon) inTheWay(v *engine.Reservation) (out []string) {
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e == nil || !a.Allocation.State.Holds() || !onAny(a, v.Devices) || d.isFor(v, e.job.Owner) {
			continue
		}
		end := d.heldBy(e, a).End
		if !end.IsZero() && !end.After(v.From) {
			continue
		}
		what := "runs on"
		if v.Preempt {
			what = "is put back in the queue"
		}
		out = append(out, fmt.Sprintf("job %s of %s may run longer than that; it then %s", a.ID.Job, e.job.Owner.Name, what))
	}
	return out
}

func onAny(a *engine.Attempt, devices []engine.DeviceID) bool {
	return slices.ContainsFunc(a.Allocation.Grants, func(g engine.Grant) bool { return slices.Contains(devices, g.Device) })
}

func (d *Daemon) isFor(v *engine.Reservation, u engine.User) bool {
	var groups []uint32
	if p := d.people[u.UID]; p != nil {
		groups = p.groups
	}
	return v.For(u, groups)
}

// windows are the times in which a device is promised, in the scheduler's words.
func (d *Daemon) windows(id engine.DeviceID) (out []scheduler.Window) {
	for i := range d.reserved {
		r := &d.reserved[i]
		if !slices.Contains(r.Devices, id) {
			continue
		}
		w := scheduler.Window{Name: r.Whose(), From: r.From, To: r.To, Drain: r.Drain, For: map[uint32]bool{}}
		for uid, p := range d.people {
			if !r.Drain && r.For(p.user, p.groups) {
				w.For[uid] = true
			}
		}
		out = append(out, w)
	}
	return out
}

// reservedForGroups says that it matters who is in which group.
func (d *Daemon) reservedForGroups() bool {
	return slices.ContainsFunc(d.reserved, func(r engine.Reservation) bool { return len(r.Groups) > 0 })
}

// keepReservations forgets those that are over, and clears the devices of those that have begun.
func (d *Daemon) keepReservations() {
	now := d.o.System.Now()
	var over []engine.ReservationID
	for i := range d.reserved {
		r := &d.reserved[i]
		switch {
		case r.Over(now):
			over = append(over, r.ID)
		case r.Begun(now) && r.Preempt:
			d.clearFor(r)
		}
	}
	if len(over) == 0 {
		return
	}
	if err := d.store.ForgetReservations(d.runCtx, over); err != nil {
		d.log.Error("reservations that are over not forgotten, trying again", "err", err)
		return
	}
	d.reserved = slices.DeleteFunc(d.reserved, func(r engine.Reservation) bool { return slices.Contains(over, r.ID) })
	d.reservationsChanged()
}

// clearFor puts jobs of others that still run on promised devices back in the queue.
func (d *Daemon) clearFor(r *engine.Reservation) {
	for _, a := range d.state.sortedAttempts() {
		e := d.state.jobs[a.ID.Job]
		if e == nil || e.job.State != engine.Running || a.ID.Number != e.job.Attempts || !onAny(a, r.Devices) || d.isFor(r, e.job.Owner) {
			continue
		}
		text := "preempted: its GPU is " + r.Whose()
		if err := d.stopActive(e, engine.StopPreempted, text); err != nil {
			d.log.Error("job not preempted for a reservation, trying again", "job", e.job.ID, "err", err)
		}
	}
}

// Reserved lists what is promised now and later, first to begin first.
func (d *Daemon) Reserved(ctx context.Context, _ api.Caller) ([]api.Reservation, error) {
	out := []api.Reservation{}
	err := d.do(ctx, func() { out = append(out, mapped(pointers(d.reserved), d.reservationView)...) })
	slices.SortFunc(out, func(a, b api.Reservation) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID)) })
	return out, err
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func (d *Daemon) reservationView(r *engine.Reservation) api.Reservation {
	return api.Reservation{Reservation: *r, Whose: r.Whose(), Indices: slices.Sorted(slices.Values(mapped(r.Devices, d.indexOf)))}
}

// reservationText is a reservation for the audit trail.
func (d *Daemon) reservationText(r *engine.Reservation) string {
	to := "an open end"
	if !r.To.IsZero() {
		to = r.To.Format(time.RFC3339)
	}
	names := mapped(r.Devices, func(id engine.DeviceID) string { return fmt.Sprintf("GPU %d (%s)", d.indexOf(id), id) })
	return fmt.Sprintf("%s %s, from %s to %s", strings.Join(names, ", "), r.Whose(), r.From.Format(time.RFC3339), to)
}

// Unreserve takes a reservation or a drain back.
func (d *Daemon) Unreserve(ctx context.Context, c api.Caller, id engine.ReservationID, note string) (api.Reservation, error) {
	var out api.Reservation
	if err := permit(c, actReserve, &engine.Job{}, note); err != nil {
		return out, d.record(ctx, c, err)
	}
	var err error
	derr := d.do(ctx, func() {
		i := slices.IndexFunc(d.reserved, func(r engine.Reservation) bool { return r.ID == id })
		if i < 0 {
			err = &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("there is no reservation %s", id), Hint: "See gputop reserve."}
			return
		}
		out = d.reservationView(&d.reserved[i])
		err = d.withdraw(c, i, d.reserved[i].Devices, note)
	})
	if derr != nil {
		return out, derr
	}
	return out, err
}

// withdraw takes devices out of a reservation, and stores that.
func (d *Daemon) withdraw(c api.Caller, i int, devices []engine.DeviceID, note string) error {
	was := d.reserved[i]
	is := was
	is.Devices = slices.DeleteFunc(slices.Clone(was.Devices), func(id engine.DeviceID) bool { return slices.Contains(devices, id) })
	gone := was
	gone.Devices = devices
	entry := d.audit(c, actReserve, &engine.Job{}, note, "taken back: "+d.reservationText(&gone))
	if err := d.store.PutReservation(d.runCtx, is, entry); err != nil {
		return d.saved(err)
	}
	if d.reserved[i] = is; len(is.Devices) == 0 {
		d.reserved = slices.Delete(d.reserved, i, i+1)
	}
	d.reservationsChanged()
	return nil
}

// Undrain takes devices, or all, out of every drain.
func (d *Daemon) Undrain(ctx context.Context, c api.Caller, r api.UndrainRequest) ([]api.Reservation, error) {
	if err := permit(c, actReserve, &engine.Job{}, r.Reason); err != nil {
		return nil, d.record(ctx, c, err)
	}
	var err error
	derr := d.do(ctx, func() { err = d.undrain(c, r) })
	if derr != nil || err != nil {
		return nil, cmp.Or(derr, err)
	}
	all, err := d.Reserved(ctx, c)
	return slices.DeleteFunc(all, func(r api.Reservation) bool { return !r.Drain }), err
}

func (d *Daemon) undrain(c api.Caller, r api.UndrainRequest) error {
	found := false
	for i := len(d.reserved) - 1; i >= 0; i-- {
		o := &d.reserved[i]
		if !o.Drain {
			continue
		}
		these := o.Devices
		if len(r.Devices) > 0 {
			these = slices.DeleteFunc(slices.Clone(o.Devices), func(id engine.DeviceID) bool { return !slices.Contains(r.Devices, id) })
		}
		if len(these) == 0 {
			continue
		}
		found = true
		if err := d.withdraw(c, i, these, r.Reason); err != nil {
			return err
		}
		d.forgive(these)
	}
	if !found {
		return &api.Error{Code: api.CodeConflict, Message: "nothing of that is drained", Hint: "See gputop reserve."}
	}
	return nil
}
