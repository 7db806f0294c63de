package tui

import (
	"strconv"

	"gputop/engine"
	"gputop/engine/api"
)

// word is a painted word of a list; short stands in where room is scarce.
type word struct {
	ink         ink
	long, short string
}

// who names the jobs on a device, then what is outside the queue, marked with "!".
func (p *gpuPanel) who(r *row, g *api.GPU, device engine.DeviceID, w int) {
	r.words(p.users(g, device, w), w)
}

// users lists who is on a device.
func (p *gpuPanel) users(g *api.GPU, device engine.DeviceID, w int) []word {
	s := p.sty
	words := make([]word, 0, 4)
	for _, j := range p.box.onDevice[device] {
		i, id := s.text, "#"+j.ID.String()
		if j.Mine {
			i = s.accent
		}
		words = append(words, word{i, id + " " + s.clean(j.Owner), id})
	}
	n := 0
	for i := range g.Processes {
		pr := &g.Processes[i]
		if !foreign(g, pr, device) {
			continue
		}
		n++
		t := "!" + s.clean(pr.User)
		if pr.User == "" {
			t = "!pid " + strconv.Itoa(pr.PID)
		}
		if pr.Memory != nil {
			t += " " + gib(*pr.Memory) + "G"
		}
		words = append(words, word{s.warn, t, t})
	}
	if n > 2 || n > 0 && w < 30 {
		t := "!" + strconv.Itoa(n)
		words = append(words[:len(words)-n], word{s.warn, t + " foreign", t})
	}
	if n == 0 && device == g.UUID && g.Foreign > 0 {
		words = append(words, word{s.warn, "!foreign " + gib(g.Foreign) + "G", "!" + gib(g.Foreign) + "G"})
	}
	if len(words) == 0 {
		words = append(words, p.nobody(g, device))
	}
	return words
}

// words writes a list in w cells: in long if that fits, else in short, cut at the end.
func (r *row) words(words []word, w int) {
	size := -1
	for _, x := range words {
		size += width(x.long) + 1
	}
	left := w
	for i, x := range words {
		t := x.long
		if size > w {
			t = x.short
		}
		if i > 0 {
			left--
			r.gap(min(1, left+1))
		}
		n := min(width(t), left)
		if i < len(words)-1 && n == left && n > 0 {
			n, t = left, r.s.fit(t+r.s.glyph.ellipsis+r.s.glyph.ellipsis, left) // more follow
		}
		if n <= 0 {
			break
		}
		r.cell(x.ink, t, n)
		left -= n
	}
	r.gap(left)
}

// nobody is what stands where no job and no process is known: free only when that is really known.
func (p *gpuPanel) nobody(g *api.GPU, device engine.DeviceID) word {
	whole := device == g.UUID
	held := whole && len(g.MIG) == 0 && g.MemoryUsed != nil && *g.MemoryUsed > engine.GiB // by something nobody lists
	if whole && !g.ProcessesKnown || held || g.Health != engine.HealthOK {
		return word{p.sty.dim, p.sty.glyph.unknown, p.sty.glyph.unknown}
	}
	if !whole {
		return word{p.sty.dim, "idle", "idle"} // the queue does not hand out MIG devices: none is free to be had
	}
	if r := g.HeldBack(p.box.gpus.Time); r != nil {
		return word{p.sty.dim, p.sty.clean(r.Whose), heldBackWord(r)}
	}
	return word{p.sty.dim, "free", "free"}
}
