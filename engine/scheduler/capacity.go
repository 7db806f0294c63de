package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gputop/engine"
)

// card is a device with what is taken of it.
type card struct {
	Device
	names     []string     // of its model
	committed engine.Bytes // sum of max(promised, actual) of jobs, and foreign use
	grants    int          // allocations on it
	wholes    int          // of them whole
	// leaving is the part of committed that victims free soon, and owed what their preemptors get then.
	leaving, owed          engine.Bytes
	owedGrants, owedWholes int
}

func (c *card) free() engine.Bytes {
	return max(0, c.Usable-c.committed-max(0, c.owed-c.leaving))
}

// usable says whether anything could be put on it now.
func (c *card) usable() bool { return c.Unavailable == "" && !c.ForeignBusy }

// claim is what one allocation takes.
type claim struct {
	host
	cards []cardClaim
}

type cardClaim struct {
	card   int // index in capacity.cards
	amount engine.Bytes
	whole  bool
	// stray is memory on a card the job was never granted: it counts as a stranger's, but goes when the job goes.
	stray bool
}

// capacity is what the box has and what is taken: now, or at some later moment in a what-if.
type capacity struct {
	cards    []card  // by index, then ID
	near     [][]int // how well two cards are connected, by their places in cards; nil when unknown
	suitable int     // cards that can serve whole or shared requests at all
	total    host    // 0: unknown, not limited
	used     host
	// As on a card: what victims free soon, and what their preemptors get.
	leaving, owed host
	threshold     engine.Bytes
	// windows says that any card is promised to people; visit is for whom, and when, the box is looked at.
	windows bool
	visit   visit
}

// visit is a job that looks for a place: cards that are promised to others in its time are shut to it.
type visit struct {
	who uint32
	// now is when it would start and end when it is over at the latest; zero when unknown.
	now, end time.Time
	// model are the words of the model that it wants; none for any.
	model []string
}

func visitOf(who uint32, r engine.Request, now, end time.Time) visit {
	v := visit{who: who, now: now, end: end}
	if r.GPUModel != "" {
		v.model = engine.ModelWords(r.GPUModel)
	}
	return v
}

// wants says whether a card is of the model that the visit wants.
func (v *visit) wants(d *card) bool { return len(v.model) == 0 || engine.IsModel(d.names, v.model) }

// at is the visit moved to another start.
func (v visit) at(t time.Time) visit {
	if !v.end.IsZero() {
		v.end = t.Add(v.end.Sub(v.now))
	}
	v.now = t
	return v
}

func newCapacity(s Snapshot, p Policy) *capacity {
	c := &capacity{cards: make([]card, len(s.Devices)), threshold: p.ForeignThreshold}
	c.total = host{max(0, int64(math.Floor(float64(s.HostCPUs)*1000))), s.HostMemory}
	for i, d := range s.Devices {
		c.cards[i] = card{Device: d, names: engine.ModelNames(d.Model), committed: d.Foreign}
		if d.Unavailable != engine.BlockedBySize {
			c.suitable++
		}
		c.windows = c.windows || len(d.Windows) > 0
	}
	slices.SortFunc(c.cards, func(a, b card) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	c.near = nearness(c.cards)
	return c
}

func nearness(cards []card) [][]int {
	if !slices.ContainsFunc(cards, func(d card) bool { return len(d.Near) > 0 }) {
		return nil
	}
	out := make([][]int, len(cards))
	for i := range cards {
		out[i] = make([]int, len(cards))
		for k := range cards {
			out[i][k] = cards[i].Near[cards[k].ID]
		}
	}
	return out
}

func (c *capacity) clone() *capacity {
	o := *c
	o.cards = slices.Clone(c.cards)
	return &o
}

// claimOf is what a held allocation takes: the larger of promise and use on each card. Devices that are not there now
// are left out; the host's part still counts.
func (c *capacity) claimOf(a engine.Allocation, actual map[engine.DeviceID]engine.Bytes) claim {
	out := claim{host: host{milliOf(a.CPUs), a.Memory}}
	for i := range c.cards {
		d := &c.cards[i]
		granted := false
		for _, g := range a.Grants {
			if g.Device == d.ID {
				granted = true
				out.cards = append(out.cards, cardClaim{card: i, amount: max(g.Memory, actual[d.ID]), whole: g.Whole})
			}
		}
		if use := actual[d.ID]; !granted && use > 0 {
			out.cards = append(out.cards, cardClaim{card: i, amount: use, stray: true})
		}
	}
	return out
}

func (c *capacity) add(cl claim)    { c.change(cl, 1) }
func (c *capacity) remove(cl claim) { c.change(cl, -1) }

func (c *capacity) change(cl claim, sign int) {
	c.used.milli += int64(sign) * cl.milli
	c.used.memory += engine.Bytes(sign) * cl.memory
	for _, g := range cl.cards {
		d := &c.cards[g.card]
		d.committed += engine.Bytes(sign) * g.amount
		if g.stray {
			d.Foreign += engine.Bytes(sign) * g.amount
			continue
		}
		d.grants += sign
		if g.whole {
			d.wholes += sign
		}
	}
}

// leave marks a claim, which still counts, as one of a victim, or (-1) takes the mark off.
func (c *capacity) leave(cl claim, sign int) {
	c.leaving.milli += int64(sign) * cl.milli
	c.leaving.memory += engine.Bytes(sign) * cl.memory
	for _, g := range cl.cards {
		if !g.stray {
			c.cards[g.card].leaving += engine.Bytes(sign) * g.amount
		}
	}
}

// promise keeps a claim for a preemptor beside what its victims still hold, or (-1) lets it go.
func (c *capacity) promise(cl claim, sign int) {
	c.owed.milli += int64(sign) * cl.milli
	c.owed.memory += engine.Bytes(sign) * cl.memory
	for _, g := range cl.cards {
		d := &c.cards[g.card]
		d.owed += engine.Bytes(sign) * g.amount
		d.owedGrants += sign
		if g.whole {
			d.owedWholes += sign
		}
	}
}

// seenBy has the box looked at for a visit.
func (c *capacity) seenBy(v visit) *capacity {
	c.visit = v
	return c
}

// unowed is the box without what is promised to preemptors.
func (c *capacity) unowed() *capacity {
	o := c.clone()
	o.owed = host{}
	for i := range o.cards {
		d := &o.cards[i]
		d.owed, d.owedGrants, d.owedWholes = 0, 0, 0
	}
	return o
}

// shut is the window that keeps a card from the visit; nil when none does.
func (c *capacity) shut(d *card) *Window {
	for i := range d.Windows {
		if w := &d.Windows[i]; w.shuts(c.visit.who, c.visit.now, c.visit.end) {
			return w
		}
	}
	return nil
}

// open says whether anything of the visit could be put on a card.
func (c *capacity) open(d *card) bool {
	return d.usable() && c.visit.wants(d) && (len(d.Windows) == 0 || c.shut(d) == nil)
}

// wholeFree says whether a card can be given whole.
func (c *capacity) wholeFree(d *card) bool {
	return c.open(d) && d.grants+d.owedGrants == 0 && d.Foreign <= c.threshold
}

// shareFits says whether a share of so many bytes fits on a card.
func (c *capacity) shareFits(d *card, need engine.Bytes) bool {
	return c.open(d) && !d.WholeOnly && d.wholes+d.owedWholes == 0 && need > 0 && need <= d.free()
}

// hostFree is what is left of the host; without a known total there is no end to it.
func (c *capacity) hostFree() host {
	f := host{math.MaxInt64, math.MaxInt64}
	if c.total.milli > 0 {
		f.milli = max(0, c.total.milli-c.used.milli-max(0, c.owed.milli-c.leaving.milli))
	}
	if c.total.memory > 0 {
		f.memory = max(0, c.total.memory-c.used.memory-max(0, c.owed.memory-c.leaving.memory))
	}
	return f
}

// hostNeed is what a request takes of the host when it gets a part of all GPUs, and the least that will do.
func (c *capacity) hostNeed(r engine.Request, part float64) (want, least host) {
	want, least = defaultHost(c.total, part, r.GPUs)
	if r.CPUs > 0 {
		want.milli = milliOf(r.CPUs)
		least.milli = want.milli
	}
	if r.Memory > 0 {
		want.memory, least.memory = r.Memory, r.Memory
	}
	return want, least
}

func (h host) within(o host) bool { return h.milli <= o.milli && h.memory <= o.memory }

const maxMilli = 1e12

// milliOf rounds up: what is promised is never less than what was asked for.
func milliOf(c engine.CPUs) int64 {
	// The bound keeps nonsense from overflowing. What is taken off keeps 0.1 from becoming 101 thousandths.
	m := math.Min(float64(c)*1000, maxMilli)
	return max(0, int64(math.Ceil(m-0.01)))
}

// shareNeed is what a share request takes on a card, in bytes; 0 when the card cannot say what it has.
func shareNeed(r engine.Request, d *card) engine.Bytes {
	if d.Usable <= 0 || d.WholeOnly {
		return 0
	}
	if r.GPUMemory > 0 {
		return r.GPUMemory
	}
	return r.GPUFraction.Of(d.Usable)
}

// part is how much of all the box's GPUs a share on a card is.
func (c *capacity) part(need engine.Bytes, d *card) float64 {
	if d.Usable <= 0 || c.suitable == 0 {
		return 0
	}
	return float64(need) / float64(d.Usable) / float64(c.suitable)
}

// wholePart is how much of all the box's GPUs n cards are.
func (c *capacity) wholePart(n int) float64 { return float64(n) / float64(max(1, c.suitable)) }

// partOf is how much of all the box's GPUs a claim for a request is.
func (c *capacity) partOf(r engine.Request, cl claim) float64 {
	if r.IsShare() {
		g := cl.cards[0]
		return c.part(g.amount, &c.cards[g.card])
	}
	return c.wholePart(r.GPUs)
}
