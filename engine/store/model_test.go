package store

import (
	"context"
	"maps"
	"os"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"gputop/engine"
)

// model is the store as maps.
type model struct {
	jobs     map[engine.JobID]engine.Job
	attempts map[engine.AttemptID]engine.Attempt
	events   map[engine.JobID][]engine.Event
}

func (m model) clone() model {
	c := model{maps.Clone(m.jobs), maps.Clone(m.attempts), map[engine.JobID][]engine.Event{}}
	for id, e := range m.events {
		c.events[id] = slices.Clone(e)
	}
	return c
}

func (m model) attemptsOf(id engine.JobID) []engine.Attempt {
	var out []engine.Attempt
	for n := 1; n <= 3; n++ {
		if a, ok := m.attempts[engine.AttemptID{Job: id, Number: n}]; ok {
			out = append(out, a)
		}
	}
	return out
}

func (m model) live() Live {
	var live Live
	for _, id := range slices.Sorted(maps.Keys(m.jobs)) {
		attempts := m.attemptsOf(id)
		holds := slices.ContainsFunc(attempts, func(a engine.Attempt) bool { return a.Allocation.State.Holds() })
		if !m.jobs[id].State.Final() || holds {
			live.Jobs = append(live.Jobs, m.jobs[id])
			live.Attempts = append(live.Attempts, attempts...)
		}
	}
	return live
}

// valid says whether every attempt and event has its job.
func (m model) valid() bool {
	for id := range m.attempts {
		if _, ok := m.jobs[id.Job]; !ok {
			return false
		}
	}
	for id := range m.events {
		if _, ok := m.jobs[id]; !ok {
			return false
		}
	}
	return true
}

var (
	anyID    = rapid.Map(rapid.IntRange(1, 6), func(n int) engine.JobID { return engine.JobID(n) })
	anyState = rapid.SampledFrom([]engine.JobState{engine.Pending, engine.Running, engine.Succeeded, engine.Lost})
	anyAlloc = rapid.SampledFrom([]engine.AllocationState{engine.Granted, engine.Active, engine.Releasing, engine.Released})
)

// change draws one and makes it in the model too.
func change(t *rapid.T, m model) Change {
	id := anyID.Draw(t, "id")
	switch rapid.IntRange(0, 3).Draw(t, "kind") {
	case 0, 1:
		j := job(id, anyState.Draw(t, "state"))
		j.Message = rapid.String().Draw(t, "message")
		m.jobs[id] = j
		return PutJob(j)
	case 2:
		a := attempt(id, rapid.IntRange(1, 3).Draw(t, "number"), anyAlloc.Draw(t, "allocation"))
		a.PID = rapid.IntRange(0, 1000).Draw(t, "pid")
		m.attempts[a.ID] = a
		return PutAttempt(a)
	}
	e := event(id, rapid.String().Draw(t, "text"))
	m.events[id] = append(m.events[id], e)
	return AddEvent(e)
}

// TestModel: any sequence of calls, with the store closed and opened at any point, holds what the maps hold; a call
// that breaks a rule changes nothing.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "store")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		s := reopen(t, nil, dir)
		defer func() { s.Close() }()
		m := model{map[engine.JobID]engine.Job{}, map[engine.AttemptID]engine.Attempt{}, map[engine.JobID][]engine.Event{}}
		for range rapid.IntRange(1, 10).Draw(t, "calls") {
			next := m.clone()
			var changes []Change
			for range rapid.IntRange(0, 5).Draw(t, "changes") {
				changes = append(changes, change(t, next))
			}
			err := s.Apply(context.Background(), changes...)
			if (err == nil) != next.valid() {
				t.Fatalf("valid %v, but Apply says %v", next.valid(), err)
			}
			if err == nil {
				m = next
			}
			if rapid.IntRange(0, 4).Draw(t, "reopen") == 0 {
				s = reopen(t, s, dir)
			}
		}
		s = reopen(t, s, dir)
		compare(t, s, m)
	})
}

func reopen(t *rapid.T, s *Store, dir string) *Store {
	if s != nil {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func compare(t *rapid.T, s *Store, m model) {
	live, err := s.Load(context.Background())
	if err != nil || !reflect.DeepEqual(live, m.live()) {
		t.Fatalf("live %+v, %v\nwant %+v", live, err, m.live())
	}
	for id, want := range m.jobs {
		j, attempts, events, err := s.Job(context.Background(), id)
		if err != nil || !reflect.DeepEqual(j, want) || !reflect.DeepEqual(attempts, m.attemptsOf(id)) ||
			!reflect.DeepEqual(events, m.events[id]) {
			t.Fatalf("job %d: %+v %+v %+v %v", id, j, attempts, events, err)
		}
	}
}
