package daemon

import (
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func (b *box) reserve(r api.ReserveRequest) api.ReserveResponse {
	b.t.Helper()
	if r.From.IsZero() {
		r.From = time.Now()
	}
	out, err := b.d.Reserve(b.t.Context(), root, r)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func (b *box) untilReason(id engine.JobID, code engine.ReasonCode) api.Job {
	b.t.Helper()
	return b.until(id, string(code), func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == code })
}

// hour is a reservation of one card for somebody else, for an hour.
func hour() api.ReserveRequest {
	return api.ReserveRequest{GPUs: 1, To: time.Now().Add(time.Hour), Users: []string{"somebody"}, Reason: "a course"}
}

func TestReservationClearsItsCards(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	r := b.reserve(hour())
	if len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "job "+id.String()+" of "+me().Name+" may run longer than that; it then is put back") {
		t.Errorf("warnings %q", r.Warnings)
	}
	j := b.untilReason(id, engine.BlockedByReservation)
	if !strings.Contains(j.Reason.Detail, "reserved for somebody") || !j.Reason.Until.Equal(r.Reservation.To) || j.Preemptions != 1 {
		t.Errorf("it waits: %+v, preempted %d times", j.Reason, j.Preemptions)
	}
	// What was promised is so after a restart.
	b.restart()
	b.untilReason(id, engine.BlockedByReservation)
	if g := b.d.GPUs(root); len(g.GPUs[0].Reservations) != 1 || g.GPUs[0].Reservations[0].ID != r.Reservation.ID {
		t.Errorf("the card says %+v", g.GPUs[0].Reservations)
	}
	if _, err := b.d.Unreserve(t.Context(), root, r.Reservation.ID, "called off"); err != nil {
		t.Fatal(err)
	}
	b.untilState(id, engine.Running)
	trail, err := b.d.Audit(t.Context(), root, api.AuditQuery{})
	if err != nil || trail.Entries[0].Action != "reserve" || !strings.Contains(trail.Entries[0].Text, "taken back: GPU 0") || trail.Entries[0].Reason != "called off" {
		t.Errorf("the trail says %+v, %v", trail.Entries[0], err)
	}
	if _, err := b.d.Unreserve(t.Context(), root, r.Reservation.ID, ""); codeOf(err) != api.CodeNotFound {
		t.Errorf("twice: %v", err)
	}
}

func TestReservationIsForItsPeople(t *testing.T) {
	b := newBox(t, 1)
	b.reserve(api.ReserveRequest{GPUs: 1, To: time.Now().Add(time.Hour), Groups: []string{"shared"}})
	b.untilState(b.submit(spec(engine.Low, "exit", "0")), engine.Succeeded)
}

func TestReservationEnds(t *testing.T) {
	b := newBox(t, 1)
	r := hour()
	r.To = time.Now().Add(2 * time.Second)
	b.reserve(r)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilReason(id, engine.BlockedByReservation)
	b.untilState(id, engine.Running)
	_ = b.d.do(t.Context(), b.d.keepReservations) // what each tick does
	if left, err := b.d.Reserved(t.Context(), root); err != nil || len(left) != 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}

// A job that would run into a later reservation waits; one that ends before does not.
func TestReservationAhead(t *testing.T) {
	b := newBox(t, 1)
	r := hour()
	r.From, r.To = time.Now().Add(30*time.Minute), time.Now().Add(time.Hour)
	b.reserve(r)
	long := b.submit(spec(engine.High, "run"))
	b.untilReason(long, engine.BlockedByReservation)
	short := spec(engine.Low, "exit", "0")
	short.TimeLimit = 10 * time.Minute
	b.untilState(b.submit(short), engine.Succeeded)
}

func TestReservationTakesTheIdleCard(t *testing.T) {
	b := newBox(t, 2)
	id := b.submit(spec(engine.Medium, "run"))
	busy := b.untilState(id, engine.Running).Grants[0].Index
	r := b.reserve(hour())
	if got := r.Reservation.Indices; len(got) != 1 || got[0] == busy || len(r.Warnings) != 0 {
		t.Errorf("took GPU %v with %q; GPU %d is busy", got, r.Warnings, busy)
	}
}

func TestDrain(t *testing.T) {
	b := newBox(t, 1)
	first := b.submit(spec(engine.Medium, "run"))
	b.untilState(first, engine.Running)
	card := engine.DeviceID(cardName(0))
	b.reserve(api.ReserveRequest{Drain: true, Devices: []engine.DeviceID{card}, Reason: "new fan"})
	second := b.submit(spec(engine.Medium, "run"))
	if _, err := b.d.Stop(t.Context(), b.caller(), first, engine.StopCancelled, ""); err != nil {
		t.Fatal(err)
	}
	if j := b.untilReason(second, engine.DeviceDraining); !strings.Contains(j.Reason.Detail, "drained: new fan") {
		t.Errorf("it waits: %+v", j.Reason)
	}
	if _, err := b.d.Reserve(t.Context(), root, api.ReserveRequest{Drain: true, Devices: []engine.DeviceID{card}}); codeOf(err) != api.CodeConflict {
		t.Errorf("drained twice: %v", err)
	}
	left, err := b.d.Undrain(t.Context(), root, api.UndrainRequest{})
	if err != nil || len(left) != 0 {
		t.Fatalf("left %+v, %v", left, err)
	}
	b.untilState(second, engine.Running)
	if _, err := b.d.Undrain(t.Context(), root, api.UndrainRequest{}); codeOf(err) != api.CodeConflict {
		t.Errorf("undrained twice: %v", err)
	}
}

func TestWhoReserves(t *testing.T) {
	b := newBox(t, 1)
	for _, c := range []api.Caller{b.caller(), friend, mallory} {
		_, err := b.d.Reserve(t.Context(), c, hour())
		_, err2 := b.d.Unreserve(t.Context(), c, 1, "")
		_, err3 := b.d.Undrain(t.Context(), c, api.UndrainRequest{})
		for _, err := range []error{err, err2, err3} {
			if codeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), "for admins") {
				t.Errorf("%s: %v", c.Name, err)
			}
		}
	}
	trail, err := b.d.Audit(t.Context(), root, api.AuditQuery{})
	if err != nil || len(trail.Entries) != 9 || trail.Entries[0].Allowed || trail.Entries[0].Action != "reserve" {
		t.Errorf("the trail says %+v, %v", trail.Entries, err)
	}
}

func TestBadReservations(t *testing.T) {
	b := newBox(t, 2)
	b.reserve(hour())
	now := time.Now()
	for name, c := range map[string]struct {
		change func(*api.ReserveRequest)
		want   string
	}{
		"which":         {func(r *api.ReserveRequest) { r.GPUs = 0 }, "which GPUs?"},
		"two ways":      {func(r *api.ReserveRequest) { r.Devices = []engine.DeviceID{"x"} }, "one of both"},
		"past":          {func(r *api.ReserveRequest) { r.From = now.Add(-time.Hour) }, "in the past"},
		"backwards":     {func(r *api.ReserveRequest) { r.To = r.From.Add(-1) }, "before it begins"},
		"no end":        {func(r *api.ReserveRequest) { r.To = time.Time{} }, "needs an end"},
		"long":          {func(r *api.ReserveRequest) { r.To = r.From.Add(100 * 24 * time.Hour) }, "90 days at most"},
		"far":           {func(r *api.ReserveRequest) { r.From = now.Add(400 * 24 * time.Hour); r.To = r.From.Add(1) }, "more than a year"},
		"for nobody":    {func(r *api.ReserveRequest) { r.Users = nil }, "for whom?"},
		"drain for one": {func(r *api.ReserveRequest) { r.Drain = true }, "a drain is for nobody"},
		"no such user":  {func(r *api.ReserveRequest) { r.Users = []string{"nobody-here"} }, `user "nobody-here"`},
		"no such card":  {func(r *api.ReserveRequest) { r.GPUs, r.Devices = 0, []engine.DeviceID{"GPU-z"} }, "there is no GPU GPU-z"},
		"too many":      {func(r *api.ReserveRequest) { r.GPUs = 2 }, "2 GPUs asked for; 1 of this machine's 2"},
		"promised":      {func(r *api.ReserveRequest) { r.GPUs, r.Devices = 0, []engine.DeviceID{"GPU-a", "GPU-b"} }, "is reserved for somebody then (number 1)"},
	} {
		r := hour()
		r.From = now
		c.change(&r)
		if _, err := b.d.Reserve(t.Context(), root, r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
