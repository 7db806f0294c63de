package daemon

import (
	"fmt"

	"gputop/engine"
	"gputop/engine/draft"
	"gputop/engine/scheduler"
)

// elements are the jobs that a job is submitted as: one, or one for each index of its array.
func (d *Daemon) elements(j engine.Job) ([]engine.Job, error) {
	if j.Spec.Array == "" || j.Element != nil {
		j.ID = d.store.NextJobID()
		return []engine.Job{j}, nil
	}
	a, err := engine.ParseArray(j.Spec.Array)
	if err != nil {
		return nil, invalid(err)
	}
	first := d.store.NextJobIDs(len(a.Indices))
	out := make([]engine.Job, len(a.Indices))
	for i, index := range a.Indices {
		e := j
		e.ID = first + engine.JobID(i)
		e.Element = &engine.Element{Array: first, Index: index, Of: len(a.Indices), Parallel: a.Parallel}
		e.Spec.Name = draft.ElementName(j.Spec.Name, index)
		out[i] = e
	}
	return out, nil
}

// size is how many jobs a spec is.
func size(s engine.Spec) int {
	if a, err := engine.ParseArray(s.Array); err == nil {
		return len(a.Indices)
	}
	return 1
}

// arrayAccount is what bounds how many elements of an array run at once.
func (b *books) arrayAccount(e *engine.Element) int {
	if i, ok := b.array[e.Array]; ok {
		return i
	}
	if b.array == nil {
		b.array = map[engine.JobID]int{}
	}
	i := len(b.list)
	b.array[e.Array] = i
	b.list = append(b.list, scheduler.Account{Name: engine.ArrayAccount + e.Array.String(), Quota: engine.Quota{Jobs: &e.Parallel}})
	return i
}

// accountsOfJob are the accounts that one job counts against; ok is false when they are not known.
func (d *Daemon) accountsOfJob(b *books, j *engine.Job) (accounts []int, ok bool) {
	accounts, ok = d.accountsOf(b, j.Owner)
	if el := j.Element; ok && el != nil && el.Parallel > 0 {
		accounts = append(accounts[:len(accounts):len(accounts)], b.arrayAccount(el))
	}
	return accounts, ok
}

// elementQueued and elementEnded count the elements that are not over.
func (d *Daemon) elementQueued(j *engine.Job) {
	if j.Element != nil {
		d.unended[j.Element.Array]++
	}
}

func (d *Daemon) elementEnded(j *engine.Job) {
	if j.Element == nil {
		return
	}
	if d.unended[j.Element.Array]--; d.unended[j.Element.Array] <= 0 {
		delete(d.unended, j.Element.Array)
	}
}

// elementEnv is what an element finds in its environment about its array.
func elementEnv(e *engine.Element) []string {
	if e == nil {
		return nil
	}
	return []string{fmt.Sprintf("GPUTOP_ARRAY_JOB_ID=%s", e.Array), fmt.Sprintf("GPUTOP_ARRAY_INDEX=%d", e.Index), fmt.Sprintf("GPUTOP_ARRAY_COUNT=%d", e.Of)}
}
