package daemon

import (
	"cmp"
	"context"
	"slices"

	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/api"
)

// diagnoseGate looks at the nodes anew, and tells who uses the cards outside the queue. It is nil where there is no gate.
func (d *Daemon) diagnoseGate(ctx context.Context) (*api.GateDiagnosis, error) {
	g := &d.gate
	if g.files == nil {
		return nil, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	out := &api.GateDiagnosis{Mode: string(d.policy().Gate), Problem: g.problem}
	grants, p, err := d.gateGrants(ctx)
	if err != nil {
		return nil, err
	}
	index := map[engine.DeviceID]int{}
	err = d.do(ctx, func() {
		out.Since, out.Outside = d.outside.since, d.outsideView()
		for id := range p.nodes {
			index[id] = d.indexOf(id)
		}
	})
	if err != nil {
		return nil, err
	}
	for id, n := range p.nodes {
		v := api.GateNode{Path: n.Path, Device: id, Index: index[id], Users: d.gateUsers(grants[n])}
		switch c, err := gate.Look(n, grants[n]); {
		case err != nil:
			v.Problem = err.Error()
		case c == nil:
			v.Closed = true
		default:
			v.Open, v.Missing, v.Surplus = c.Was, d.gateUsers(c.Opened), d.gateUsers(c.Closed)
			v.Closed = c.Was == "" && len(c.Opened) == 0 && len(c.Closed) == 0
		}
		out.Nodes = append(out.Nodes, v)
	}
	slices.SortFunc(out.Nodes, func(a, b api.GateNode) int { return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.Path, b.Path)) })
	return out, nil
}
