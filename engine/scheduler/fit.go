package scheduler

import (
	"cmp"
	"slices"
	"time"

	"gputop/engine"
)

// Fits says what a request gets on the box as it is, or why it gets nothing. Compute chooses with the same rules.
// Pending jobs and reservations do not count, so that it may choose other cards than a plan: an applier that has a plan
// checks the plan's own choice with StillFits.
func Fits(s Snapshot, r engine.Request, p Policy) (engine.Allocation, engine.Reason, bool) {
	if r.WantsGPU() && (!s.DevicesKnown || len(s.Devices) == 0) {
		return engine.Allocation{}, unknownDevices(s), false
	}
	c := capacityOf(s, p)
	c.visit = visitOf(0, r, time.Time{}, time.Time{})
	cl, ok := c.place(r, nil, nil)
	if !ok {
		return engine.Allocation{}, c.reason(r), false
	}
	return c.allocation(cl), engine.Reason{}, true
}

// StillFits says whether exactly this allocation, which a plan proposed, can be granted on the box as it is. What was
// granted before it has to be in s.Held. Of the job, its owner, time limit and accounts count.
func StillFits(s Snapshot, j Pending, a engine.Allocation, p Policy, now time.Time) bool {
	c := capacityOf(s, p)
	c.visit = visitOf(j.Owner, j.Request, now, endAfter(now, j.TimeLimit))
	if _, over := newLedger(&s).over(j.Accounts, amountOf(a)); over {
		return false
	}
	cl := c.claimOf(a, nil)
	if len(cl.cards) != len(a.Grants) || !cl.within(c.hostFree()) {
		return false
	}
	for i, g := range cl.cards {
		d := &c.cards[g.card]
		switch {
		case i > 0 && g.card == cl.cards[i-1].card:
			return false
		case g.whole && !c.wholeFree(d), !g.whole && !c.shareFits(d, g.amount):
			return false
		}
	}
	return true
}

func capacityOf(s Snapshot, p Policy) *capacity {
	c := newCapacity(s, p)
	for i := range s.Held {
		c.add(c.claimOf(s.Held[i].Allocation, s.Held[i].Actual))
	}
	return c
}

// room says whether a request fits, on whichever cards.
func (c *capacity) room(r engine.Request) bool {
	return c.devicesFor(r, c.hostFree())
}

// devicesFor says whether the cards have room for a request whose host part is within free.
func (c *capacity) devicesFor(r engine.Request, free host) bool {
	if !r.WantsGPU() {
		_, least := c.hostNeed(r, 0)
		return least.within(free)
	}
	if r.GPUs > 0 {
		if c.countWhole() < r.GPUs {
			return false
		}
		_, least := c.hostNeed(r, c.wholePart(r.GPUs))
		return least.within(free)
	}
	for i := range c.cards {
		d := &c.cards[i]
		if need := shareNeed(r, d); c.shareFits(d, need) {
			if _, least := c.hostNeed(r, c.part(need, d)); least.within(free) {
				return true
			}
		}
	}
	return false
}

func (c *capacity) countWhole() (n int) {
	for i := range c.cards {
		if c.wholeFree(&c.cards[i]) {
			n++
		}
	}
	return n
}

// place chooses what a request gets. accept, unless nil, may refuse a choice: then the next best is tried, and where
// the host's part is a default, the least of it. avoid marks cards that are taken last for whole requests. False
// means that it does not fit, or that every choice was refused.
func (c *capacity) place(r engine.Request, avoid []bool, accept func(claim) bool) (claim, bool) {
	if !c.room(r) {
		return claim{}, false
	}
	switch {
	case !r.WantsGPU():
		return c.offer(r, 0, nil, accept)
	case r.GPUs > 0:
		return c.offer(r, c.wholePart(r.GPUs), c.wholeCards(r.GPUs, avoid), accept)
	}
	for _, i := range c.shareOrder(r) {
		d := &c.cards[i]
		need := shareNeed(r, d)
		if cl, ok := c.offer(r, c.part(need, d), []cardClaim{{card: i, amount: need}}, accept); ok {
			return cl, true
		}
	}
	return claim{}, false
}

// offer adds the host's part to a choice of cards and has it accepted.
func (c *capacity) offer(r engine.Request, part float64, cards []cardClaim, accept func(claim) bool) (claim, bool) {
	want, least := c.hostNeed(r, part)
	free := c.hostFree()
	if !least.within(free) {
		return claim{}, false
	}
	give := host{min(want.milli, free.milli), min(want.memory, free.memory)}
	cl := claim{give, cards}
	if accept == nil || accept(cl) {
		return cl, true
	}
	if give == least {
		return claim{}, false
	}
	cl.host = least
	return cl, accept(cl)
}

// wholeCards are n free cards, those to avoid last: the best connected set, or for one card that which the others miss
// least. Of those that are as good, cooler ones, then the first ones.
func (c *capacity) wholeCards(n int, avoid []bool) []cardClaim {
	var good, rest []int
	for i := range c.cards {
		switch {
		case !c.wholeFree(&c.cards[i]):
		case i < len(avoid) && avoid[i]:
			rest = append(rest, i)
		default:
			good = append(good, i)
		}
	}
	set := good
	switch {
	case len(good) > n:
		set = c.choose(nil, good, n)
	case len(good) < n:
		set = c.choose(good, rest, n)
	}
	out := make([]cardClaim, 0, n)
	for _, i := range set {
		out = append(out, cardClaim{card: i, amount: c.cards[i].Usable, whole: true})
	}
	slices.SortFunc(out, func(a, b cardClaim) int { return cmp.Compare(a.card, b.card) })
	return out
}

// choose adds the best of some cards to those that are taken, until there are n. It tries to begin with each of them, and
// is greedy from there: the best of all sets takes too long to find, and boards have few shapes.
func (c *capacity) choose(taken, from []int, n int) []int {
	from = slices.Clone(from)
	slices.SortStableFunc(from, func(a, b int) int { return cmp.Compare(c.heat(a), c.heat(b)) })
	if c.near == nil {
		return append(slices.Clone(taken), from[:n-len(taken)]...)
	}
	if n == 1 {
		return []int{slices.MinFunc(from, func(a, b int) int { return cmp.Compare(c.closeness(a, from), c.closeness(b, from)) })}
	}
	starts := from
	if len(taken) > 0 {
		starts = from[:1] // what is taken is the beginning
	}
	var best []int
	most := -1
	for _, first := range starts {
		set := slices.Clone(taken)
		if len(taken) == 0 {
			set = append(set, first)
		}
		for len(set) < n {
			next, nearest := -1, -1
			for _, i := range from {
				if v := c.closeness(i, set); !slices.Contains(set, i) && v > nearest {
					next, nearest = i, v
				}
			}
			set = append(set, next)
		}
		sum := 0
		for _, i := range set {
			sum += c.closeness(i, set)
		}
		if sum > most {
			best, most = set, sum
		}
	}
	return best
}

// closeness is how well a card is connected to some others together.
func (c *capacity) closeness(card int, others []int) (sum int) {
	for _, i := range others {
		if i != card {
			sum += c.near[card][i]
		}
	}
	return sum
}

// heat is a card's temperature, by ten degrees: what differs by less is as cool.
func (c *capacity) heat(card int) int { return c.cards[card].Temperature / 10 }

// shareOrder lists the cards a share fits on: cards already broken up first, then the fullest, so that whole cards stay
// whole and gaps stay large.
func (c *capacity) shareOrder(r engine.Request) []int {
	var out []int
	for i := range c.cards {
		if c.shareFits(&c.cards[i], shareNeed(r, &c.cards[i])) {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b int) int {
		x, y := &c.cards[a], &c.cards[b]
		if wx, wy := c.wholeFree(x), c.wholeFree(y); wx != wy {
			if wy {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x.free(), y.free()), cmp.Compare(a, b))
	})
	return out
}

// allocation is a claim in the engine's words.
func (c *capacity) allocation(cl claim) engine.Allocation {
	a := engine.Allocation{State: engine.Granted, CPUs: engine.CPUs(float64(cl.milli) / 1000), Memory: cl.memory}
	for _, g := range cl.cards {
		d := &c.cards[g.card]
		grant := engine.Grant{Device: d.ID, Memory: g.amount, Fraction: 1, Whole: g.whole}
		if !g.whole {
			grant.Fraction = engine.Fraction(float64(g.amount) / float64(d.Usable))
		}
		a.Grants = append(a.Grants, grant)
	}
	return a
}
