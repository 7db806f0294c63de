package simgpu

import (
	"sync"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// reports is what has been told of each card's errors: a card tells each once, and a process that begins later is told
// nothing of what was before.
type reports struct {
	mu   sync.Mutex
	told map[int]int
}

func (r *reports) begin(cards []*card) {
	r.told = map[int]int{}
	for _, c := range cards {
		r.told[c.index] = len(c.now().XIDs)
	}
}

// eventSet is cards that are listened to.
type eventSet struct {
	noEventSet
	lib   *library
	mu    sync.Mutex
	cards []*card
}

// EventSetCreate makes an empty set.
func (l *library) EventSetCreate() (nvml.EventSet, nvml.Return) {
	if n, r := l.DeviceGetCount(); r != nvml.SUCCESS || n < 0 {
		return nil, r
	}
	return &eventSet{lib: l}, nvml.SUCCESS
}

// EventSetWait waits for an event of a set.
func (l *library) EventSetWait(s nvml.EventSet, ms uint32) (nvml.EventData, nvml.Return) {
	if s == nil {
		return nvml.EventData{}, nvml.ERROR_INVALID_ARGUMENT
	}
	return s.Wait(ms)
}

// EventSetFree frees a set.
func (l *library) EventSetFree(s nvml.EventSet) nvml.Return {
	if s == nil {
		return nvml.ERROR_INVALID_ARGUMENT
	}
	return s.Free()
}

func (s *eventSet) Free() nvml.Return { return nvml.SUCCESS }

func (s *eventSet) Wait(ms uint32) (nvml.EventData, nvml.Return) {
	if e, ok := s.next(); ok {
		return e, nvml.SUCCESS
	}
	time.Sleep(min(time.Duration(ms)*time.Millisecond, 20*time.Millisecond))
	return nvml.EventData{}, nvml.ERROR_TIMEOUT
}

func (s *eventSet) next() (nvml.EventData, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := &s.lib.reports
	told.mu.Lock()
	defer told.mu.Unlock()
	for _, c := range s.cards {
		list := c.now().XIDs
		n := min(told.told[c.index], len(list))
		told.told[c.index] = n
		if n < len(list) {
			told.told[c.index]++
			return nvml.EventData{Device: cardHandle{c: c}, EventType: nvml.EventTypeXidCriticalError, EventData: uint64(list[n])}, true
		}
	}
	return nvml.EventData{}, false
}

const supportedEvents = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError

func (h cardHandle) GetSupportedEventTypes() (uint64, nvml.Return) {
	return answer(h.c, "events", uint64(supportedEvents))
}

// RegisterEvents registers nothing if one event is not supported, as the real one does.
func (h cardHandle) RegisterEvents(types uint64, s nvml.EventSet) nvml.Return {
	_, r := h.c.enter("events")
	set, ok := s.(*eventSet)
	switch {
	case r != nvml.SUCCESS:
		return r
	case types&^supportedEvents != 0:
		return nvml.ERROR_NOT_SUPPORTED
	case !ok:
		return nvml.ERROR_INVALID_ARGUMENT
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	set.cards = append(set.cards, h.c)
	return nvml.SUCCESS
}
