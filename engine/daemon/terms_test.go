package daemon

import (
	"errors"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/quota"
)

// rules puts rules for people in force.
func (b *box) rules(p quota.Policy, preemptible ...engine.Class) {
	pol := *b.d.policy()
	pol.People, pol.Scheduler.Of = p, preemptible
	b.d.SetPolicy(pol)
}

func everyone(r quota.Rule) quota.Policy { return quota.Policy{Everyone: r} }

func TestRulesRefuseAtSubmit(t *testing.T) {
	b := newBox(t, 2)
	b.rules(quota.Policy{
		Everyone: quota.Rule{Quota: engine.Quota{GPUs: ref(1.0)}, Classes: []engine.Class{engine.Low}, MaxTimeLimit: 2 * time.Hour, Images: []string{"localhost/*"}},
		Groups:   []quota.Group{{Name: "shared", GID: sharedGID, Known: true, Together: engine.Quota{Memory: ref(engine.GiB)}}},
	})
	for name, c := range map[string]struct {
		change func(*engine.Spec)
		code   api.ErrorCode
		want   string
	}{
		"class":        {func(s *engine.Spec) { s.Class = engine.High }, api.CodeForbidden, "class high is not granted to you (rule for everyone)\nYou may use low."},
		"time limit":   {func(s *engine.Spec) { s.TimeLimit = 3 * time.Hour }, api.CodeInvalid, "longer than the 2h0m0s you may ask for"},
		"image":        {func(s *engine.Spec) { s.Image = "docker.io/x/y" }, api.CodeForbidden, "image docker.io/x/y is not on the list"},
		"GPUs":         {func(s *engine.Spec) { s.Request.GPUs = 2 }, api.CodeInvalid, "asks for 2 GPUs; the quota of " + me().Name + " is 1 GPU at once"},
		"group memory": {func(s *engine.Spec) { s.Request.Memory = 2 * engine.GiB }, api.CodeInvalid, "asks for 2GiB; the quota of group shared is 1GiB at once"},
	} {
		s := engine.Spec{Name: "t", Command: []string{"run"}, Request: engine.Request{GPUs: 1}, Workdir: "/tmp"}
		c.change(&s)
		_, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s})
		if codeOf(err) != c.code || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s: %s", name, err, c.code, c.want)
		}
	}
	s := engine.Spec{Name: "t", Command: []string{"run"}, Workdir: "/tmp"}
	r, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s})
	if err != nil || r.Job.Class != engine.Low || r.Job.TimeLimit != 2*time.Hour {
		t.Errorf("the defaults: %+v, %v", r.Job, err)
	}
	if got, err := b.d.Audit(t.Context(), root, api.AuditQuery{}); err != nil || len(got.Entries) != 3 || got.Entries[1].Allowed {
		t.Errorf("refusals on the trail: %+v, %v", got, err)
	}
	for name, u := range map[string]api.UpdateRequest{"class": {Class: ref(engine.High)}, "limit": {TimeLimit: ref(3 * time.Hour)}, "GPUs": {GPUs: ref(2)}} {
		if err := b.change(b.caller(), r.Job.ID, u); err == nil {
			t.Errorf("%s: an update got around the rules", name)
		}
	}
}

func TestQuotaIsHeldAndReloaded(t *testing.T) {
	b := newBox(t, 2)
	b.rules(everyone(quota.Rule{Quota: engine.Quota{GPUs: ref(1.0)}}))
	b.untilState(b.submit(spec(engine.Medium, "run")), engine.Running)
	second := b.submit(spec(engine.High, "run"))
	b.until(second, "over quota", func(j api.Job) bool {
		return j.Reason != nil && j.Reason.Code == engine.OverQuota && j.Reason.Detail == me().Name
	})
	u, err := b.d.Users(t.Context(), b.caller())
	if err != nil || len(u.Users) != 1 || !u.Users[0].Me || u.Users[0].Held.GPUs != 1 || u.Users[0].Pending != 1 || *u.Users[0].Quota.GPUs != 1 || u.Users[0].From[quota.KeyGPUs] != "everyone" {
		t.Errorf("users: %+v, %v", u, err)
	}
	b.rules(everyone(quota.Rule{Quota: engine.Quota{GPUs: ref(2.0)}}))
	b.untilState(second, engine.Running)
}

// A quota that members of a group share holds over a restart, when the groups have to be read anew: until they are, no
// job of theirs starts.
func TestGroupQuotaOverARestart(t *testing.T) {
	b := newBox(t, 2)
	away := true
	answered := make(chan struct{}, 100)
	b.groups = func(uint32) ([]uint32, error) {
		answered <- struct{}{}
		if away {
			return nil, errors.New("the directory is away")
		}
		return []uint32{sharedGID}, nil
	}
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.silent.Store(true)
	b.restart()
	b.rules(quota.Policy{Groups: []quota.Group{{Name: "shared", GID: sharedGID, Known: true, Together: engine.Quota{Jobs: ref(1)}}}})
	<-answered
	terms, known := quota.Terms{}, true
	if err := b.d.do(t.Context(), func() { terms, known = b.d.termsOf(me()) }); err != nil || known || len(terms.Groups) != 0 {
		t.Errorf("with the directory away: known %v, %+v, %v", known, terms, err)
	}
}

func TestPreemptFor(t *testing.T) {
	b := newBox(t, 1)
	victim := b.submit(spec(engine.Low, "run"))
	b.untilState(victim, engine.Running)
	friendly := api.Caller{User: engine.User{UID: me().UID, Name: "other"}, PID: 14}
	waiting := b.submit(spec(engine.High, "run"))
	b.until(waiting, "waiting", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	// The victim becomes somebody else's: the box has one agent, for one uid.
	if err := b.d.do(t.Context(), func() {
		e := *b.d.state.jobs[victim]
		e.job.Owner = friendly.User
		b.d.state.jobs[victim] = &e
		b.d.state.owners[me()]--
		b.d.state.owners[friendly.User]++
	}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rules func()
		by    api.Caller
		want  string
	}{
		"a stranger's job":  {func() {}, mallory, "no waiting job of yours"},
		"not granted":       {func() { b.rules(everyone(quota.Rule{Classes: []engine.Class{engine.Low}}), engine.Low) }, b.caller(), "not granted to you any more"},
		"does not give way": {func() { b.rules(quota.Policy{}) }, b.caller(), "do not give way here"},
	} {
		c.rules()
		_, err := b.d.PreemptFor(t.Context(), c.by, victim, waiting, "")
		if codeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if e := b.trail(victim)[0]; e.Allowed || e.Action != "preempt" || e.Reason != "for job "+waiting.String() {
			t.Errorf("%s: the trail says %+v", name, e)
		}
	}
	b.rules(quota.Policy{}, engine.Low)
	if _, err := b.d.PreemptFor(t.Context(), b.caller(), victim, victim, ""); codeOf(err) != api.CodeForbidden {
		t.Errorf("for itself: %v", err)
	}
	// Where the waiting job could not start all the same, nobody is stopped for it.
	r := b.reserve(api.ReserveRequest{Drain: true, Devices: []engine.DeviceID{engine.DeviceID(cardName(0))}})
	if _, err := b.d.PreemptFor(t.Context(), b.caller(), victim, waiting, ""); codeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), "any sooner") {
		t.Errorf("for a drained card: %v", err)
	}
	if _, err := b.d.Unreserve(t.Context(), root, r.Reservation.ID, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := b.d.PreemptFor(t.Context(), b.caller(), victim, waiting, "a deadline"); err != nil {
		t.Fatal(err)
	}
	b.untilState(waiting, engine.Running)
	_, _, events, err := b.store.Job(t.Context(), victim)
	found := false
	for _, e := range events {
		found = found || strings.Contains(e.Text, "preempted for job "+waiting.String()+" by "+me().Name+": a deadline")
	}
	if err != nil || !found {
		t.Errorf("the victim's story: %+v, %v", events, err)
	}
}
