package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gputop/cdi/gate"
	"gputop/engine"
)

// gateLook is how often nodes are looked at: a driver that is loaded again makes them anew, open to everybody.
const gateLook = 2 * time.Second

// gatekeeper keeps the cards' device nodes to what the grants say.
type gatekeeper struct {
	files *gate.Gate // nil where there is no gate

	// at is when the nodes were looked at last, CLOCK_BOOTTIME nanoseconds, and busy that they are being looked at: both
	// are the loop's.
	at   int64
	busy bool
	// said is the error that was logged last; whoever is busy looks at it.
	said string

	// mu is held from a look at the grants to the change that follows from it. The loop never takes it.
	mu sync.Mutex
	// leaving are attempts whose devices are free, and which are about to say so.
	leaving map[engine.AttemptID]bool
	asked   gate.Mode
	// problem is why nodes are not closed though that is asked for.
	problem string
	// open says that nothing is closed any more.
	open   bool
	failed map[gate.Node]string
}

func (g *gatekeeper) begin(o *Options) {
	g.leaving, g.failed = map[engine.AttemptID]bool{}, map[gate.Node]string{}
	if o.Mode == Shared && o.StateDir != "" {
		g.files = gate.New(filepath.Join(o.StateDir, gate.RecordName), o.System.BootID)
	}
}

// keepGate looks after the nodes, outside the loop.
func (d *Daemon) keepGate() {
	g := &d.gate
	now := d.o.System.Boottime()
	if g.files == nil || g.busy || g.at != 0 && now-g.at < gateLook.Nanoseconds() {
		return
	}
	g.busy, g.at = true, now
	d.goWork(func(ctx context.Context) {
		said := ""
		if _, err := d.syncGate(ctx); err != nil && ctx.Err() == nil {
			if said = err.Error(); said != g.said {
				d.log.Error("the device gate is not as it should be", "err", err)
			}
		}
		g.said = said
		_ = d.do(ctx, func() { g.busy = false })
	})
}

// passage is what came of a look at the gate.
type passage struct {
	// enforced says that nodes are closed to who has no grant.
	enforced bool
	nodes    map[engine.DeviceID]gate.Node
	failed   map[gate.Node]error
}

// syncGate closes nodes but to who holds a grant, or gives them back where the gate does not close. Grants are what is on
// disk: it takes nothing from a job that runs. It is called outside the loop.
func (d *Daemon) syncGate(ctx context.Context) (passage, error) {
	g := &d.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if mode := d.policy().Gate; mode != g.asked {
		g.asked, g.problem = mode, "" // another configuration is a new try
	}
	if g.asked != gate.Enforce || g.problem != "" {
		return passage{}, d.openNodes()
	}
	grants, p, err := d.gateGrants(ctx)
	if err != nil {
		return p, err
	}
	g.open = false
	res, err := g.files.Sync(grants)
	if err != nil {
		return p, err
	}
	p.failed = res.Failed
	for _, c := range res.Changes {
		d.logGate(c)
	}
	for n, err := range res.Failed {
		if errors.Is(err, gate.ErrNoACL) {
			g.problem = err.Error()
			d.log.Error("the device gate cannot be closed here: it only observes", "node", n.Path, "err", err)
			return passage{}, d.openNodes()
		}
		if g.failed[n] != err.Error() {
			d.log.Error("a card's device node is not as the gate wants it", "node", n.Path, "err", err)
		}
	}
	clear(g.failed)
	for n, err := range res.Failed {
		g.failed[n] = err.Error()
	}
	return p, nil
}

func (d *Daemon) logGate(c gate.Change) {
	if c.Was != "" {
		d.log.Warn("a card's device node was open to others and is closed", "node", c.Node.Path, "was", c.Was, "open to", c.Opened)
		return
	}
	d.log.Info("device gate", "node", c.Node.Path, "opened to", c.Opened, "closed to", c.Closed)
}

// openNodes gives back what was closed, once. The gate is locked.
func (d *Daemon) openNodes() error {
	if d.gate.open {
		return nil
	}
	nodes, err := d.gate.files.Restore()
	for _, n := range nodes {
		d.log.Info("the device gate is open: a card's device node is as it was", "node", n.Path)
	}
	d.gate.open = err == nil
	return err
}

// gateGrants are the nodes of all cards that are known, each with the users who hold a grant on it.
func (d *Daemon) gateGrants(ctx context.Context) (grants map[gate.Node][]uint32, p passage, err error) {
	leaving := maps.Clone(d.gate.leaving)
	err = d.do(ctx, func() {
		p = passage{enforced: true, nodes: d.gateNodes()}
		grants = map[gate.Node][]uint32{}
		for _, n := range p.nodes {
			grants[n] = nil
		}
		for _, a := range d.state.sortedAttempts() {
			e := d.state.jobs[a.ID.Job]
			if e == nil || !a.Allocation.State.Holds() || leaving[a.ID] {
				continue
			}
			for _, gr := range a.Allocation.Grants {
				if n, ok := p.nodes[gr.Device]; ok {
					grants[n] = append(grants[n], e.job.Owner.UID)
				}
			}
		}
	})
	return grants, p, err
}

// gateNodes are the nodes of the cards that are seen, and of all SIMULATED devices. A card that is not seen now keeps its
// node as it is.
func (d *Daemon) gateNodes() map[engine.DeviceID]gate.Node {
	nodes := map[engine.DeviceID]gate.Node{}
	for _, s := range d.o.Devices {
		nodes[engine.DeviceID(s.Name)] = gate.SimulatedCard(s.HostPath)
	}
	for i := range d.state.sample.GPUs {
		g := &d.state.sample.GPUs[i]
		if _, simulated := nodes[g.UUID]; !simulated && !d.state.sample.Simulated && g.Minor >= 0 {
			nodes[g.UUID] = gate.Card(g.Minor)
		}
	}
	return nodes
}

// openGate opens the attempt's devices to its owner, and is certain of it: without that the program would find its card
// closed.
func (a *attempt) openGate(ctx context.Context) error {
	if a.d.gate.files == nil || len(a.rec.Allocation.Grants) == 0 {
		return nil
	}
	p, err := a.d.syncGate(ctx)
	if err != nil {
		return fmt.Errorf("the device gate: %w", err)
	}
	if !p.enforced {
		return nil
	}
	for _, gr := range a.rec.Allocation.Grants {
		n, known := p.nodes[gr.Device]
		if !known {
			return fmt.Errorf("the device gate cannot open %s to %s: its device node is not known", gr.Device, a.user.Name)
		}
		if err := p.failed[n]; err != nil {
			return fmt.Errorf("the device gate cannot open %s to %s: %w", gr.Device, a.user.Name, err)
		}
	}
	return nil
}

// closeGate takes the owner's access to the attempt's devices away, where no other attempt of theirs needs it. What
// fails is tried again at the next look.
func (a *attempt) closeGate(ctx context.Context) {
	g := &a.d.gate
	if g.files == nil || len(a.rec.Allocation.Grants) == 0 {
		return
	}
	g.mu.Lock()
	g.leaving[a.id] = true
	g.mu.Unlock()
	if _, err := a.d.syncGate(ctx); err != nil && ctx.Err() == nil {
		a.d.log.Error("device nodes not closed yet", "attempt", a.id, "err", err)
	}
}

// left ends what closeGate began, once the release is on disk.
func (a *attempt) left() {
	g := &a.d.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.leaving, a.id)
}

// gateUsers names uids, each once.
func (d *Daemon) gateUsers(uids []uint32) []string {
	uids = slices.Compact(slices.Sorted(slices.Values(uids)))
	names := make([]string, 0, len(uids))
	for _, u := range uids {
		names = append(names, firstOf(d.userName(u), fmt.Sprint(u)))
	}
	return names
}
