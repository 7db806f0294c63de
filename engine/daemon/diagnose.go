package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/host"
)

// Diagnose gathers what decides whether the caller's jobs can run: the cards, their specs as the caller's Podman reads
// them, the state's disk, and the caller's agent, which it starts.
func (d *Daemon) Diagnose(ctx context.Context, c api.Caller) (api.Diagnosis, error) {
	out := api.Diagnosis{Version: d.o.Version, Mode: string(d.o.Mode), PID: os.Getpid(), StateDir: d.o.StateDir, LeaseDir: d.o.LeaseDir,
		Simulated: len(d.o.Devices) > 0}
	if p := d.configProblem.Load(); p != nil && c.Admin {
		out.ConfigProblem = *p
	}
	if d.o.StateDir != "" {
		out.StateWritable = unix.Faccessat(unix.AT_FDCWD, d.o.StateDir, unix.W_OK|unix.X_OK, unix.AT_EACCESS) == nil
		if n, err := host.Free(d.o.StateDir); err == nil {
			out.StateFree = &n
		}
	}
	// A daemon that has just started, perhaps for this very question, has not seen the cards yet.
	select {
	case <-d.seen:
	case <-time.After(seenPatience):
	case <-ctx.Done():
		return out, ctx.Err()
	}
	var names map[engine.DeviceID]string
	err := d.do(ctx, func() {
		st := d.state
		names = d.cardNames()
		for i := range st.sample.GPUs {
			g := &st.sample.GPUs[i]
			out.Cards = append(out.Cards, api.CardDiagnosis{Device: g.UUID, Index: g.Index, Health: g.Health})
		}
		switch {
		case st.samples == 0:
			out.Sample = "the sampler has not answered yet"
		case st.stale:
			out.Sample = "the sampler has not answered for a while: the driver may hang"
		default:
			out.Sample = st.sample.Error
		}
	})
	if err != nil {
		return out, err
	}
	if out.Gate, err = d.diagnoseGate(ctx); err != nil {
		return out, err
	}
	slices.SortFunc(out.Cards, func(a, b api.CardDiagnosis) int { return cmp.Compare(a.Index, b.Index) })
	l := &link{user: c.User}
	if c.UID != 0 {
		l, out.Agent = d.diagnoseAgent(ctx, c)
	}
	finder := d.finderFor(l)
	for i := range out.Cards {
		card := &out.Cards[i]
		if names[card.Device] == "" {
			continue // given directly, without a spec
		}
		for _, p := range finder.Check(c.UID, names[card.Device]) {
			message := p.Message
			if p.File != "" {
				message = p.File + ": " + message
			}
			card.Problems = append(card.Problems, api.SpecProblem{Code: p.Code, File: p.File, Message: message, Fix: p.Fix})
		}
	}
	return out, nil
}

func (d *Daemon) diagnoseAgent(ctx context.Context, c api.Caller) (*link, api.AgentDiagnosis) {
	ctx, cancel := context.WithTimeout(ctx, submitPatience)
	defer cancel()
	l, err := d.agents.get(ctx, c.User)
	if err != nil {
		return &link{user: c.User}, api.AgentDiagnosis{Error: err.Error()}
	}
	a := api.AgentDiagnosis{Connected: true}
	if err := l.probe(ctx); err != nil {
		a.Connected, a.Error = false, fmt.Sprintf("it does not answer: %v", err)
	}
	_, a.OldGroups = d.oldGroups(l)
	rt := l.info()
	a.Runtime = &rt
	return l, a
}
