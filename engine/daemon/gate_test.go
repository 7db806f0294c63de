package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gputop/cdi"
	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// gateBox is a box whose only card is a file, with a gate.
func gateBox(t *testing.T, mode gate.Mode) (*box, gate.Node) {
	t.Helper()
	dir := t.TempDir()
	n := gate.SimulatedCard(filepath.Join(dir, "card"))
	if err := os.WriteFile(n.Path, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(n.Path, 0o666); err != nil { // whatever the umask
		t.Fatal(err)
	}
	b := newBoxWith(t, 1, func(o *Options) {
		o.StateDir, o.Policy.Gate = dir, mode
		o.Devices = []cdi.SimulatedDevice{{Name: cardName(0), HostPath: n.Path, ContainerPath: "/dev/nvidia0"}}
	})
	return b, n
}

// open waits until a node is closed but to uids.
func (b *box) open(n gate.Node, uids ...uint32) {
	b.t.Helper()
	eventually(b.t, fmt.Sprintf("closed but to %v", uids), func() bool {
		b.boot.Add(int64(gateLook))
		c, err := gate.Look(n, uids)
		return err == nil && c == nil
	})
}

// eventually polls what has no event to wait for.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !f(); sleep(t.Context(), 10*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestGateFollowsGrants(t *testing.T) {
	b, n := gateBox(t, gate.Enforce)
	b.open(n)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	is := func(when string, uids ...uint32) {
		t.Helper()
		if c, err := gate.Look(n, uids); err != nil || c != nil {
			t.Errorf("%s: %+v, %v", when, c, err)
		}
	}
	is("running", me().UID)
	b.stop()
	is("without a daemon", me().UID)
	if err := os.Chmod(n.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.until(id, "adopted", func(j api.Job) bool { return j.State == engine.Running })
	b.open(n, me().UID)
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
	b.until(id, "released", func(api.Job) bool { return len(b.d.snapshotForTest(t).Held) == 0 })
	is("released")
	p := DefaultPolicy()
	p.Gate = gate.Warn
	b.d.SetPolicy(p)
	eventually(t, "given back", func() bool {
		fi, err := os.Stat(n.Path)
		return err == nil && fi.Mode().Perm() == 0o666
	})
}

// A card that cannot be opened to a job's owner starts nothing, and that is no fault of the job's.
func TestGateThatDoesNotOpen(t *testing.T) {
	b, n := gateBox(t, gate.Enforce)
	b.open(n)
	if err := os.Rename(n.Path, n.Path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(n.Path+".away", n.Path); err != nil {
		t.Fatal(err)
	}
	id := b.submit(spec(engine.Medium, "run"))
	j := b.until(id, "put back", func(j api.Job) bool { return j.State == engine.Pending && j.Attempt == 1 })
	if !strings.Contains(j.Message, "the device gate cannot open GPU-a") || !strings.Contains(j.Message, "left alone") {
		t.Errorf("message %q", j.Message)
	}
	if got := b.agent.started(b.container(id, 1)); got != 0 {
		t.Errorf("started %d times", got)
	}
	if err := os.Rename(n.Path+".away", n.Path); err != nil {
		t.Fatal(err)
	}
	b.untilState(id, engine.Running)
	if c, err := gate.Look(n, []uint32{me().UID}); err != nil || c != nil {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestOutsideIsCounted(t *testing.T) {
	const stranger1, stranger2 = 7001, 7002
	b, _ := gateBox(t, gate.Warn)
	process := func(pid int, uid uint32, mem engine.Bytes) stranger {
		return stranger{engine.DeviceID(cardName(0)), 0, engine.GPUProcess{PID: pid, Start: 5, UID: uid, Memory: &mem}}
	}
	var got []api.OutsideUse
	// In one turn of the loop, so that no other sample comes between.
	err := b.d.do(t.Context(), func() {
		step := func(list ...stranger) { b.boot.Add(int64(2 * time.Second)); b.d.countOutside(list) }
		step()
		step(process(10, stranger1, engine.GiB))
		step(process(10, stranger1, 2*engine.GiB), process(11, stranger1, 3*engine.GiB), process(12, stranger2, engine.GiB), process(13, 0, engine.GiB))
		b.boot.Add(int64(time.Hour)) // in which nobody looked
		step(process(10, stranger1, engine.GiB), process(11, stranger1, engine.GiB))
		step(process(10, stranger1, engine.GiB))
		got = b.d.outsideView()
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i].Last, got[i].User = time.Time{}, ""
	}
	card := engine.DeviceID(cardName(0))
	want := []api.OutsideUse{
		{UID: stranger1, Device: card, Processes: 2, Now: 1, Memory: engine.GiB, Peak: 5 * engine.GiB, For: 2*time.Second + staleAfter + 2*time.Second},
		{UID: 0, Device: card, Processes: 1, Peak: engine.GiB},
		{UID: stranger2, Device: card, Processes: 1, Peak: engine.GiB},
	}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("got  %+v\nwant %+v", got[i], want[i])
		}
	}
	// Told once for each process, and not of root's.
	eventually(t, "each is told once", func() bool {
		list, err := b.store.Audit(t.Context(), store.AuditQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		told := map[int]int{}
		for _, e := range list {
			if e.Action == actionOutside {
				told[e.PID]++
			}
		}
		return len(told) == 3 && told[10] == 1 && told[11] == 1 && told[12] == 1
	})
	// And the user of the two reads of them, over a restart of the daemon too.
	who := api.Caller{User: engine.User{UID: stranger1, Name: fmt.Sprint(stranger1)}}
	for range 2 {
		n, err := b.d.Notices(t.Context(), who, 10)
		if err != nil || len(n.Notices) != 2 || n.Notices[0].Kind != engine.NoticeOutside || !strings.Contains(n.Notices[0].Sentence(), "your process 1") {
			t.Fatalf("the user reads %+v, %v", n, err)
		}
		if err := b.d.do(t.Context(), func() { b.d.outsideUse(process(10, stranger1, engine.GiB)) }); err != nil {
			t.Fatal(err)
		}
	}
}
