package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/profiles"
)

const (
	// prepareAhead is how many jobs from the front of the queue are made ready; prepareAtOnce how many at the same time.
	prepareAhead  = 64
	prepareAtOnce = 4
	// imageFresh is how long an image that was found good is taken to be so.
	imageFresh = 10 * time.Minute
	// awayPause is how long a job waits whose owner's agent or Podman did not answer.
	awayPause = 10 * time.Second
)

// imageKey is what decides which image a job gets.
type imageKey struct {
	uid     uint32
	image   string
	hostEnv bool
}

// imageCache remembers which images were found, so that a thousand jobs of one image ask once.
type imageCache struct {
	now func() time.Time
	mu  sync.Mutex
	m   map[imageKey]cachedImage
}

type cachedImage struct {
	agentrpc.Image
	at time.Time
}

func newImageCache(now func() time.Time) *imageCache {
	return &imageCache{now: now, m: map[imageKey]cachedImage{}}
}

func (c *imageCache) get(k imageKey) (agentrpc.Image, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.m[k]
	return e.Image, ok && c.now().Sub(e.at) < imageFresh
}

func (c *imageCache) put(k imageKey, i agentrpc.Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.m) > 4096 {
		clear(c.m)
	}
	c.m[k] = cachedImage{i, c.now()}
}

func (c *imageCache) drop(k imageKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.m, k)
}

// keyOf is the image a job needs. The profile was checked at submit; one that is gone since fails at prepare.
func keyOf(u engine.User, s *engine.Spec) (imageKey, profiles.Profile, error) {
	p, err := profiles.Get(s.Profile)
	if err != nil {
		return imageKey{}, p, err
	}
	k := imageKey{uid: u.UID, image: s.Image, hostEnv: p.HostEnv}
	if k.image == "" {
		k.image = p.Image
	}
	if k.image != "" {
		k.hostEnv = false
	}
	return k, p, nil
}

// prepareSome makes the first waiting jobs ready: no device is held while an image is pulled.
func (d *Daemon) prepareSome() {
	busy := 0
	var next []*entry
	for _, e := range d.state.jobs {
		switch {
		case e.job.State == engine.Preparing:
			busy++
		case e.job.State == engine.Pending && !e.job.Prepared && !e.job.Held && e.position <= prepareAhead &&
			!e.job.NotBefore.After(d.o.System.Now()):
			next = append(next, e)
		}
	}
	slices.SortFunc(next, func(a, b *entry) int { return int(a.job.ID - b.job.ID) })
	for _, e := range next {
		if busy >= prepareAtOnce {
			return
		}
		busy++
		id, user, spec := e.job.ID, e.job.Owner, e.job.Spec
		if err := d.transact(id, 0, func(c *change) error { return c.move(engine.EvPrepare) }); err != nil {
			d.log.Error("job not prepared", "job", id, "err", err)
			continue
		}
		d.goWork(func(ctx context.Context) { d.prepare(ctx, id, user, spec) })
	}
}

func (d *Daemon) prepare(ctx context.Context, id engine.JobID, u engine.User, spec engine.Spec) {
	key, _, err := keyOf(u, &spec)
	var img agentrpc.Image
	if err == nil {
		img, err = d.askPrepare(ctx, id, u, key, spec)
	} else {
		err = &agentrpc.Error{Code: agentrpc.CodeInvalid, Message: err.Error()}
	}
	if ctx.Err() != nil {
		return // the next daemon prepares anew
	}
	if err == nil {
		d.images.put(key, img)
	}
	perr := d.persist(ctx, engine.AttemptID{Job: id}, func(c *change) error { return d.prepared(c, img, err) })
	if perr != nil && ctx.Err() == nil {
		// Cancelled meanwhile: there is nothing to prepare any more.
		d.log.Info("preparation dropped", "job", id, "err", perr)
	}
}

func (d *Daemon) askPrepare(ctx context.Context, id engine.JobID, u engine.User, key imageKey, spec engine.Spec) (agentrpc.Image, error) {
	var img agentrpc.Image
	actx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := d.agents.get(actx, u)
	if err != nil {
		return img, err
	}
	later := false
	if err := d.do(ctx, func() { later = d.state.workAhead(u.UID, id) }); err != nil {
		return img, err
	}
	args := prepareArgs(id, key, spec, later)
	args.Archives = d.policy().ImageArchives
	err = l.call(ctx, agentrpc.MethodPrepare, args, &img)
	if err == nil && img.ID == "" {
		err = &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "the agent named no image"}
	}
	return img, err
}

// prepareArgs is what a job wants of the host.
func prepareArgs(id engine.JobID, key imageKey, spec engine.Spec, later bool) agentrpc.PrepareArgs {
	p := agentrpc.PrepareArgs{Job: id, Image: key.image, HostEnv: key.hostEnv, Workdir: spec.Workdir, Mounts: spec.Mounts,
		Output: expandOutput(spec.Output, engine.AttemptID{Job: id, Number: 1}, nil), Later: later}
	if key.hostEnv && len(spec.Command) > 0 {
		p.Program = spec.Command[0]
		if prof, err := profiles.Get(spec.Profile); err == nil && prof.Program != "" && slices.Equal(prof.Command, spec.Command) {
			p.Program = prof.Program // not the shell that starts it
		}
		p.Path = firstOf(spec.Env["PATH"], spec.CallerEnv["PATH"])
	}
	return p
}

// prepared takes over what came of a preparation.
func (d *Daemon) prepared(c *change, img agentrpc.Image, err error) error {
	e := d.state.jobs[c.job.ID]
	e.away = ""
	if err == nil {
		c.job.Prepared, c.job.ImageName, c.job.ImageID, c.job.ImageDigest = true, said(img.Name), img.ID, img.Digest
		return c.move(engine.EvPrepared)
	}
	code := agentrpc.CodeOf(err)
	if code == agentrpc.CodeUnavailable {
		// Nobody answered, as when a user's manager starts late at boot: that is no fault of the job's.
		e.away, c.job.NotBefore = err.Error(), c.now.Add(awayPause)
		return c.move(engine.EvPrepared)
	}
	final := code == agentrpc.CodeInvalid || code == agentrpc.CodeNotFound || c.job.Faults >= engine.MaxFaults
	if final {
		c.job.Message, c.job.Ended = err.Error(), c.now
		c.event("failed", err.Error())
		return c.move(engine.EvFail)
	}
	c.job.Faults++
	c.job.NotBefore = c.now.Add(time.Duration(5*c.job.Faults) * time.Second)
	c.event("note", fmt.Sprintf("not ready: %v; tried again at %s", err, c.job.NotBefore.Format(time.TimeOnly)))
	return c.move(engine.EvPrepared)
}

// progress shows how far a preparation is, if the agent that says so is the owner's.
func (d *Daemon) progress(uid uint32, p agentrpc.Progress) {
	_ = d.do(d.runCtx, func() {
		e := d.state.jobs[p.Job]
		if e == nil || e.job.Owner.UID != uid || e.job.State != engine.Preparing {
			return
		}
		if len(p.Text) > 200 {
			p.Text = strings.ToValidUTF8(p.Text[:200], "")
		}
		e.progress = p.Text
		d.publish(e)
	})
}

// expandOutput fills the placeholders of --output.
func expandOutput(pattern string, id engine.AttemptID, e *engine.Element) string {
	index := "0"
	if e != nil {
		index = fmt.Sprint(e.Index)
	}
	return strings.NewReplacer("%i", index, "%j", id.Job.String(), "%a", fmt.Sprint(id.Number), "%%", "%").Replace(pattern)
}
