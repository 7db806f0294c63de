package runner

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/containers"

	"gputop/engine/agentrpc"
)

// parallelStarts is how many creates, inits and starts go on at once: Podman's database does not bear many.
const parallelStarts = 3

// inspected is what the agent reads of Podman's answer; the rest differs between releases.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	State struct {
		Status     string
		Pid        int
		ExitCode   int
		OOMKilled  bool
		Error      string
		StartedAt  time.Time
		FinishedAt time.Time
	}
	Config struct {
		Labels map[string]string
	}
	NetworkSettings struct {
		Ports map[string][]struct{ HostPort string }
	}
}

// port is the machine's loopback port that leads to the job's server; 0 for none.
func (d inspected) port() int {
	text := d.Config.Labels[LabelPort]
	for _, on := range d.NetworkSettings.Ports {
		if len(on) > 0 {
			text = on[0].HostPort
		}
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return int(n)
}

func (d inspected) container() agentrpc.Container {
	s := d.State
	c := agentrpc.Container{ID: d.ID, Name: d.Name, State: s.Status, PID: s.Pid, ExitCode: s.ExitCode, OOMKilled: s.OOMKilled,
		Error: s.Error, StartedAt: s.StartedAt, FinishedAt: s.FinishedAt, Port: d.port()}
	// Old releases write "not yet" as the start of 1970 or of the calendar.
	if c.StartedAt.Unix() <= 0 {
		c.StartedAt = time.Time{}
	}
	if c.FinishedAt.Unix() <= 0 {
		c.FinishedAt = time.Time{}
	}
	return c
}

func refName(r agentrpc.Ref) string {
	if r.ID != "" {
		return r.ID
	}
	return r.Name
}

// look inspects a container by ID, else by name.
func (a *Agent) look(ctx context.Context, nameOrID string) (inspected, error) {
	var d inspected
	if nameOrID == "" {
		return d, invalid("no container named")
	}
	once := func() error {
		return a.podman.call(ctx, "inspect container "+nameOrID, func(ctx context.Context) error {
			conn, err := bindings.GetClient(ctx)
			if err != nil {
				return err
			}
			resp, err := conn.DoRequest(ctx, nil, http.MethodGet, "/containers/%s/json", nil, nil, nameOrID)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			return resp.Process(&d)
		})
	}
	err := once()
	if lookedTooLate(err) {
		err = once()
	}
	return d, err
}

func (a *Agent) inspect(ctx context.Context, r agentrpc.Ref) (agentrpc.Container, error) {
	d, err := a.look(ctx, refName(r))
	if err != nil {
		return agentrpc.Container{}, err
	}
	c := d.container()
	a.mu.Lock()
	v, dead := a.verdicts[c.ID]
	a.mu.Unlock()
	if dead && c.Running() {
		return v, nil
	}
	return c, nil
}

// inspectAndWatch serves the engine's inspect: what runs is watched from now on.
func (a *Agent) inspectAndWatch(ctx context.Context, r agentrpc.Ref) (agentrpc.Container, error) {
	c, err := a.inspect(ctx, r)
	if err == nil && c.Running() {
		a.watch(c)
	}
	return c, err
}

// create makes the container, or finds the one that an earlier call made.
func (a *Agent) create(ctx context.Context, c agentrpc.ContainerSpec) (agentrpc.Container, error) {
	if c.Name == "" || c.ImageID == "" {
		return agentrpc.Container{}, invalid("a container needs a name and an image")
	}
	if d, err := a.look(ctx, c.Name); err == nil {
		return a.adopt(c, d)
	} else if agentrpc.CodeOf(err) != agentrpc.CodeNotFound {
		return agentrpc.Container{}, err
	}
	p, err := a.plan(ctx, c)
	if err != nil {
		return agentrpc.Container{}, err
	}
	s, notes := buildSpec(p)
	release, err := a.slot(ctx)
	if err != nil {
		return agentrpc.Container{}, err
	}
	defer release()
	var id string
	err = a.podman.call(ctx, "create container "+c.Name, func(ctx context.Context) error {
		r, err := containers.CreateWithSpec(ctx, s, nil)
		id = r.ID
		return err
	})
	// Whatever was answered, what is there counts.
	d, lerr := a.look(ctx, c.Name)
	switch {
	case err != nil && lerr != nil:
		return agentrpc.Container{}, err
	case lerr != nil:
		return agentrpc.Container{ID: id, Name: c.Name, State: "created", Notes: notes}, nil
	}
	out, err := a.adopt(c, d)
	out.Notes = notes
	return out, err
}

// adopt takes an existing container for the attempt's if its labels say so.
func (a *Agent) adopt(c agentrpc.ContainerSpec, d inspected) (agentrpc.Container, error) {
	l := d.Config.Labels
	if l[LabelJob] != c.Attempt.Job.String() || l[LabelAttempt] != strconv.Itoa(c.Attempt.Number) {
		return agentrpc.Container{}, &agentrpc.Error{Code: agentrpc.CodeConflict,
			Message: fmt.Sprintf("a container named %s exists and is not of attempt %s: remove it with podman rm", c.Name, c.Attempt)}
	}
	return d.container(), nil
}

// plan gathers what decides about a container, and checks again what may have changed since it was prepared.
func (a *Agent) plan(ctx context.Context, c agentrpc.ContainerSpec) (plan, error) {
	c.Mounts = present(c.Mounts)
	p := plan{spec: c, user: a.user, runtime: a.recentRuntime(ctx), host: a.host, checkpoints: a.checkpointDir(c.Attempt.Job)}
	if pr := p.runtime.Problem; pr != nil {
		return p, &agentrpc.Error{Code: agentrpc.CodeUnavailable, Message: pr.Message + " (" + pr.Fix + ")"}
	}
	var err error
	if p.logPath, err = a.jobFile("logs", c.Attempt, ".log"); err != nil {
		return p, err
	}
	if p.logSize, err = limitLog(p.logPath, c.LogLimit); err != nil {
		return p, err
	}
	if err := checkMounts(c.Workdir, c.Mounts); err != nil {
		return p, err
	}
	if c.HostEnv || c.MountHome {
		if p.home, err = checkHome(a.user); err != nil {
			return p, err
		}
	}
	p.prepareCaches()
	if c.Port > 0 {
		p.freePort = freePort()
	}
	if c.HostEnv {
		p.hostDirs = existingHostDirs("/")
		if len(c.Command) > 0 {
			if err := a.jobView(c.Workdir, c.Mounts, c.Env["PATH"]).check(c.Command[0], false); err != nil {
				return p, err
			}
		}
	}
	if err := os.MkdirAll(p.checkpoints, 0o700); err != nil {
		return p, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "checkpoint directory: " + err.Error()}
	}
	if c.Output == "" {
		return p, nil
	}
	if err := checkOutput(c.Workdir, c.Output); err != nil {
		return p, err
	}
	return p, a.planCopy(c, p.logPath)
}

// freePort is a loopback port that nobody listens on now. Between this and the program's own listening another may take
// it; then the program fails, and says so.
func freePort() int {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return 0
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// prepareCaches makes the job's cache directories. A job without them only downloads again, so that none is no error.
func (p *plan) prepareCaches() {
	if len(p.spec.Caches) == 0 || p.spec.HostEnv || p.spec.MountHome {
		return
	}
	home, err := checkHome(p.user)
	if err != nil {
		return
	}
	p.home = home
	for _, c := range p.spec.Caches {
		dir := filepath.Join(home, c)
		if filepath.IsLocal(c) && os.MkdirAll(dir, 0o700) == nil && checkSource("cache", dir) == nil {
			p.caches = append(p.caches, c)
		}
	}
}

// slot takes one of the places for creating and starting.
func (a *Agent) slot(ctx context.Context) (func(), error) {
	select {
	case a.slots <- struct{}{}:
		return func() { <-a.slots }, nil
	case <-ctx.Done():
		return nil, &agentrpc.Error{Code: agentrpc.CodeUnavailable, Message: "too many containers are being started at once: " + ctx.Err().Error()}
	}
}

// initContainer sets the container up to the point where its program is about to start; its PID exists then.
func (a *Agent) initContainer(ctx context.Context, r agentrpc.Ref) (agentrpc.Container, error) {
	c, err := a.inspect(ctx, r)
	if err != nil || c.State != "created" && c.State != "configured" {
		return c, err
	}
	return a.step(ctx, r, "initialise", func(ctx context.Context) error {
		return containers.ContainerInit(ctx, refName(r), nil)
	}, func(c agentrpc.Container) bool { return c.PID > 0 })
}

// start starts the program. One that has run is never started again: a lost answer must not run a job twice.
func (a *Agent) start(ctx context.Context, r agentrpc.Ref) (agentrpc.Container, error) {
	c, err := a.inspect(ctx, r)
	if err != nil {
		return c, err
	}
	if !c.StartedAt.IsZero() || c.Running() {
		if c.Running() {
			a.watch(c)
		}
		return c, nil
	}
	if err := a.openCopy(c.Name); err != nil {
		a.log.Warn("output file", "container", c.Name, "error", err)
	}
	c, err = a.step(ctx, r, "start", func(ctx context.Context) error {
		return containers.Start(ctx, refName(r), nil)
	}, func(c agentrpc.Container) bool { return !c.StartedAt.IsZero() })
	if err != nil {
		return c, err
	}
	// Watched even if it has ended by now: the engine is told of every end, once.
	a.watch(c)
	return c, nil
}

// step does one thing to a container and then looks what came of it. An error counts only if the thing was not done.
func (a *Agent) step(ctx context.Context, r agentrpc.Ref, what string, do func(context.Context) error, done func(agentrpc.Container) bool) (agentrpc.Container, error) {
	release, err := a.slot(ctx)
	if err != nil {
		return agentrpc.Container{}, err
	}
	defer release()
	err = a.podman.call(ctx, what+" container "+refName(r), do)
	c, lerr := a.inspect(ctx, r)
	switch {
	case lerr != nil && err != nil:
		return c, err
	case lerr != nil:
		return c, lerr
	case err != nil && !done(c):
		return c, err
	}
	return c, nil
}

// remove deletes the container and its anonymous volumes, killing what still runs; one that is gone is fine.
func (a *Agent) remove(ctx context.Context, r agentrpc.Ref) (none, error) {
	name := refName(r)
	if name == "" {
		return nil, invalid("no container named")
	}
	err := a.podman.call(ctx, "remove container "+name, func(ctx context.Context) error {
		reports, err := containers.Remove(ctx, name, new(containers.RemoveOptions).WithForce(true).WithVolumes(true).WithTimeout(0))
		if err != nil {
			return err
		}
		for _, r := range reports {
			if r.Err != nil {
				return r.Err
			}
		}
		return nil
	})
	if err == nil || agentrpc.CodeOf(err) == agentrpc.CodeNotFound {
		a.mu.Lock()
		delete(a.verdicts, r.ID)
		a.mu.Unlock()
		return nil, nil
	}
	if _, lerr := a.look(ctx, name); agentrpc.CodeOf(lerr) == agentrpc.CodeNotFound && lerr != nil {
		return nil, nil
	}
	return nil, err
}
