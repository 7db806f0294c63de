package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// syncBuffer is a log that tests read while it is written.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var (
	root    = api.Caller{User: engine.User{Name: "root"}, PID: 11, Admin: true}
	mallory = api.Caller{User: engine.User{UID: 4242, Name: "mallory"}, PID: 12}
	// friend is in the group that jobs are shared with.
	friend = api.Caller{User: engine.User{UID: 4243, Name: "friend"}, Groups: []uint32{sharedGID}, PID: 13}
)

const sharedGID = 777

func ref[T any](v T) *T { return &v }

// light is a job without a GPU, so that many run side by side.
func light(command ...string) engine.Spec {
	return engine.Spec{Name: "t", Command: command, Class: engine.Medium, TimeLimit: time.Hour,
		Request: engine.Request{CPUs: 0.1, Memory: 64 * engine.MiB}, Group: "shared"}
}

// shared is spec for a job that a group may look into.
func shared(s engine.Spec) engine.Spec { s.Group = "shared"; return s }

// waiting is a job that stays in the queue: its owner's agent prepares it, and the box has no such card free.
func (b *box) waiting() engine.JobID {
	b.t.Helper()
	id := b.submit(shared(spec(engine.Medium, "run")))
	b.until(id, "waiting for its turn", func(j api.Job) bool { return j.Reason != nil && j.Reason.Code == engine.WaitingForDevice })
	return id
}

// fullBox is a box whose one card is taken, so that other jobs for it wait.
func fullBox(t *testing.T) *box {
	b := newBox(t, 1)
	b.untilState(b.submit(spec(engine.Medium, "run")), engine.Running)
	return b
}

func (b *box) runningJob() engine.JobID {
	b.t.Helper()
	id := b.submit(light("run"))
	b.untilState(id, engine.Running)
	return id
}

// deed is one action, on a job made ready for it.
type deed struct {
	act   action
	ready func(b *box) engine.JobID
	do    func(b *box, c api.Caller, id engine.JobID, note string) error
}

func (b *box) change(c api.Caller, id engine.JobID, u api.UpdateRequest) error {
	return second(b.d.Update(b.t.Context(), c, id, u))
}

var deeds = []deed{
	{actSee, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, _ string) error {
		return second(b.d.Show(b.t.Context(), c, id))
	}},
	{actLogs, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, _ string) error {
		return b.d.Logs(b.t.Context(), c, id, api.LogOptions{}, io.Discard)
	}},
	{actExec, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, _ string) error {
		return second(b.d.Exec(b.t.Context(), c, id))
	}},
	{actCancel, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return second(b.d.Stop(b.t.Context(), c, id, engine.StopCancelled, note))
	}},
	{actPreempt, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return second(b.d.Stop(b.t.Context(), c, id, engine.StopPreempted, note))
	}},
	{actHold, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return second(b.d.Hold(b.t.Context(), c, id, true, note))
	}},
	{actRelease, func(b *box) engine.JobID { return b.heldBy(b.caller()) }, (*box).free},
	{actReleaseAdmin, func(b *box) engine.JobID { return b.heldBy(root) }, (*box).free},
	{actRequeue, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return second(b.d.Requeue(b.t.Context(), c, id, note))
	}},
	{actUpdate, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return b.change(c, id, api.UpdateRequest{Name: ref("new"), GPUMemory: ref(engine.GiB), Reason: note})
	}},
	{actClass, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return b.change(c, id, api.UpdateRequest{Class: ref(engine.Low), Reason: note})
	}},
	{actCritical, (*box).waiting, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return b.change(c, id, api.UpdateRequest{Class: ref(engine.Critical), Reason: note})
	}},
	{actLimit, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return b.change(c, id, api.UpdateRequest{TimeLimit: ref(time.Minute), Reason: note})
	}},
	{actRaise, (*box).runningJob, func(b *box, c api.Caller, id engine.JobID, note string) error {
		return b.change(c, id, api.UpdateRequest{TimeLimit: ref(2 * time.Hour), Reason: note})
	}},
}

func (b *box) heldBy(c api.Caller) engine.JobID {
	b.t.Helper()
	id := b.waiting()
	if _, err := b.d.Hold(b.t.Context(), c, id, true, ""); err != nil {
		b.t.Fatal(err)
	}
	return id
}

func (b *box) free(c api.Caller, id engine.JobID, note string) error {
	return second(b.d.Hold(b.t.Context(), c, id, false, note))
}

func codeOf(err error) api.ErrorCode {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func (b *box) trail(id engine.JobID) (out []engine.AuditEntry) {
	b.t.Helper()
	all, err := b.store.Audit(context.Background(), store.AuditQuery{Limit: 1 << 20})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range all {
		if e.Job == id && e.Action != actSubmit.String() {
			out = append(out, e)
		}
	}
	return out
}

// Every cell of the table, over a real daemon: what it allows is done and on the trail, what it refuses changes nothing,
// and is in the log and on the trail.
func TestPermissions(t *testing.T) {
	b := fullBox(t)
	tested := map[action]bool{actSubmit: true, actLook: true, actAudit: true, actReserve: true} // by the tests below
	for _, d := range deeds {
		tested[d.act] = true
		p := permissions[d.act]
		for _, cell := range []struct {
			name string
			c    api.Caller
			want rule
		}{{"owner", b.caller(), p.owner}, {"admin", root, p.admin}, {"group", friend, p.group}, {"other", mallory, p.other}} {
			t.Run(p.word+" by "+cell.name, func(t *testing.T) {
				id := d.ready(b)
				had := len(b.trail(id))
				note := ""
				if cell.want == reason {
					b.refused(t, d, cell.c, id, api.CodeInvalid, "say why")
					had++
					note = "maintenance at five"
				}
				if cell.want == gain { // TestPreemptFor has what then is allowed
					b.refused(t, d, cell.c, id, api.CodeForbidden, "--for")
					return
				}
				if cell.want == no {
					b.refused(t, d, cell.c, id, api.CodeForbidden, "only")
					return
				}
				if err := d.do(b, cell.c, id, note); err != nil {
					t.Fatalf("refused: %v", err)
				}
				b.allowed(t, d.act, cell.c, b.trail(id)[:len(b.trail(id))-had], note)
			})
		}
	}
	for a := range actions {
		if !tested[a] {
			t.Errorf("no test does %s", a)
		}
	}
}

// reads leave no line on the trail when they are allowed.
var reads = map[action]bool{actSee: true, actLogs: true, actExec: true}

func (b *box) allowed(t *testing.T, a action, c api.Caller, fresh []engine.AuditEntry, note string) {
	t.Helper()
	if reads[a] {
		if len(fresh) != 0 {
			t.Errorf("a read is on the trail: %+v", fresh)
		}
		return
	}
	found := false
	for _, e := range fresh {
		found = found || e.Action == a.String()
		if !e.Allowed || e.User != c.User || e.PID != c.PID || e.Reason != note || !e.Owner.Is(me()) {
			t.Errorf("the trail says %+v", e)
		}
	}
	if !found {
		t.Errorf("the trail does not say %s: %+v", a, fresh)
	}
}

func (b *box) refused(t *testing.T, d deed, c api.Caller, id engine.JobID, code api.ErrorCode, word string) {
	t.Helper()
	before, err := b.d.Show(t.Context(), b.caller(), id)
	if err != nil {
		t.Fatal(err)
	}
	err = d.do(b, c, id, "")
	if codeOf(err) != code || !strings.Contains(err.Error(), word) && !strings.Contains(err.Error(), "for admins") {
		t.Fatalf("got %v, want %s: …%s…", err, code, word)
	}
	e := b.trail(id)[0]
	if e.Allowed || e.User != c.User || e.PID != c.PID || !e.Owner.Is(me()) || e.Text == "" {
		t.Errorf("the trail says %+v", e)
	}
	line := fmt.Sprintf("action=%s job=%s owner=%s user=%s uid=%d pid=%d", e.Action, id, me().Name, c.Name, c.UID, c.PID)
	if log := b.log.String(); !strings.Contains(log, "msg=refused "+line) {
		t.Errorf("the log does not say %q", line)
	}
	after, err := b.d.Show(t.Context(), b.caller(), id)
	if err != nil || len(after.Events) != len(before.Events) || after.Held != before.Held || after.Class != before.Class ||
		after.TimeLimit != before.TimeLimit || after.Name != before.Name || after.StopReason != before.StopReason {
		t.Errorf("a refused request changed the job: %+v, before %+v (%v)", after.Job, before.Job, err)
	}
}

func TestLookingIntoAJob(t *testing.T) {
	b := fullBox(t)
	id := b.waiting()
	for c, want := range map[string]struct {
		api.Caller
		look bool
	}{"owner": {b.caller(), true}, "admin": {root, true}, "group": {friend, true}, "other": {mallory, false}} {
		det, err := b.d.Show(t.Context(), want.Caller, id)
		if err != nil || (det.Spec != nil) != want.look || (det.Command != "") != want.look || (len(det.Events) > 0) != want.look {
			t.Errorf("%s sees %+v, %v", c, det, err)
		}
	}
}

func TestRefusedSubmitsAreOnTheTrail(t *testing.T) {
	b := newBox(t, 1)
	s := light("true")
	s.Workdir = "/tmp"
	_, err := b.d.Submit(t.Context(), root, api.SubmitRequest{Spec: s})
	s.Class = engine.Critical
	_, err2 := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s})
	if codeOf(err) != api.CodeForbidden || codeOf(err2) != api.CodeForbidden {
		t.Errorf("submit by root: %v; critical by a user: %v", err, err2)
	}
	got, err := b.d.Audit(t.Context(), root, api.AuditQuery{})
	if err != nil || len(got.Entries) != 2 || got.Entries[0].Action != "critical" || got.Entries[1].Action != "submit" || got.Entries[1].Allowed {
		t.Errorf("the trail: %+v, %v", got, err)
	}
}

// The trail of others is theirs and the admins'; what was done to one's own jobs one may read.
func TestWhoReadsTheTrail(t *testing.T) {
	b := fullBox(t)
	id := b.waiting()
	_, _ = b.d.Stop(t.Context(), mallory, id, engine.StopCancelled, "")
	if _, err := b.d.Stop(t.Context(), root, id, engine.StopCancelled, "enough"); err != nil {
		t.Fatal(err)
	}
	_, _ = b.d.Submit(t.Context(), root, api.SubmitRequest{Spec: light("true")})
	for _, c := range []struct {
		name string
		who  api.Caller
		q    api.AuditQuery
		want string
	}{
		{"owner", b.caller(), api.AuditQuery{}, "root cancel true, mallory cancel false, me submit true, me submit true"},
		{"admin", root, api.AuditQuery{}, "root submit false, root cancel true, mallory cancel false, me submit true, me submit true"},
		{"other", mallory, api.AuditQuery{}, "mallory cancel false"},
		{"reused uid", api.Caller{User: engine.User{UID: mallory.UID, Name: "new"}}, api.AuditQuery{}, ""},
		{"by one", b.caller(), api.AuditQuery{User: "root"}, "root cancel true"},
		{"the newest", root, api.AuditQuery{Limit: 2}, "root submit false, root cancel true, more"},
		{"later", root, api.AuditQuery{Since: time.Now().Add(time.Hour)}, ""},
	} {
		a, err := b.d.Audit(t.Context(), c.who, c.q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range a.Entries {
			got = append(got, fmt.Sprint(strings.Replace(e.User.Name, me().Name, "me", 1), " ", e.Action, " ", e.Allowed))
		}
		if a.More {
			got = append(got, "more")
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%s reads %q, want %q", c.name, s, c.want)
		}
	}
}

// The page has the table as the code has it.
func TestPermissionsPage(t *testing.T) {
	var want strings.Builder
	words := map[rule]string{no: "no", yes: "yes", reason: "with a reason", gain: "for a job of theirs"}
	for _, p := range permissions {
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s | %s |\n", p.word, p.what, words[p.owner], words[p.admin], words[p.group], words[p.other])
	}
	page, err := os.ReadFile("../../docs/permissions.md")
	if err != nil || !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/permissions.md does not have this table (%v):\n%s", err, want.String())
	}
}
