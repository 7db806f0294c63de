package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// action is something a caller asks of a job. Its word is in the audit trail and in docs/permissions.md.
type action int

const (
	actSubmit action = iota
	actCritical
	actSee
	actLook
	actLogs
	actExec
	actCancel
	actPreempt
	actHold
	actRelease
	actReleaseAdmin
	actRequeue
	actUpdate
	actClass
	actLimit
	actRaise
	actAudit
	actReserve
	actions
)

// rule is what the table says of one action by one relation.
type rule int

const (
	no rule = iota
	yes
	reason // only with a reason
	gain   // only for a waiting job of one's own that gains by it: see engine/daemon/preempt.go
)

// permission is one row of the table: what the owner of a job, an admin who does not own it, a member of the group that the
// job was shared with, and anybody else may do.
type permission struct {
	word, what                 string
	owner, admin, group, other rule
}

// permissions is the one place that says who may do what. A caller of whom several things are true may do what any of them
// may.
var permissions = [actions]permission{
	actSubmit:       {"submit", "submit it: a job runs as who submits it, and never as root", yes, no, no, no},
	actCritical:     {"critical", "give a job the class critical", no, yes, no, no},
	actSee:          {"see", "see its name, owner, class, amounts, devices, times, state and why it waits; wait for its end", yes, yes, yes, yes},
	actLook:         {"look", "see its command, environment's names, mounts, image, attempts, messages and story", yes, yes, yes, no},
	actLogs:         {"logs", "read its output", yes, yes, yes, no},
	actExec:         {"exec", "run a command in its container", yes, no, no, no},
	actCancel:       {"cancel", "end it for good", yes, yes, no, no},
	actPreempt:      {"preempt", "stop it and put it back in the queue", yes, reason, gain, gain},
	actHold:         {"hold", "keep it from its turn", yes, yes, no, no},
	actRelease:      {"release", "let it have its turn again, held by its owner", yes, yes, no, no},
	actReleaseAdmin: {"release-admin", "let it have its turn again, held by an admin", no, yes, no, no},
	actRequeue:      {"requeue", "preempt it, or submit it again once it has ended", yes, no, no, no},
	actUpdate:       {"update", "change its name, or while it waits what it asks for", yes, no, no, no},
	actClass:        {"class", "change its class while it waits", yes, yes, no, no},
	actLimit:        {"time-limit", "change its time limit while it waits, or lower it while it runs", yes, yes, no, no},
	actRaise:        {"raise-limit", "raise its time limit while it runs", no, yes, no, no},
	actAudit:        {"audit", "read who did, or was refused, what to it", yes, yes, no, no},
	actReserve:      {"reserve", "promise GPUs to people for a time, drain and undrain them", no, yes, no, no},
}

func (a action) String() string { return permissions[a].word }

// subject is whose job it is, and with which group it was shared; a zero group is none.
type subject struct {
	owner engine.User
	group uint32
}

func subjectOf(j *engine.Job) subject { return subject{j.Owner, j.Spec.GroupID} }

// may is what the table says of a caller and a job.
func may(c api.Caller, a action, of subject) rule {
	p := &permissions[a]
	best := p.other
	better := func(is bool, r rule) {
		if is && (best == no || r == yes) {
			best = r
		}
	}
	better(of.group != 0 && slices.Contains(groupsOfCaller(c), of.group), p.group)
	better(c.Admin, p.admin)
	better(of.owner.Is(c.User), p.owner)
	if c.Admin && p.admin == reason && best == gain {
		return reason
	}
	return best
}

// refusal is a caller turned down by the table: record tells the log and the audit trail.
type refusal struct {
	action action
	job    engine.JobID
	owner  engine.User
	note   string
	err    *api.Error
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// permit asks the table. It changes nothing, so that it may run in the loop; its error goes to record outside.
func permit(c api.Caller, a action, j *engine.Job, note string) error {
	r := &refusal{action: a, job: j.ID, owner: j.Owner, note: note}
	switch may(c, a, subjectOf(j)) {
	case yes:
		return nil
	case reason:
		if note != "" {
			return nil
		}
		r.err = &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("job %s belongs to %s: to %s it you have to say why", j.ID, j.Owner.Name, a),
			Hint: "Add a reason, which its owner reads: --reason '...'"}
	default:
		r.err = forbidden(a, j)
	}
	return r
}

// forbidden says who may, so that the caller knows whom to ask.
func forbidden(a action, j *engine.Job) *api.Error {
	p := permissions[a]
	who := map[[2]bool]string{{true, true}: "its owner or an admin", {true, false}: "its owner", {false, true}: "an admin"}[[2]bool{p.owner != no, p.admin != no}]
	e := &api.Error{Code: api.CodeForbidden}
	switch {
	case a == actPreempt:
		e.Message = fmt.Sprintf("job %s belongs to %s; only its owner or an admin may preempt it by itself", j.ID, j.Owner.Name)
		e.Hint = fmt.Sprintf("For a waiting job of yours with a higher class: gputop preempt %s --for JOB", j.ID)
	case a == actReserve:
		e.Message, e.Hint = "reservations and drains are for admins", "Ask an admin of this machine."
	case a == actCritical:
		e.Message, e.Hint = "class critical is for admins", "Use --class high for work that cannot wait."
	case a == actReleaseAdmin:
		e.Message, e.Hint = fmt.Sprintf("job %s was held by %s; only an admin may release it", j.ID, j.HeldBy), "Ask an admin of this machine."
	case a == actRaise:
		e.Message = fmt.Sprintf("job %s runs; only an admin may raise its time limit", j.ID)
		e.Hint = "Its owner may lower it. A job that still waits can be given any."
	case a == actRequeue:
		e.Message = fmt.Sprintf("job %s belongs to %s; only its owner may requeue it", j.ID, j.Owner.Name)
		e.Hint = "An admin puts a running job back with: gputop preempt " + j.ID.String() + " --reason '...'"
	default:
		doing := map[action]string{actLogs: "read its output", actExec: "enter its container"}[a]
		if doing == "" {
			doing = a.String() + " it"
		}
		if a == actLimit || a == actClass {
			doing = "change that"
		}
		e.Message = fmt.Sprintf("job %s belongs to %s; only %s may %s", j.ID, j.Owner.Name, who, doing)
	}
	return e
}

// record makes a refusal known: to the log and to the audit trail. What it returns is for the caller. A trail that can't
// be written lets nobody in.
func (d *Daemon) record(ctx context.Context, c api.Caller, err error) error {
	var r *refusal
	if !errors.As(err, &r) {
		return err
	}
	write, unwritten := d.refusals.take(c.UID, d.o.System.Now())
	if !write {
		return r.err
	}
	d.log.Warn("refused", "action", r.action.String(), "job", r.job, "owner", r.owner.Name, "user", c.Name, "uid", c.UID, "pid", c.PID, "why", r.err.Message)
	e := d.audit(c, r.action, &engine.Job{ID: r.job, Owner: r.owner}, r.note, r.err.Message)
	e.Allowed = false
	if unwritten > 0 {
		e.Text += fmt.Sprintf(" (%d others before it were not written down)", unwritten)
	}
	// Also for a caller who hangs up: it was tried.
	if serr := d.store.Apply(context.WithoutCancel(ctx), store.AddAudit(e)); serr != nil {
		d.log.Error("refusal not in the audit trail", "user", c.Name, "action", r.action.String(), "job", r.job, "err", serr)
	}
	return r.err
}

// audit is the line of the trail about something done to a job.
func (d *Daemon) audit(c api.Caller, a action, j *engine.Job, note, text string) engine.AuditEntry {
	return engine.AuditEntry{Time: d.o.System.Now(), User: c.User, PID: c.PID, Action: a.String(), Job: j.ID, Owner: j.Owner,
		Allowed: true, Reason: note, Text: text}
}

// Audit reads the trail: all of it for admins, else what the caller did and what was done to the caller's jobs.
func (d *Daemon) Audit(ctx context.Context, c api.Caller, q api.AuditQuery) (api.Audit, error) {
	limit := q.Limit
	if limit <= 0 || limit > api.MaxAudit {
		limit = api.DefaultAudit
	}
	sq := store.AuditQuery{Since: q.Since, By: q.User, Limit: limit + 1}
	if may(c, actAudit, subject{}) != yes { // somebody else's
		sq.Of = &c.User
	}
	list, err := d.store.Audit(ctx, sq)
	if err != nil {
		return api.Audit{}, err
	}
	out := api.Audit{Entries: list, More: len(list) > limit}
	if out.More {
		out.Entries = list[:limit]
	}
	if out.Entries == nil {
		out.Entries = []engine.AuditEntry{}
	}
	return out, nil
}
