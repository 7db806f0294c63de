package daemon

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/notice"
	"gputop/engine/quota"
	"gputop/engine/store"
	"gputop/profiles"
)

// seenPatience is how long a submit waits for the first sample of the GPUs.
const seenPatience = 10 * time.Second

// submitPatience is how long a submit waits for the first word of the owner's agent.
const submitPatience = 60 * time.Second

// Submit checks a job, refusing at once what can never run, and answers when it is on disk.
func (d *Daemon) Submit(ctx context.Context, c api.Caller, r api.SubmitRequest) (api.SubmitResponse, error) {
	return d.submit(ctx, c, r, func(j *engine.Job) []store.Change {
		return []store.Change{store.AddEvent(engine.Event{Time: j.Submitted, Job: j.ID, Kind: "submitted", Text: "by " + c.Name}),
			store.AddAudit(d.audit(c, actSubmit, j, "", ""))}
	})
}

// submit is Submit with what is kept beside the job.
func (d *Daemon) submit(ctx context.Context, c api.Caller, r api.SubmitRequest, with func(*engine.Job) []store.Change) (api.SubmitResponse, error) {
	var resp api.SubmitResponse
	release, err := d.turns.take(ctx, c.UID)
	if err != nil {
		return resp, err
	}
	defer release()
	spec, err := d.complete(c, r.Spec)
	if err != nil {
		return resp, d.record(ctx, c, err)
	}
	if err := d.checkTimes(ctx, spec); err != nil {
		return resp, err
	}
	n := size(spec)
	if r.Element != nil {
		n = 1
	}
	if err := d.admissible(ctx, c, spec, n); err != nil {
		var e *api.Error
		if errors.As(err, &e) && e.Code == api.CodeTooMany {
			sleep(ctx, tooManyPause)
		}
		return resp, err
	}
	// Until it is in the queue it counts as one that waits.
	defer func() { _ = d.do(d.runCtx, func() { d.accepting[c.UID] -= n }) }()
	rt, img, err := d.userReady(ctx, c, spec)
	if err != nil {
		return resp, err
	}
	resp.Warnings = d.told.fresh(c.UID, rt.Warnings, d.o.System.Now())
	now := d.o.System.Now()
	job := engine.Job{Owner: c.User, Spec: spec, State: engine.Pending, Submitted: now, Queued: later(now, spec.Begin), NotBefore: spec.Begin, Element: r.Element}
	if spec.Port > 0 {
		job.Token = rand.Text()
	}
	if img.ID != "" {
		job.Prepared, job.ImageName, job.ImageID, job.ImageDigest = true, said(img.Name), img.ID, img.Digest
	}
	if r.DryRun {
		resp.Job = *jobView(&job)
		return resp, nil
	}
	jobs, err := d.elements(job)
	if err != nil {
		return resp, err
	}
	changes := with(&jobs[0])
	for i := range jobs {
		if i > 0 {
			changes = append(changes, store.AddEvent(engine.Event{Time: now, Job: jobs[i].ID, Kind: "submitted", Text: "by " + c.Name}))
		}
		changes = append(changes, store.PutJob(jobs[i]))
	}
	if err := d.store.Apply(ctx, changes...); err != nil {
		return resp, notKept(err)
	}
	// It is on disk: from here on it is a job, whether or not the caller still listens.
	resp.Last = jobs[len(jobs)-1].ID
	err = d.do(context.WithoutCancel(ctx), func() { resp.Job = *d.queueUp(jobs) })
	if err != nil {
		resp.Job = *jobView(&jobs[0]) // the daemon stops; the next one finds the job
	}
	resp.Job = redact(resp.Job, c)
	return resp, nil
}

// queueUp puts accepted jobs into the queue, and returns the view of the first. Of an array one is enough to tell its
// owner that it waits long.
func (d *Daemon) queueUp(jobs []engine.Job) *api.Job {
	first := jobs[0].ID
	entries := make([]*entry, len(jobs))
	for i := range jobs {
		entries[i] = d.state.add(jobs[i])
		d.elementQueued(&jobs[i])
	}
	d.awaitNew(entries)
	for _, e := range entries {
		if e.job.Spec.Attended {
			d.attendanceOf(e.job.ID)
		}
		d.publish(e)
	}
	d.tell.waits.Add(notice.Wait{Job: first, Since: jobs[0].Queued})
	d.queue.kick()
	return d.state.jobs[first].view
}

// maxBegin is how far ahead a job may be submitted.
const maxBegin = 366 * 24 * time.Hour

// checkTimes refuses what waits for something that never comes.
func (d *Daemon) checkTimes(ctx context.Context, s engine.Spec) error {
	if s.Begin.Sub(d.o.System.Now()) > maxBegin {
		return invalid(fmt.Errorf("--begin: %s is more than a year away", s.Begin.Format(time.DateOnly)))
	}
	return d.checkAfter(ctx, s.After)
}

func notKept(err error) error {
	if errors.Is(err, store.ErrFull) {
		return &api.Error{Code: api.CodeUnavailable, Message: "the job was not accepted: the disk with gputop's state is full; nothing was kept",
			Hint: "Make room there and submit again; jobs accepted before are safe."}
	}
	return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("the job was not accepted, nothing was kept: %v", err)}
}

// complete fills in what the job does not say and checks what it does.
func (d *Daemon) complete(c api.Caller, s engine.Spec) (engine.Spec, error) {
	if c.UID == 0 {
		return s, &refusal{action: actSubmit, err: &api.Error{Code: api.CodeForbidden, Message: "root cannot submit jobs: containers run as the submitting user, and never as root",
			Hint: "Submit from an ordinary account, for example with: runuser -u NAME -- gputop submit ..."}}
	}
	p, terms := d.policy(), d.callerTerms(c)
	class, limit := terms.Default()
	if s.Profile == "" {
		s.Profile = p.Profile
		if s.Image != "" {
			s.Profile = "container"
		}
	}
	if s.Class == 0 {
		s.Class = class
	}
	if s.Class == engine.Critical {
		if err := permit(c, actCritical, &engine.Job{Owner: c.User}, ""); err != nil {
			return s, err
		}
	}
	if s.TimeLimit == 0 {
		s.TimeLimit = limit
	}
	if err := d.granted(c, terms, s); err != nil {
		return s, err
	}
	gid, err := d.sharedWith(c, s.Group)
	if err != nil {
		return s, err
	}
	s.GroupID = gid
	prof, err := profiles.Get(s.Profile)
	if err != nil {
		return s, invalid(err)
	}
	if prof.NeedsImage && s.Image == "" {
		return s, invalid(fmt.Errorf("profile %s needs an image: add --image NAME, or use --profile host-env to run this machine's own programs", s.Profile))
	}
	if len(s.Command) == 0 {
		s.Command = prof.Command
		if s.Name == "" && len(prof.Command) > 0 {
			s.Name = prof.Name
		}
	}
	if s.Port == 0 {
		s.Port = prof.Port
	}
	if s.Name == "" && len(s.Command) > 0 {
		s.Name = draft.NameFor(s.Command)
	}
	if !prof.HostEnv {
		s.CallerEnv = nil
	}
	s = withMounts(s, terms)
	if err := draft.CheckSpec(s); err != nil {
		return s, invalid(err)
	}
	s.Env = maps.Clone(s.Env)
	return s, nil
}

// sharedWith is the number of the group that a job is shared with: one of the caller's own.
func (d *Daemon) sharedWith(c api.Caller, name string) (uint32, error) {
	if name == "" {
		return 0, nil
	}
	bad := func(why string) (uint32, error) {
		return 0, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("group %q: %s", name, why), Hint: "Your groups: id -nG"}
	}
	if d.o.GroupID == nil {
		return bad("a personal daemon shares with nobody")
	}
	gid, err := d.o.GroupID(name)
	switch {
	case err != nil:
		return bad("this machine does not know it")
	case gid == 0 || !slices.Contains(groupsOfCaller(c), gid):
		return bad("you are not a member of it")
	}
	return gid, nil
}

// granted refuses a class, a time limit or an image that the rules do not give the caller. Classes and time limits of an
// admin have no end.
func (d *Daemon) granted(c api.Caller, terms quota.Terms, s engine.Spec) error {
	if !c.Admin && !terms.MayUse(s.Class) {
		return &refusal{action: actSubmit, owner: c.User, err: classRefused(terms, s.Class)}
	}
	if err := imageRefused(terms, s.Image); err != nil {
		return &refusal{action: actSubmit, owner: c.User, err: err}
	}
	if c.Admin {
		return nil
	}
	return limitRefused(terms, s.TimeLimit)
}

func invalid(err error) error { return &api.Error{Code: api.CodeInvalid, Message: err.Error()} }

// admissible refuses what the box can never give, and more waiting jobs than one user may have, before the disk is
// touched.
func (d *Daemon) admissible(ctx context.Context, c api.Caller, s engine.Spec, jobs int) error {
	var err error
	if s.Request.WantsGPU() {
		if err := d.awaitSeen(ctx); err != nil {
			return err
		}
	}
	derr := d.do(ctx, func() {
		d.meet(c)
		terms := d.callerTerms(c)
		if n := d.state.pending[c.UID] + d.accepting[c.UID]; n+jobs > *terms.MaxPending {
			of := ""
			if jobs > 1 {
				of = fmt.Sprintf(", these would be %d more", jobs)
			}
			err = &api.Error{Code: api.CodeTooMany, Message: fmt.Sprintf("you have %d jobs waiting%s, the most allowed is %d", n, of, *terms.MaxPending),
				Hint: "Wait until some have run, or cancel some."}
			return
		}
		if err = d.canServe(s.Request); err == nil {
			err = d.withinQuota(c.Name, terms, s.Request)
		}
		if err == nil {
			d.accepting[c.UID] += jobs
		}
	})
	if derr != nil {
		return derr
	}
	return err
}

// userReady asks the owner's agent whether this user can run anything, and whether the image is there. An image that a
// pull may bring is left to the preparation.
func (d *Daemon) userReady(ctx context.Context, c api.Caller, s engine.Spec) (agentrpc.RuntimeInfo, agentrpc.Image, error) {
	var none agentrpc.Image
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	l, err := d.agents.get(ctx, c.User)
	if err != nil {
		return agentrpc.RuntimeInfo{}, none, &api.Error{Code: api.CodeUnavailable, Message: err.Error() + "; the job was not accepted", Hint: "Look for the cause with: gputop doctor"}
	}
	if l.info().Problem != nil {
		// It may have been mended since the agent came.
		if err := l.probe(ctx); err != nil {
			d.log.Warn("agent not asked again", "user", c.Name, "err", err)
		}
	}
	rt := l.info()
	if p := rt.Problem; p != nil {
		return rt, none, &api.Error{Code: api.CodeInvalid, Message: "no job of " + c.Name + " can run: " + p.Message, Hint: p.Fix}
	}
	key, _, err := keyOf(c.User, &s)
	if err != nil {
		return rt, none, invalid(err)
	}
	if err := d.checkProgram(ctx, l, c, key, s); err != nil {
		return rt, none, err
	}
	if img, ok := d.images.get(key); ok {
		return rt, img, nil
	}
	if !key.hostEnv && strings.HasPrefix(key.image, "localhost/") {
		var img agentrpc.Image
		err := l.call(ctx, agentrpc.MethodResolveImage, agentrpc.ResolveImageArgs{Image: key.image, Archives: d.policy().ImageArchives}, &img)
		if err == nil && !img.Found && !img.Archived {
			return rt, none, &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("image %s is not in your local store, and localhost/ images cannot be pulled", key.image),
				Hint: "List what is there with: gputop images"}
		}
	}
	return rt, none, nil
}

// checkProgram has the agent look, as the user, whether a host-environment job finds its program. It is done at once: a
// job whose image is known is not prepared any more.
func (d *Daemon) checkProgram(ctx context.Context, l *link, c api.Caller, key imageKey, s engine.Spec) error {
	if !key.hostEnv || l.version != d.o.Version { // another version may not know the call
		return nil
	}
	later := false
	if err := d.do(ctx, func() { later = d.state.workAhead(c.UID, 0) }); err != nil {
		return err
	}
	err := l.call(ctx, agentrpc.MethodCheck, prepareArgs(0, key, s, later), nil)
	if err != nil && agentrpc.CodeOf(err) == agentrpc.CodeInvalid {
		return invalid(err)
	}
	return nil // no answer: it is checked again before it starts
}

// tellAgain is how long a warning is not repeated to the same user.
const tellAgain = time.Hour

// told remembers which warnings a user has had, so that they are not noise.
type told struct {
	mu sync.Mutex
	at map[toldKey]time.Time
}

type toldKey struct {
	uid  uint32
	text string
}

// fresh is what of the warnings the user has not had lately.
func (t *told) fresh(uid uint32, warnings []string, now time.Time) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, w := range warnings {
		k := toldKey{uid, w}
		if last, ok := t.at[k]; !ok || now.Sub(last) >= tellAgain {
			t.at[k] = now
			out = append(out, w)
		}
	}
	return out
}
