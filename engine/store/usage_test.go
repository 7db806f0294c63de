package store

import (
	"reflect"
	"testing"
	"time"

	"gputop/engine"
)

func TestUsageIsKept(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	at := time.Date(2030, 1, 2, 3, 4, 5, 600, time.UTC)
	ann, other := engine.User{UID: 5, Name: "ann"}, engine.User{UID: 5, Name: "another"}
	apply(t, s, PutUsage(Usage{Owner: ann, GPUSeconds: 1, At: at}), PutUsage(Usage{Owner: other, GPUSeconds: 7, At: at}))
	apply(t, s, PutUsage(Usage{Owner: ann, GPUSeconds: 2.5, At: at.Add(time.Nanosecond)}), SetPreempted([]time.Time{at}))
	if err := s.Apply(t.Context(), PutUsage(Usage{GPUSeconds: 1, At: at})); err == nil {
		t.Error("nobody's usage was kept")
	}
	s.Close()
	s = open(t, dir, Options{})
	got, err := s.Usages(t.Context())
	want := []Usage{{ann, 2.5, at.Add(time.Nanosecond)}, {other, 7, at}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if times, err := s.Preempted(t.Context()); err != nil || len(times) != 1 || !times[0].Equal(at) {
		t.Errorf("preempted %v, %v", times, err)
	}
}

func TestUsedAddsUp(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	ann := engine.User{UID: 5, Name: "ann"}
	day := func(n int, class engine.Class) Used {
		return Used{Day: n, Owner: ann, Class: class, GPUSeconds: 10, GPUMemory: 100, CPUSeconds: 1, Attempts: 1}
	}
	apply(t, s, AddUsed(day(20000, engine.Low)), AddUsed(day(20001, engine.Low)), AddUsed(day(20001, engine.High)))
	apply(t, s, AddUsed(day(20001, engine.Low)), AddUsed(day(20002, engine.Low)))
	if err := s.Apply(t.Context(), AddUsed(Used{Owner: ann, Class: engine.Low})); err == nil {
		t.Error("a use without a day was kept")
	}
	s.Close()
	s = open(t, dir, Options{})
	got, err := s.Used(t.Context(), 20001, 20001)
	want := []Used{{20001, ann, engine.Low, 20, 200, 2, 2}, day(20001, engine.High)}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
