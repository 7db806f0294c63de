package scheduler

import (
	"math"

	"gputop/engine"
)

// amount is what counts against a quota.
type amount struct {
	host
	milliGPUs int64 // thousandths of a GPU
	jobs      int
}

// amountOf is what an allocation counts: what was promised, also where a job takes more.
func amountOf(a engine.Allocation) amount {
	out := amount{host: host{milliOf(a.CPUs), a.Memory}, jobs: 1}
	for _, g := range a.Grants {
		if g.Whole {
			out.milliGPUs += 1000
		} else {
			out.milliGPUs += milliGPUs(float64(g.Fraction))
		}
	}
	return out
}

// milliGPUs rounds to thousandths: ten shares of a tenth are one GPU.
func milliGPUs(n float64) int64 { return int64(math.Round(min(n, 1e9) * 1000)) }

// ledger keeps what each account holds.
type ledger struct {
	accounts []Account
	held     []amount
}

func newLedger(s *Snapshot) *ledger {
	l := &ledger{accounts: s.Accounts, held: make([]amount, len(s.Accounts))}
	for i := range s.Held {
		l.add(s.Held[i].Accounts, amountOf(s.Held[i].Allocation))
	}
	return l
}

func (l *ledger) add(accounts []int, a amount) {
	for _, i := range accounts {
		h := &l.held[i]
		h.milli += a.milli
		h.memory += a.memory
		h.milliGPUs += a.milliGPUs
		h.jobs += a.jobs
	}
}

// over says whether so much more is above the quota of one of the accounts, and what is.
func (l *ledger) over(accounts []int, a amount) (engine.Reason, bool) {
	for _, i := range accounts {
		q, h := &l.accounts[i].Quota, &l.held[i]
		out := engine.Reason{Code: engine.OverQuota, Detail: l.accounts[i].Name}
		exceeds := func(limited bool, unit string, more, held int64, limit float64) bool {
			out.Unit, out.Needed, out.Free = unit, more, max(0, int64(limit)-held)
			return limited && more > 0 && held+more > int64(limit)
		}
		switch {
		case exceeds(q.GPUs != nil, engine.UnitMilliGPUs, a.milliGPUs, h.milliGPUs, float64(milliGPUs(value(q.GPUs)))),
			exceeds(q.Jobs != nil, engine.UnitJobs, int64(a.jobs), int64(h.jobs), float64(value(q.Jobs))),
			exceeds(q.Memory != nil, engine.UnitBytes, int64(a.memory), int64(h.memory), float64(value(q.Memory))):
			return out, true
		case exceeds(q.CPUs != nil, engine.UnitCores, a.milli, h.milli, float64(milliOf(value(q.CPUs)))):
			out.Needed, out.Free = (out.Needed+999)/1000, out.Free/1000
			return out, true
		}
	}
	return engine.Reason{}, false
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// largest is the memory of the largest card, in bytes.
func largest(devices []Device) (most engine.Bytes) {
	for i := range devices {
		most = max(most, devices[i].Usable)
	}
	return most
}

// leastOf is the least that a request can count: a share of memory counts least on the largest card, and what it does
// not name of the host may be next to nothing.
func leastOf(largest engine.Bytes, r engine.Request) amount {
	a := amount{host: host{milliOf(r.CPUs), r.Memory}, jobs: 1, milliGPUs: int64(r.GPUs) * 1000}
	switch {
	case r.GPUFraction > 0:
		a.milliGPUs = milliGPUs(float64(r.GPUFraction))
	case r.GPUMemory > 0 && largest > 0:
		a.milliGPUs = milliGPUs(float64(r.GPUMemory) / float64(largest))
	}
	return a
}

// inQuota says whether a job may take a claim.
func (pl *planner) inQuota(j *Pending, cl claim) bool {
	if len(j.Accounts) == 0 {
		return true
	}
	_, over := pl.books.over(j.Accounts, amountOf(pl.box.allocation(cl)))
	return !over
}

// quotaReason is why a job that fits has no place within its quota: what would be granted counts for more than the
// least it could.
func (pl *planner) quotaReason(j *Pending) engine.Reason {
	why := engine.Reason{Code: engine.OverQuota}
	pl.box.place(j.Request, nil, func(cl claim) bool {
		if r, over := pl.books.over(j.Accounts, amountOf(pl.box.allocation(cl))); over {
			why = r
		}
		return false
	})
	return why
}

func (pl *planner) sizeOf(j *Pending) size {
	s := size{request: j.Request, limit: j.TimeLimit}
	if pl.box.windows {
		s.owner = j.Owner
	}
	return s
}

// WithinQuota refuses a request that an account could never have, in a sentence that follows "the job".
func WithinQuota(s Snapshot, a Account, r engine.Request) error {
	l := &ledger{accounts: []Account{a}, held: make([]amount, 1)}
	why, over := l.over([]int{0}, leastOf(largest(s.Devices), r))
	if !over {
		return nil
	}
	return &quotaError{account: a.Name, why: why}
}

// quotaError is a request above a quota.
type quotaError struct {
	account string
	why     engine.Reason
}

func (e *quotaError) Error() string {
	return "asks for " + engine.Amount(e.why.Needed, e.why.Unit) + "; the quota of " + e.account + " is " + engine.Amount(e.why.Free, e.why.Unit) + " at once"
}
