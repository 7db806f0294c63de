package cdi

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/charmbracelet/x/exp/golden"
	"golang.org/x/sys/unix"

	"gputop/cdi/posixacl"
	"pgregory.net/rapid"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
)

// someone is a uid that is neither the test's nor root's.
const someone = 40000

// mustBeRoot is set by the build tag e2e.
var mustBeRoot bool

func specDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func exampleLease(uid uint32) Lease {
	return Lease{Name: "a1b2-42-1", OwnerUID: uid, Edits: Edits{
		Env: []string{"GPUTOP_JOB_ID=42", "GPUTOP_GPU_MEMORY_BYTES=1073741824"},
		Mounts: []Mount{
			{HostPath: "/usr/share/gputop/sitecustomize", ContainerPath: "/opt/gputop", ReadOnly: true},
			{HostPath: "/run/gputop/sim/0", ContainerPath: "/dev/nvidia0"},
		},
		DeviceNodes: []string{"/dev/null"},
	}}
}

func write(t *testing.T, dir string, l Lease) string {
	t.Helper()
	q, err := WriteLease(dir, l)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func TestLeaseFile(t *testing.T) {
	dir := filepath.Join(specDir(t), "made", "cdi")
	if q := write(t, dir, exampleLease(uint32(os.Geteuid()))); q != "gputop/lease=a1b2-42-1" {
		t.Errorf("qualified name %q", q)
	}
	path := filepath.Join(dir, "gputop-lease-a1b2-42-1.json")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden.RequireEqual(t, data)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if st.Mode() != 0o600 {
		t.Errorf("mode %v, want 0600: the owner of the file needs no ACL", st.Mode())
	}
	if st, _ := os.Stat(dir); st.Mode().Perm() != 0o755 {
		t.Errorf("directory made with mode %v, want 0755", st.Mode())
	}
}

func TestLeaseMadeDirectoryDefiesUmask(t *testing.T) {
	dir := filepath.Join(specDir(t), "cdi")
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	write(t, dir, exampleLease(someone))
	if st, _ := os.Stat(dir); st.Mode().Perm() != 0o755 {
		t.Errorf("directory made with mode %v, want 0755", st.Mode())
	}
}

func TestLeaseACL(t *testing.T) {
	dir := specDir(t)
	write(t, dir, exampleLease(someone))
	path := filepath.Join(dir, leaseFile("a1b2-42-1"))

	buf := make([]byte, 1024)
	n, err := unix.Getxattr(path, posixacl.Xattr, buf)
	if err != nil {
		t.Fatal(err)
	}
	got, err := posixacl.Parse(buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	entry := func(tag, perm uint16, id uint32) posixacl.Entry {
		return posixacl.Entry{Tag: tag, Perm: perm, ID: id}
	}
	want := []posixacl.Entry{entry(posixacl.UserObj, 6, posixacl.NoID), entry(posixacl.User, 4, someone),
		entry(posixacl.GroupObj, 0, posixacl.NoID), entry(posixacl.Mask, 4, posixacl.NoID), entry(posixacl.Other, 0, posixacl.NoID)}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("ACL %v, want %v", got, want)
	}

	// What another program makes of it.
	out, err := exec.Command("getfacl", "--numeric", "--omit-header", "--absolute-names", path).CombinedOutput()
	if err != nil {
		t.Fatalf("getfacl (package acl): %v: %s", err, out)
	}
	if got, want := strings.Fields(string(out)), "user::rw- user:40000:r-- group::--- mask::r-- other::---"; strings.Join(got, " ") != want {
		t.Errorf("getfacl says %q, want %q", got, want)
	}
}

// Two users of one primary group: the owner of the lease can open it, the other cannot. As nobody but root, a test can
// only show that the caller can.
func TestLeaseTwoUsers(t *testing.T) {
	dir := specDir(t)
	if os.Geteuid() != 0 {
		if mustBeRoot {
			t.Fatal("this test needs root to become two users")
		}
		write(t, dir, exampleLease(uint32(os.Geteuid())))
		if _, err := os.ReadFile(filepath.Join(dir, leaseFile("a1b2-42-1"))); err != nil {
			t.Error(err)
		}
		return
	}
	write(t, dir, exampleLease(someone))
	open := func(uid uint32) error {
		cmd := exec.Command("cat", filepath.Join(dir, leaseFile("a1b2-42-1")))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: someone, Groups: []uint32{someone}}}
		return cmd.Run()
	}
	if err := open(someone); err != nil {
		t.Errorf("the owner cannot read the lease: %v", err)
	}
	if err := open(someone + 1); err == nil {
		t.Error("another user of the same group can read the lease")
	}
	f := Finder{Dirs: []string{dir}, Groups: func(uint32) ([]uint32, error) { return []uint32{someone}, nil }}
	mine := exampleLease(someone)
	mine.Edits = Edits{Env: []string{"A=1"}}
	name := write(t, dir, mine)
	if p := f.Check(someone, name); len(p) != 0 {
		t.Errorf("Check for the owner: %v", p)
	}
	if p := f.Check(someone+1, name); len(p) != 1 || p[0].Code != CodeUnreadable {
		t.Errorf("Check for another user: %v, want one %q", p, CodeUnreadable)
	}
}

func TestRemoveAndListLeases(t *testing.T) {
	dir := specDir(t)
	for _, n := range []string{"b", "a", "x:1.2_3-4"} {
		l := exampleLease(0)
		l.Name = n
		write(t, dir, l)
	}
	for _, stranger := range []string{"nvidia.yaml", "gputop-simulated.json", "gputop-lease-.json", "gputop-lease-a b.json", ".gputop-lease-z.json.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, stranger), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := func() []string {
		names, err := ListLeases(dir)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if got, want := list(), []string{"a", "b", "x:1.2_3-4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("leases %q, want %q", got, want)
	}
	for range 2 { // the second finds nothing, which is fine
		if err := RemoveLease(dir, "a"); err != nil {
			t.Error(err)
		}
	}
	if got, want := list(), []string{"b", "x:1.2_3-4"}; !reflect.DeepEqual(got, want) {
		t.Errorf("leases %q, want %q", got, want)
	}

	missing := filepath.Join(dir, "none")
	if names, err := ListLeases(missing); names != nil || err != nil {
		t.Errorf("a missing directory: %v, %v", names, err)
	}
	if err := errors.Join(RemoveLease(missing, "a"), Sweep(missing)); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
}

func TestHostileNames(t *testing.T) {
	for _, name := range []string{"", "../x", "a/b", ".", "..", "-a", "a-", "a\n", "a\nb", "a\x00b", "a b", "ä", "a\x1b[31m", strings.Repeat("a", 300), strings.Repeat("a", maxName+1)} {
		dir := specDir(t)
		l := exampleLease(0)
		l.Name = name
		_, err := WriteLease(dir, l)
		if err == nil || len(err.Error()) > 400 || strings.ContainsAny(err.Error(), "\n\x1b\x00") {
			t.Errorf("write %q: error %q", name, err)
		}
		if err := RemoveLease(dir, name); err == nil {
			t.Errorf("remove %q: no error", name)
		}
		if _, err := WriteSimulated(dir, "inst", []SimulatedDevice{{Name: name, HostPath: "/h", ContainerPath: "/c"}}); err == nil {
			t.Errorf("simulated %q: no error", name)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%q left %v", name, left)
		}
	}
	l := exampleLease(0)
	l.Name = strings.Repeat("a", maxName)
	write(t, specDir(t), l)
}

func TestBadEdits(t *testing.T) {
	for name, e := range map[string]Edits{
		"nothing":         {},
		"hooks":           {Env: []string{"A=1"}, Hooks: 1},
		"env without =":   {Env: []string{"A"}},
		"env without key": {Env: []string{"=1"}},
		"env newline":     {Env: []string{"A=1\nB=2"}},
		"env not UTF-8":   {Env: []string{"A=\xff"}},
		"relative mount":  {Mounts: []Mount{{HostPath: "a", ContainerPath: "/a"}}},
		"mount with ..":   {Mounts: []Mount{{HostPath: "/a/../b", ContainerPath: "/a"}}},
		"mount to ''":     {Mounts: []Mount{{HostPath: "/a"}}},
		"node with ESC":   {DeviceNodes: []string{"/dev/\x1b"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := specDir(t)
			if _, err := WriteLease(dir, Lease{Name: "a", Edits: e}); err == nil {
				t.Error("no error")
			}
			if left, _ := os.ReadDir(dir); len(left) != 0 {
				t.Errorf("left %v", left)
			}
		})
	}
}

func TestMountOptions(t *testing.T) {
	for _, c := range []struct {
		readOnly, noexec bool
		want             string
	}{
		{false, false, "bind rw"}, {false, true, "bind rw"}, {true, false, "bind ro nosuid nodev"}, {true, true, "bind ro nosuid nodev noexec"},
	} {
		if got := strings.Join(mountOptions(Mount{ReadOnly: c.readOnly}, c.noexec), " "); got != c.want {
			t.Errorf("%+v: options %q", c, got)
		}
	}
}

// A written lease says the same to the library that Podman uses.
func TestLeaseRoundTrip(t *testing.T) {
	dir := specDir(t)
	letter := rapid.Rune().Filter(func(r rune) bool { return checkText(string(r)) == nil })
	part := rapid.StringOfN(letter, 1, 12, -1).Filter(func(s string) bool { return s != "." && s != ".." && !strings.Contains(s, "/") })
	path := rapid.Map(rapid.SliceOfN(part, 1, 4), func(parts []string) string { return "/" + strings.Join(parts, "/") })
	rapid.Check(t, func(t *rapid.T) {
		l := Lease{Name: rapid.StringMatching(`[0-9A-Za-z]([0-9A-Za-z_.:-]{0,20}[0-9A-Za-z])?`).Draw(t, "name"), OwnerUID: uint32(os.Geteuid())}
		for range rapid.IntRange(0, 3).Draw(t, "env") {
			l.Edits.Env = append(l.Edits.Env, rapid.StringMatching(`[A-Z_]{1,5}`).Draw(t, "key")+"="+rapid.StringOf(letter).Draw(t, "value"))
		}
		for range rapid.IntRange(0, 3).Draw(t, "mounts") {
			l.Edits.Mounts = append(l.Edits.Mounts, Mount{path.Draw(t, "host"), path.Draw(t, "container"), rapid.Bool().Draw(t, "ro")})
		}
		for range rapid.IntRange(0, 2).Draw(t, "nodes") {
			l.Edits.DeviceNodes = append(l.Edits.DeviceNodes, path.Draw(t, "node"))
		}
		if l.Edits.empty() {
			l.Edits.Env = []string{"A="}
		}
		if _, err := WriteLease(dir, l); err != nil {
			t.Fatal(err)
		}
		spec, err := library.ReadSpec(filepath.Join(dir, leaseFile(l.Name)), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := fromSpec(&spec.GetDevice(l.Name).ContainerEdits); !sameEdits(got, l.Edits) {
			t.Fatalf("read back %+v, want %+v", got, l.Edits)
		}
	})
}
