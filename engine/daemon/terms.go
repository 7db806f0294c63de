package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/quota"
	"gputop/engine/scheduler"
)

const (
	// groupsFresh is how long a person's groups are used without asking again, groupsRetry how long after a failure.
	groupsFresh = time.Minute
	groupsRetry = 5 * time.Second
)

// person is an owner of live jobs, as far as the rules for people go. The loop owns it.
type person struct {
	user   engine.User
	groups []uint32
	// known says that the groups were read; an old answer serves while the user database is away.
	known bool
	next  time.Time // when to ask again
	// terms were made by policy; nil when they have to be made anew.
	terms  *quota.Terms
	policy *Policy
}

// policy is what the admin has set, now.
func (d *Daemon) policy() *Policy { return d.current.Load() }

// SetPolicy puts other rules in force. Jobs that were accepted keep their class and time limit; which of them starts goes
// by the new rules.
func (d *Daemon) SetPolicy(p Policy) {
	d.current.Store(&p)
	_ = d.do(d.runCtx, func() {
		d.gate.at = 0 // looked at in the next tick
		d.queue.kick()
	})
}

// SetConfigProblem says what is wrong with the configuration file, for doctor; empty when nothing is.
func (d *Daemon) SetConfigProblem(text string) {
	d.configProblem.Store(&text)
}

// termsFor are the rules for somebody whose groups are known.
func (p *Policy) termsFor(user string, groups []uint32) quota.Terms {
	t := p.People.For(user, groups)
	base := func(key string, f func()) {
		if _, said := t.From[key]; !said {
			f()
		}
	}
	base(quota.KeyClasses, func() { t.Classes = []engine.Class{engine.High, engine.Medium, engine.Low} })
	base(quota.KeyClass, func() { t.Class = p.Class })
	base(quota.KeyTimeLimit, func() { t.TimeLimit = p.TimeLimit })
	base(quota.KeyPending, func() { t.MaxPending = &p.MaxPending })
	return t
}

// callerTerms are the rules for who asks.
func (d *Daemon) callerTerms(c api.Caller) quota.Terms {
	return d.policy().termsFor(c.Name, groupsOfCaller(c))
}

func groupsOfCaller(c api.Caller) []uint32 { return append([]uint32{c.GID}, c.Groups...) }

// meet takes over the groups of somebody who asks. It runs in the loop.
func (d *Daemon) meet(c api.Caller) {
	d.learn(c.User, groupsOfCaller(c))
}

func (d *Daemon) learn(u engine.User, groups []uint32) {
	p := d.person(u)
	p.known, p.next = true, d.o.System.Now().Add(groupsFresh)
	if !slices.Equal(p.groups, groups) {
		p.groups, p.terms = slices.Clone(groups), nil
	}
}

// person is what is known of an owner; a uid that has another name is somebody else.
func (d *Daemon) person(u engine.User) *person {
	p := d.people[u.UID]
	if p == nil || !p.user.Is(u) {
		p = &person{user: u}
		d.people[u.UID] = p
	}
	return p
}

// termsOf are the rules for an owner; ok is false while the owner's groups are not known, and a group has a rule.
func (d *Daemon) termsOf(u engine.User) (terms quota.Terms, ok bool) {
	p, pol := d.person(u), d.policy()
	if p.terms == nil || p.policy != pol {
		t := pol.termsFor(u.Name, append([]uint32{u.GID}, p.groups...))
		p.terms, p.policy = &t, pol
	}
	return *p.terms, p.known || len(pol.People.Groups) == 0 || d.o.Groups == nil
}

// askGroups reads the groups of people with live jobs, outside the loop: the user database may hang.
func (d *Daemon) askGroups() {
	if len(d.policy().People.Groups) == 0 && !d.reservedForGroups() || d.o.Groups == nil || d.asking {
		return
	}
	now := d.o.System.Now()
	var due []engine.User
	for u := range d.state.owners {
		if p := d.person(u); !now.Before(p.next) {
			p.next = now.Add(groupsRetry)
			due = append(due, p.user)
		}
	}
	if len(due) == 0 {
		return
	}
	d.asking = true
	d.goWork(func(ctx context.Context) {
		found := map[engine.User][]uint32{}
		for _, u := range due {
			groups, err := d.o.Groups(u.UID)
			if err != nil {
				d.log.Warn("groups not known, jobs under a rule for a group wait", "user", u.Name, "err", err)
				continue
			}
			found[u] = groups
		}
		_ = d.do(ctx, func() {
			d.asking = false
			for u, groups := range found {
				d.learn(u, groups)
			}
			d.queue.kick()
		})
	})
}

// books are the accounts of a snapshot.
type books struct {
	list []scheduler.Account
	of   map[uint32][]int
	// group is where an account that a Unix group shares is in the list.
	group map[string]int
	// array is where that of an array is, by the id of its first job.
	array map[engine.JobID]int
	// spent says which budgets are used up, and why.
	spent map[spentKey]string
}

// accountsOf are the accounts that jobs of somebody count against; ok is false when they are not known.
func (d *Daemon) accountsOf(b *books, u engine.User) (accounts []int, ok bool) {
	if list, done := b.of[u.UID]; done {
		return list, list != nil
	}
	if b.of == nil {
		b.of, b.group = map[uint32][]int{}, map[string]int{}
	}
	terms, ok := d.termsOf(u)
	if !ok {
		b.of[u.UID] = nil
		return nil, false
	}
	accounts = []int{}
	if !terms.Quota.IsZero() {
		accounts = append(accounts, len(b.list))
		b.list = append(b.list, scheduler.Account{Name: u.Name, Quota: terms.Quota})
	}
	for _, g := range terms.Groups {
		i, there := b.group[g.Name]
		if !there {
			i = len(b.list)
			b.group[g.Name] = i
			b.list = append(b.list, groupAccount(g))
		}
		accounts = append(accounts, i)
	}
	b.of[u.UID] = accounts
	return accounts, true
}

func groupAccount(g quota.Group) scheduler.Account {
	return scheduler.Account{Name: "group " + g.Name, Quota: g.Together}
}

// withinQuota refuses what the rules for somebody never allow. It runs in the loop.
func (d *Daemon) withinQuota(name string, t quota.Terms, r engine.Request) error {
	s := d.heldSnapshot()
	for _, a := range append([]scheduler.Account{{Name: name, Quota: t.Quota}}, mapped(t.Groups, groupAccount)...) {
		if err := scheduler.WithinQuota(s, a, r); err != nil {
			return &api.Error{Code: api.CodeInvalid, Message: "the job " + err.Error(), Hint: "Ask for less, or an admin for a larger quota. See: gputop users"}
		}
	}
	return nil
}

func mapped[A, B any](list []A, f func(A) B) []B {
	out := make([]B, 0, len(list))
	for _, v := range list {
		out = append(out, f(v))
	}
	return out
}

// classRefused is what somebody reads who may not use a class.
func classRefused(t quota.Terms, class engine.Class) *api.Error {
	words := mapped(t.Classes, engine.Class.String)
	e := &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("class %s is not granted to you", class), Hint: "Ask an admin of this machine."}
	if len(words) > 0 {
		e.Hint = fmt.Sprintf("You may use %s.", strings.Join(words, ", "))
	}
	if from := t.From[quota.KeyClasses]; from != "" {
		e.Message += " (rule for " + from + ")"
	}
	return e
}

// limitRefused says that a time limit is longer than somebody may ask for; nil when it is not.
func limitRefused(t quota.Terms, limit time.Duration) error {
	if t.MaxTimeLimit == 0 || limit <= t.MaxTimeLimit {
		return nil
	}
	return &api.Error{Code: api.CodeInvalid, Message: fmt.Sprintf("a time limit of %s is longer than the %s you may ask for (rule for %s)", limit, t.MaxTimeLimit, t.From[quota.KeyMaxTimeLimit]),
		Hint: "Give a shorter --time-limit; an admin may raise that of a running job."}
}

// imageRefused says that an image is not on the list; nil when it is.
func imageRefused(t quota.Terms, image string) *api.Error {
	if image == "" {
		return nil
	}
	// A short name may mean several images: each has to be allowed.
	names, err := engine.ImageNames(image)
	if err != nil {
		names = []string{image} // refused for what it is, in a moment
	}
	if !slices.ContainsFunc(names, func(name string) bool { return !t.Allows(name) }) {
		return nil
	}
	return &api.Error{Code: api.CodeForbidden, Message: fmt.Sprintf("image %s is not on the list of this machine (rule for %s)", image, t.From[quota.KeyImages]),
		Hint: "Write its full name. Allowed: " + strings.Join(t.Images, ", ")}
}

// withMounts adds what the rules have every job find, where the job mounts nothing itself.
func withMounts(s engine.Spec, t quota.Terms) engine.Spec {
	var more []engine.Mount
	for _, m := range t.Mounts {
		taken := func(o engine.Mount) bool { return o.Target == m.Target }
		if m.Target != s.Workdir && !slices.ContainsFunc(s.Mounts, taken) {
			m.Optional = true
			more = append(more, m)
		}
	}
	if len(more) > 0 {
		s.Mounts = append(slices.Clone(s.Mounts), more...)
	}
	return s
}
