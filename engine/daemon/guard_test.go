package daemon

import (
	"os"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// holds has the box's one running job hold so much of the first card.
func (b *box) holds(n engine.Bytes) {
	f := func(s *engine.Sample) {
		s.GPUs[0].Processes = []engine.GPUProcess{{PID: os.Getpid(), Memory: &n}}
	}
	b.alter.Store(&f)
}

func (b *box) share(n engine.Bytes) engine.JobID {
	s := spec(engine.Medium, "run")
	s.Request = engine.Request{GPUMemory: n}
	id := b.submit(s)
	b.untilState(id, engine.Running)
	return id
}

func (b *box) memoryNotices() (out []string) {
	b.t.Helper()
	n, err := b.d.Notices(b.t.Context(), b.caller(), 100)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, x := range n.Notices {
		if x.Kind == engine.NoticeMemory {
			out = append(out, x.Text)
		}
	}
	return out
}

func TestWhoHoldsMoreThanTheirShareIsTold(t *testing.T) {
	b := newBox(t, 1)
	id := b.share(8 * engine.GiB)
	b.holds(8*engine.GiB + 100*engine.MiB) // within what is let pass
	time.Sleep(100 * time.Millisecond)
	if got := b.memoryNotices(); len(got) > 0 {
		t.Errorf("told of a little: %v", got)
	}
	b.holds(9 * engine.GiB)
	for len(b.memoryNotices()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if got := b.memoryNotices(); got[0] != "holds 9GiB of GPU memory, more than the 8GiB it asked for: its neighbours may run out" {
		t.Errorf("told %q", got)
	}
	b.boot.Add(int64(time.Hour / 4))
	time.Sleep(100 * time.Millisecond)
	if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State != engine.Running || len(b.memoryNotices()) != 1 || !strings.Contains(story(d.Events), "over-share") {
		t.Errorf("with warn alone: %s, %v, %v", d.State, b.memoryNotices(), err)
	}
}

func TestWhoGoesOnIsStopped(t *testing.T) {
	b := newBox(t, 1, func(b *box) { b.policy.Guard = GuardStop })
	id := b.share(8 * engine.GiB)
	b.holds(9 * engine.GiB)
	for len(b.memoryNotices()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	// Who gives it back in time is left in peace, and begins anew.
	b.boot.Add(int64(50 * time.Second))
	b.holds(7 * engine.GiB)
	time.Sleep(100 * time.Millisecond)
	b.boot.Add(int64(50 * time.Second))
	b.holds(9 * engine.GiB)
	time.Sleep(100 * time.Millisecond)
	if d, err := b.d.Show(t.Context(), b.caller(), id); err != nil || d.State != engine.Running {
		t.Errorf("within its time: %s, %v", d.State, err)
	}
	b.boot.Add(int64(61 * time.Second))
	j := b.untilState(id, engine.Failed)
	if !strings.Contains(j.Message, "held 9GiB of GPU memory, more than the 8GiB it asked for; ask for more with --gpu-mem") || j.StopReason != engine.StopMemory {
		t.Errorf("%s: %s", j.StopReason, j.Message)
	}
}

func TestWholeCardsAreNotGuarded(t *testing.T) {
	b := newBox(t, 1, func(b *box) { b.policy.Guard, b.policy.GuardGrace = GuardStop, 0 })
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.holds(41 * engine.GiB)
	time.Sleep(200 * time.Millisecond)
	if d, err := b.d.Show(t.Context(), api.Caller{User: me()}, id); err != nil || d.State != engine.Running || len(b.memoryNotices()) > 0 {
		t.Errorf("%s, %v, %v", d.State, b.memoryNotices(), err)
	}
}
