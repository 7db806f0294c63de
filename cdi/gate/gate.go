// Package gate is the device gate: it closes the device nodes of cards to everybody and opens them, by POSIX ACL, to the
// users who hold a grant. It remembers what a node was before, and gives exactly that back. It decides nothing about who
// holds what, opens no device for its contents, and changes only nodes that it has made sure are a card's.
//
// /dev/nvidiactl and /dev/nvidia-uvm are left alone: every process that uses any card opens both, and neither reaches a
// card without that card's own node. A MIG device would be gated in the same way, by the nodes of its two capabilities
// in /dev/nvidia-caps, which /proc/driver/nvidia/capabilities names; the queue does not hand out MIG devices yet.
package gate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"gputop/cdi/posixacl"
)

// Mode is how far the gate goes.
type Mode string

// The modes.
const (
	Observe Mode = "observe" // use outside the queue is shown and counted
	Warn    Mode = "warn"    // and told
	Enforce Mode = "enforce" // and not possible: nodes are closed but to who holds a grant
)

// ParseMode reads a mode.
func ParseMode(s string) (Mode, error) {
	m := Mode(s)
	if !slices.Contains([]Mode{Observe, Warn, Enforce}, m) {
		return "", fmt.Errorf("%q: want observe, warn or enforce", s)
	}
	return m, nil
}

// ErrNoACL is returned where the file system of a node has no POSIX ACLs: the node cannot be opened to one user alone.
// The caller should stay with observing.
var ErrNoACL = errors.New("its file system has no POSIX ACLs")

// ErrNotCard is returned for a path that is not what it is taken for; it was left alone.
var ErrNotCard = errors.New("not a card's node, left alone")

// Node is a thing the gate opens and closes: a card's device node, or the file of a SIMULATED card.
type Node struct {
	Path string `json:"path"`
	// Minor is the card's number, -1 for the file of a SIMULATED card.
	Minor int `json:"minor"`
}

// Card is the node of the card with a minor number.
func Card(minor int) Node { return Node{Path: fmt.Sprintf("/dev/nvidia%d", minor), Minor: minor} }

// SimulatedCard is the file of a SIMULATED card.
func SimulatedCard(path string) Node { return Node{Path: path, Minor: -1} }

// Gate opens and closes nodes. One process uses it at a time.
type Gate struct {
	record string // file with what nodes were before
	boot   string
}

// New is a gate that keeps what nodes were in the file record; boot names this boot of the machine.
func New(record, boot string) *Gate { return &Gate{record: record, boot: boot} }

// Change is one thing Sync did.
type Change struct {
	Node Node
	// Was is what had been let through and is not any more, in a few words; empty where users alone changed.
	Was string
	// Opened and Closed are uids.
	Opened, Closed []uint32
}

// Result is what Sync did and what it could not do.
type Result struct {
	Changes []Change
	// Failed has the nodes that are not as they should be.
	Failed map[Node]error
}

// Sync brings nodes to what grants say: each closed but to the users it is listed with. Nodes that are so already are
// not touched. What a node was is on disk before it is changed. The error is of that record; then nothing was changed.
func (g *Gate) Sync(grants map[Node][]uint32) (Result, error) {
	res := Result{Failed: map[Node]error{}}
	rec, err := g.load()
	if err != nil {
		return res, err
	}
	type step struct {
		node Node
		h    *handle
		want attributes
		was  attributes
	}
	var steps []step
	defer func() {
		for _, s := range steps {
			s.h.close()
		}
	}()
	changed := false
	for _, n := range sorted(grants) {
		h, was, err := look(n)
		if err != nil {
			res.Failed[n] = err
			continue
		}
		changed = rec.remember(n, h, was, g.boot) || changed
		steps = append(steps, step{n, h, closed(grants[n]), was})
	}
	if changed {
		if err := rec.save(g.record); err != nil {
			return res, err
		}
	}
	for _, s := range steps {
		if s.was.equal(s.want) {
			continue
		}
		if err := s.h.set(s.was, s.want); err != nil {
			res.Failed[s.node] = err
			continue
		}
		res.Changes = append(res.Changes, difference(s.node, s.was, s.want))
	}
	return res, nil
}

// Restore gives back what nodes were, of all that were ever closed and not given back. What is done is done also when an
// error is returned, and what is left is tried again at the next call.
func (g *Gate) Restore() ([]Node, error) {
	rec, err := g.load()
	if err != nil || len(rec.Nodes) == 0 {
		return nil, err
	}
	var done []Node
	var errs []error
	var left []entry
	for _, e := range rec.Nodes {
		h, now, err := look(e.Node)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue // who makes it anew gives it its own mode
		case err == nil && e.another(h, g.boot) && !now.ours():
			h.close() // made anew since, by the driver's own rules
			continue
		case err == nil:
			if !now.equal(e.Was) {
				err = h.set(now, e.Was)
			}
			h.close()
		}
		if err != nil {
			errs, left = append(errs, err), append(left, e)
			continue
		}
		done = append(done, e.Node)
	}
	rec.Nodes = left
	return done, errors.Join(append(errs, rec.save(g.record))...)
}

// Holds says whether some node was closed and not given back.
func (g *Gate) Holds() ([]Node, error) {
	rec, err := g.load()
	if err != nil {
		return nil, err
	}
	nodes := make([]Node, 0, len(rec.Nodes))
	for _, e := range rec.Nodes {
		nodes = append(nodes, e.Node)
	}
	return nodes, nil
}

// Look says how a node differs from being closed but to users: nil when it does not.
func Look(n Node, uids []uint32) (*Change, error) {
	h, was, err := look(n)
	if err != nil {
		return nil, err
	}
	h.close()
	want := closed(uids)
	if was.equal(want) {
		return nil, nil
	}
	c := difference(n, was, want)
	return &c, nil
}

// Describe says in a few words what a node lets through now.
func Describe(n Node) (string, error) {
	h, a, err := look(n)
	if err != nil {
		return "", err
	}
	h.close()
	if uids, ok := a.users(); ok {
		if len(uids) == 0 {
			return "closed", nil
		}
		return fmt.Sprintf("closed but to uid %s", list(uids)), nil
	}
	return a.String(), nil
}

// closed are the attributes of a node that lets users through and nobody else. The owner is root, and the group's
// permissions in the mode are the ACL's mask: the group itself has none.
func closed(uids []uint32) attributes {
	own := uint32(os.Geteuid())
	uids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(uids))), func(u uint32) bool { return u == own })
	return attributes{UID: own, GID: uint32(os.Getegid()), Mode: 0o660, ACL: posixacl.Only(posixacl.Read|posixacl.Write, uids...)}
}

// difference is what a change from was to want lets through or not.
func difference(n Node, was, want attributes) Change {
	c := Change{Node: n}
	had, ok := was.users()
	if !ok {
		c.Was = was.String()
	}
	has, _ := want.users()
	for _, u := range has {
		if !slices.Contains(had, u) {
			c.Opened = append(c.Opened, u)
		}
	}
	for _, u := range had {
		if !slices.Contains(has, u) {
			c.Closed = append(c.Closed, u)
		}
	}
	return c
}

func sorted(grants map[Node][]uint32) []Node {
	return slices.SortedFunc(maps.Keys(grants), func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Minor, b.Minor), strings.Compare(a.Path, b.Path))
	})
}

func list(uids []uint32) string {
	words := make([]string, len(uids))
	for i, u := range uids {
		words[i] = fmt.Sprint(u)
	}
	return strings.Join(words, ", ")
}
