package tui

import "fmt"

// header is the first line: who answers, how much runs and waits, how fresh it is, and the time. What does not fit is
// left out, the least needed first.
func (a *app) header() string {
	for spare := range 5 {
		left, right := a.headerLeft(spare), a.headerRight(spare)
		if gap := a.width - left.used - right.used; gap >= 1 {
			left.gap(gap)
			return left.b.String() + right.b.String()
		}
	}
	left := a.headerLeft(9)
	return exactly(left.fill(a.width), a.width)
}

func (a *app) headerLeft(spare int) *row {
	s := a.sty
	r := &row{s: s}
	put := func(i ink, t string) { r.put(i, t, width(t)) }
	r.gap(1)
	put(s.title, "gputop")
	if host := s.clean(a.box.info.Host); a.box.known && spare < 4 {
		put(s.strong, "  "+s.fit(host, min(width(host), 24)))
		if spare < 1 {
			put(s.dim, " "+s.glyph.dot+" "+s.clean(a.box.info.Mode))
		}
	}
	if a.o.ReadOnly {
		put(s.dim, " "+s.glyph.dot+" read-only")
	}
	if a.box.gpus.Simulated {
		r.gap(2)
		put(s.badge, " SIMULATED ")
	}
	return r
}

func (a *app) headerRight(spare int) *row {
	s := a.sty
	r := &row{s: s}
	put := func(i ink, t string) { r.put(i, t, width(t)) }
	if t := a.unreadText(); t != "" && spare < 4 {
		put(s.accent, t)
		r.gap(2)
	}
	if a.box.known && spare < 3 {
		running, queued := a.box.counts()
		put(s.strong, fmt.Sprint(running))
		put(s.dim, " running  ")
		put(s.strong, fmt.Sprint(queued))
		put(s.dim, " queued  ")
	}
	put(a.linkState())
	if spare < 2 {
		put(s.dim, "  "+a.now().Format("15:04:05"))
	}
	r.gap(1)
	return r
}

func (a *app) linkState() (ink, string) {
	s := a.sty
	age, stale := a.box.stale(a.now())
	switch {
	case !a.box.known && a.box.link == linkLost:
		return s.warn, s.glyph.lost + " reconnecting"
	case !a.box.known:
		return s.dim, s.glyph.stale + " connecting"
	case a.box.link == linkLost:
		return s.bad, s.glyph.lost + " reconnecting, " + clock(age) + " old"
	case stale:
		return s.warn, s.glyph.stale + " stale " + clock(age)
	}
	return s.good, s.glyph.live + " live"
}
