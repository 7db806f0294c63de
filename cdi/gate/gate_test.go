package gate

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gputop/cdi/posixacl"
)

// Uids that need no account.
const (
	ann = 54321
	bea = 54322
)

// place is a gate with some nodes in a directory that everybody reaches.
type place struct {
	t    *testing.T
	dir  string
	gate *Gate
}

func newPlace(t *testing.T) *place {
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	return &place{t, dir, New(filepath.Join(dir, "gate.json"), "boot-1")}
}

func (p *place) file(name string, mode fs.FileMode) Node {
	p.t.Helper()
	n := SimulatedCard(filepath.Join(p.dir, name))
	if err := errors.Join(os.WriteFile(n.Path, []byte("x"), 0o600), os.Chmod(n.Path, mode)); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// card makes a character device as the driver does. It has no driver behind it.
func (p *place) card(minor int) Node {
	p.t.Helper()
	n := Node{Path: filepath.Join(p.dir, "card"), Minor: minor}
	if os.Geteuid() != 0 {
		p.t.Skip("device nodes are made by root")
	}
	if err := unix.Mknod(n.Path, unix.S_IFCHR|0o600, int(unix.Mkdev(cardMajor, uint32(minor)))); err != nil {
		p.t.Skipf("no device node can be made here: %v", err)
	}
	if err := os.Chmod(n.Path, 0o666); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *place) sync(grants map[Node][]uint32) Result {
	p.t.Helper()
	res, err := p.gate.Sync(grants)
	if err != nil {
		p.t.Fatal(err)
	}
	for n, err := range res.Failed {
		if errors.Is(err, ErrNoACL) {
			p.t.Skipf("%s: %v", n.Path, err)
		}
		p.t.Fatal(err)
	}
	return res
}

func (p *place) attributes(n Node) attributes {
	p.t.Helper()
	h, a, err := look(n)
	if err != nil {
		p.t.Fatal(err)
	}
	h.close()
	return a
}

// opens tries, as a process of that user, to open a node for reading and writing. Without a driver a device that may be
// opened answers ENXIO.
func (p *place) opens(n Node, uid uint32) bool {
	p.t.Helper()
	c := exec.Command("/bin/bash", "-c", `exec 3<>"$0"`, n.Path)
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := c.CombinedOutput()
	if err != nil && !strings.Contains(string(out), "Permission denied") && !strings.Contains(string(out), "No such device") {
		p.t.Fatalf("as %d: %v: %s", uid, err, out)
	}
	return !strings.Contains(string(out), "Permission denied")
}

func TestSync(t *testing.T) {
	p := newPlace(t)
	a, b := p.file("a", 0o666), p.file("b", 0o640)
	first := p.sync(map[Node][]uint32{a: {bea, ann, ann}, b: nil})
	want := []Change{{Node: a, Was: p.was(0o666), Opened: []uint32{ann, bea}}, {Node: b, Was: p.was(0o640)}}
	if !reflect.DeepEqual(first.Changes, want) {
		t.Errorf("first: %+v, want %+v", first.Changes, want)
	}
	for n, users := range map[Node][]uint32{a: {ann, bea}, b: nil} {
		at := p.attributes(n)
		if got, ours := at.users(); !ours || !slices.Equal(got, users) || at.Mode != 0o660 {
			t.Errorf("%s lets %v through (%s), want %v", n.Path, got, at, users)
		}
	}
	if again := p.sync(map[Node][]uint32{a: {ann, bea}, b: nil}); len(again.Changes) != 0 {
		t.Errorf("nothing to do, and it did %+v", again.Changes)
	}
	next := p.sync(map[Node][]uint32{a: {ann}, b: {bea}})
	if want := []Change{{Node: a, Closed: []uint32{bea}}, {Node: b, Opened: []uint32{bea}}}; !reflect.DeepEqual(next.Changes, want) {
		t.Errorf("next: %+v, want %+v", next.Changes, want)
	}
	if c, err := Look(a, []uint32{bea}); err != nil || c == nil || !slices.Equal(c.Closed, []uint32{ann}) || !slices.Equal(c.Opened, []uint32{bea}) {
		t.Errorf("look: %+v, %v", c, err)
	}
	if c, err := Look(a, []uint32{ann}); err != nil || c != nil {
		t.Errorf("look at what is right: %+v, %v", c, err)
	}
	// The driver sets the mode anew: closed again, and who had a grant keeps it.
	if err := os.Chmod(a.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	if again := p.sync(map[Node][]uint32{a: {ann}}); len(again.Changes) != 1 || again.Changes[0].Was == "" {
		t.Errorf("after chmod 0666: %+v", again.Changes)
	}
}

func (p *place) was(mode uint32) string {
	return attributes{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Mode: mode}.String()
}

// TestWhoGetsIn asks the kernel.
func TestWhoGetsIn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	p := newPlace(t)
	file, card := p.file("a", 0o666), p.card(7)
	p.sync(map[Node][]uint32{file: {ann}, card: {bea}})
	for _, c := range []struct {
		node Node
		uid  uint32
		want bool
	}{{file, ann, true}, {file, bea, false}, {card, ann, false}, {card, bea, true}} {
		if got := p.opens(c.node, c.uid); got != c.want {
			t.Errorf("%d opens %s: %v, want %v", c.uid, c.node.Path, got, c.want)
		}
	}
	p.sync(map[Node][]uint32{file: nil, card: nil})
	if p.opens(file, ann) || p.opens(card, bea) {
		t.Error("a node is open after its grant has ended")
	}
	if _, err := p.gate.Restore(); err != nil {
		t.Fatal(err)
	}
	if !p.opens(file, ann) || !p.opens(card, bea) {
		t.Error("a node is closed though it was given back")
	}
}

func TestRestoreGivesBackExactly(t *testing.T) {
	p := newPlace(t)
	a, b, c := p.file("a", 0o666), p.file("b", 0o640), p.file("c", 0o600)
	before := map[Node]attributes{}
	if err := unix.Setxattr(b.Path, posixacl.Xattr, posixacl.Only(posixacl.Read, ann, bea), 0); err != nil {
		t.Skip(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(c.Path, ann, bea); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range []Node{a, b, c} {
		before[n] = p.attributes(n)
	}
	grants := map[Node][]uint32{a: {ann}, b: {bea}, c: nil}
	p.sync(grants)
	p.gate = New(p.gate.record, "boot-1") // another daemon
	p.sync(grants)
	got, err := p.gate.Restore()
	if err != nil || !slices.Equal(got, []Node{a, b, c}) {
		t.Errorf("gave back %v, %v", got, err)
	}
	for n, want := range before {
		if now := p.attributes(n); !now.equal(want) {
			t.Errorf("%s is %s, was %s", n.Path, now, want)
		}
	}
	if _, err := os.Stat(p.gate.record); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the record is still there: %v", err)
	}
	if again, err := p.gate.Restore(); err != nil || len(again) != 0 {
		t.Errorf("a second time: %v, %v", again, err)
	}
}

// TestRecordLost: a node that is closed without a record of what it was goes back to what the driver makes.
func TestRecordLost(t *testing.T) {
	p := newPlace(t)
	n := p.file("a", 0o640)
	p.sync(map[Node][]uint32{n: {ann}})
	if err := os.Remove(p.gate.record); err != nil {
		t.Fatal(err)
	}
	p.sync(map[Node][]uint32{n: nil})
	if _, err := p.gate.Restore(); err != nil || !p.attributes(n).equal(byDriver()) {
		t.Errorf("%v, %s", err, p.attributes(n))
	}
}

// A node that was made anew has what it was as it was made, not as its predecessor was.
func TestMadeAnew(t *testing.T) {
	p := newPlace(t)
	n := p.file("a", 0o666)
	p.sync(map[Node][]uint32{n: nil})
	anew := func(mode fs.FileMode) {
		t.Helper()
		p.file("b", mode)
		if err := os.Rename(filepath.Join(p.dir, "b"), n.Path); err != nil {
			t.Fatal(err)
		}
	}
	anew(0o640)
	p.sync(map[Node][]uint32{n: nil})
	// After a restart of the machine a file that stays is still closed: what it was is known from before.
	p.gate = New(p.gate.record, "boot-2")
	p.sync(map[Node][]uint32{n: {ann}})
	if _, err := p.gate.Restore(); err != nil {
		t.Fatal(err)
	}
	if m := p.attributes(n).Mode; m != 0o640 {
		t.Errorf("mode %04o, want 0640", m)
	}
	p.sync(map[Node][]uint32{n: nil})
	anew(0o604)
	if got, err := p.gate.Restore(); err != nil || len(got) != 0 || p.attributes(n).Mode != 0o604 {
		t.Errorf("what was made anew was changed: %v, %v, %s", got, err, p.attributes(n))
	}
	// What is gone is not waited for.
	p.sync(map[Node][]uint32{n: nil})
	if err := os.Remove(n.Path); err != nil {
		t.Fatal(err)
	}
	if _, err := p.gate.Restore(); err != nil {
		t.Error(err)
	}
}

func TestLeftAlone(t *testing.T) {
	p := newPlace(t)
	good := p.file("good", 0o666)
	link := SimulatedCard(filepath.Join(p.dir, "link"))
	if err := os.Symlink(good.Path, link.Path); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(p.dir, "open")
	if err := errors.Join(os.Mkdir(open, 0o755), os.WriteFile(filepath.Join(open, "a"), nil, 0o600), os.Chmod(open, 0o777)); err != nil {
		t.Fatal(err)
	}
	grants := map[Node][]uint32{link: nil, SimulatedCard(filepath.Join(open, "a")): nil, {Path: good.Path, Minor: 0}: nil,
		SimulatedCard(p.dir + "/gone"): nil, {Path: "/dev/null", Minor: 3}: nil, SimulatedCard("/dev/null"): nil}
	res, err := p.gate.Sync(grants)
	if err != nil || len(res.Changes) != 0 || len(res.Failed) != len(grants) {
		t.Errorf("changed %+v, failed %v, %v", res.Changes, res.Failed, err)
	}
	for n, err := range res.Failed {
		if !errors.Is(err, ErrNotCard) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", n.Path, err)
		}
	}
	if m := p.attributes(good).Mode; m != 0o666 {
		t.Errorf("mode %04o", m)
	}
	if _, err := os.Stat(p.gate.record); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a record of nothing: %v", err)
	}
}

func TestWrongNumber(t *testing.T) {
	p := newPlace(t)
	n := p.card(7)
	n.Minor = 6
	if res, err := p.gate.Sync(map[Node][]uint32{n: nil}); err != nil || !errors.Is(res.Failed[n], ErrNotCard) {
		t.Errorf("%+v, %v", res, err)
	}
}

// Nothing is changed of which it is not on disk what it was.
func TestRecordFirst(t *testing.T) {
	p := newPlace(t)
	n := p.file("a", 0o666)
	p.gate = New(filepath.Join(p.dir, "missing", "gate.json"), "boot-1")
	if _, err := p.gate.Sync(map[Node][]uint32{n: nil}); err == nil || p.attributes(n).Mode != 0o666 {
		t.Errorf("%v, %s", err, p.attributes(n))
	}
	p.gate = New(filepath.Join(p.dir, "gate.json"), "boot-1")
	if err := os.WriteFile(p.gate.record, []byte(`{"version": 2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.gate.Sync(map[Node][]uint32{n: nil}); err == nil || p.attributes(n).Mode != 0o666 {
		t.Errorf("%v, %s", err, p.attributes(n))
	}
}

// A file system without ACLs: /proc has files of root's and none.
func TestNoACL(t *testing.T) {
	h, now, err := look(SimulatedCard("/proc/version"))
	if err != nil {
		t.Skip(err)
	}
	defer h.close()
	if err := h.set(now, closed(nil)); !errors.Is(err, ErrNoACL) {
		t.Skipf("no file system without ACLs here: %v", err)
	}
	if a, err := h.get(); err != nil || !a.equal(now) {
		t.Errorf("it is %s, %v; was %s", a, err, now)
	}
}
