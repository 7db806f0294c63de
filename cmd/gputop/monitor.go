package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"sync"
	"time"

	"gputop/cmd/gputop/internal/connect"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
	"gputop/engine/sampler"
	"gputop/tui"
)

// staleAfter is the age from which a sample is no longer the truth.
const staleAfter = 5 * time.Second

// monitor shows the cards where no daemon runs: it starts a sampler of its own, keeps nothing, and changes nothing. It is a
// tui.Client that has cards and no jobs.
type monitor struct {
	info api.Info
	sup  *sampler.Supervisor
	// simDir has the files of simulated cards; empty for none.
	simDir string

	mu    sync.Mutex
	gpus  api.GPUs
	next  chan struct{} // closed at the next change
	names map[uint32]string
}

// errMonitor is what a monitor answers to everything that is about jobs.
var errMonitor = errors.New("no daemon runs here: this is the monitor alone; gputop starts one")

// newMonitor makes a monitor of this machine's cards, or of simulated ones.
func (c *cli) newMonitor() (*monitor, error) {
	program, err := connect.Program()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	argv := []string{program, "sampler"}
	m := &monitor{next: make(chan struct{}), names: map[uint32]string{}, info: api.Info{API: api.Version, Version: version, Mode: "monitor", Host: host,
		Caller: engine.User{UID: uint32(os.Getuid())}, Defaults: api.Defaults{Class: engine.Medium}}}
	if simulate := connect.Simulated(c.simulate); simulate != "" {
		if m.simDir, err = os.MkdirTemp("", "gputop-monitor-"); err != nil {
			return nil, fmt.Errorf("a place for the simulated cards: %w", err)
		}
		argv = append(argv, "--simulate", simulate, "--sim-dir", m.simDir, "--instance", "monitor", "--prepare")
	}
	if c.library != "" {
		argv = append(argv, "--nvml-library", c.library)
	}
	m.sup = sampler.New(sampler.Options{Command: argv, OnSample: m.take, OnState: m.state})
	return m, nil
}

// take makes a sample what is shown.
func (m *monitor) take(s engine.Sample) {
	v := api.GPUs{Time: s.Time, Simulated: s.Simulated, Driver: s.Driver, CUDA: s.CUDA, Error: s.Error, GPUs: make([]api.GPU, 0, len(s.GPUs))}
	for _, g := range s.GPUs {
		out := api.GPU{GPU: g}
		out.GPU.Processes = nil
		out.GPU.MIG = append([]engine.MIGDevice(nil), g.MIG...)
		add := func(id engine.DeviceID, list []engine.GPUProcess) {
			for _, p := range list {
				out.Processes = append(out.Processes, api.Process{GPUProcess: p, Device: id, User: m.userName(p.UID)})
				if p.Memory != nil {
					out.Foreign += *p.Memory
				}
			}
		}
		add(g.UUID, g.Processes)
		for i := range out.GPU.MIG {
			d := &out.GPU.MIG[i]
			add(d.UUID, d.Processes)
			d.Processes = nil
		}
		v.GPUs = append(v.GPUs, out)
	}
	m.change(func() { m.gpus = v })
}

// state says what is wrong with the sampler; what is shown is then old.
func (m *monitor) state(s sampler.State) {
	if s.Message == "" {
		return
	}
	m.change(func() {
		m.gpus.Stale = len(m.gpus.GPUs) > 0
		if !m.gpus.Stale {
			m.gpus.Error = s.Message
		}
	})
}

func (m *monitor) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	close(m.next)
	m.next = make(chan struct{})
}

// userName names a uid, each once: the user database may be slow.
func (m *monitor) userName(uid uint32) string {
	name, known := m.names[uid]
	if !known {
		if u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10)); err == nil {
			name = u.Username
		}
		m.names[uid] = name
	}
	return name
}

// newest is what is shown now, and the channel that tells of the next change.
func (m *monitor) newest(now time.Time) (api.GPUs, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.gpus
	v.Stale = v.Stale || !v.Time.IsZero() && now.Sub(v.Time) > staleAfter
	if v.Time.IsZero() && v.Error == "" {
		v.Error = "the GPUs have not been seen yet"
	}
	return v, m.next
}

// first waits for the first sample, or for what is wrong.
func (m *monitor) first(ctx context.Context) api.GPUs {
	for {
		v, next := m.newest(time.Now())
		if !v.Time.IsZero() {
			return v
		}
		select {
		case <-next:
		case <-ctx.Done():
			return v
		}
	}
}

// Watch sends the cards as they are sampled.
func (m *monitor) Watch(ctx context.Context, send func(api.WatchEvent) error) error {
	v, next := m.newest(time.Now())
	if err := send(api.WatchEvent{Snapshot: &api.Snapshot{Info: m.info, GPUs: v, Jobs: []api.Job{}}}); err != nil {
		return err
	}
	look := time.NewTicker(staleAfter)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-next:
		case <-look.C: // it may have become stale
		}
		v, next = m.newest(time.Now())
		if err := send(api.WatchEvent{GPUs: &v}); err != nil {
			return err
		}
	}
}

// The rest of tui.Client is about jobs, of which there are none.

func (m *monitor) Submit(context.Context, api.SubmitRequest) (api.SubmitResponse, error) {
	return api.SubmitResponse{}, errMonitor
}
func (m *monitor) Show(context.Context, engine.JobID) (api.JobDetail, error) {
	return api.JobDetail{}, errMonitor
}
func (m *monitor) Cancel(context.Context, engine.JobID, string) (api.Job, error) {
	return api.Job{}, errMonitor
}
func (m *monitor) Preempt(context.Context, engine.JobID, string) (api.Job, error) {
	return api.Job{}, errMonitor
}
func (m *monitor) Hold(context.Context, engine.JobID, string) (api.Job, error) {
	return api.Job{}, errMonitor
}
func (m *monitor) Release(context.Context, engine.JobID, string) (api.Job, error) {
	return api.Job{}, errMonitor
}
func (m *monitor) Requeue(context.Context, engine.JobID, string) (api.SubmitResponse, error) {
	return api.SubmitResponse{}, errMonitor
}
func (m *monitor) Update(context.Context, engine.JobID, api.UpdateRequest) (api.Job, error) {
	return api.Job{}, errMonitor
}
func (m *monitor) ReadNotices(context.Context, int64) error { return errMonitor }
func (m *monitor) Logs(context.Context, engine.JobID, api.LogOptions, io.Writer) error {
	return errMonitor
}

// firstSample is how long one snapshot waits: a driver without persistence mode wakes every card.
const firstSample = 30 * time.Second

// monitorOnly shows the cards by a sampler of its own. why is what keeps the daemon away.
func (c *cli) monitorOnly(ctx context.Context, once bool, why error) error {
	m, err := c.newMonitor()
	if err != nil {
		return fmt.Errorf("%w; and no daemon answers: %w", err, why)
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); _ = m.sup.Run(ctx) }()
	defer func() {
		cancel()
		<-done
		if m.simDir != "" {
			_ = os.RemoveAll(m.simDir)
		}
	}()
	if once {
		wait, cancel := context.WithTimeout(ctx, firstSample)
		defer cancel()
		return c.printSnapshot(m.info, m.first(wait), []api.Job{})
	}
	return tui.Run(ctx, tui.Options{Client: m, Version: version, ReadOnly: true, Dir: callerHere().Workdir,
		Draft: func(draft.Fields) (engine.Spec, error) { return engine.Spec{}, errMonitor }})
}
