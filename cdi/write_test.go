package cdi

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// recorder notes the steps, and fails at one of them.
func recorder(steps *[]string, failAt string, failure error) fileOps {
	note := func(step string) error {
		*steps = append(*steps, step)
		if step == failAt {
			return failure
		}
		return nil
	}
	return fileOps{
		write: func(f *os.File, data []byte) error {
			if err := note("write"); err != nil {
				f.Write(data[:len(data)/2]) // as a full disk does
				return err
			}
			return realOps.write(f, data)
		},
		setACL: func(f *os.File, acl []byte) error { return errors.Join(note("acl"), realOps.setACL(f, acl)) },
		sync: func(f *os.File) error {
			st, err := f.Stat()
			if err != nil {
				return err
			}
			if st.IsDir() {
				return errors.Join(note("sync directory"), f.Sync())
			}
			return errors.Join(note("sync file"), f.Sync())
		},
		rename: func(dir *os.File, from, to string) error {
			if err := note("rename"); err != nil {
				return err
			}
			return realOps.rename(dir, from, to)
		},
	}
}

var publishSteps = []string{"write", "acl", "sync file", "rename", "sync directory"}

func TestPublishOrder(t *testing.T) {
	var steps []string
	if _, err := recorder(&steps, "", nil).writeLease(specDir(t), exampleLease(someone)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(steps, publishSteps) {
		t.Errorf("steps %q, want %q", steps, publishSteps)
	}
}

// Whichever step fails, no temporary stays, and the file is the old one or the new one, whole.
func TestPublishFailure(t *testing.T) {
	for i, step := range publishSteps {
		t.Run(step, func(t *testing.T) {
			dir := specDir(t)
			old := exampleLease(someone)
			old.Edits = Edits{Env: []string{"OLD=1"}}
			write(t, dir, old)
			before, _ := os.ReadFile(filepath.Join(dir, leaseFile(old.Name)))

			var steps []string
			_, err := recorder(&steps, step, unix.ENOSPC).writeLease(dir, exampleLease(someone))
			if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), leaseFile(old.Name)) {
				t.Errorf("error %v, want one that names the file and wraps ENOSPC", err)
			}
			if !reflect.DeepEqual(steps, publishSteps[:i+1]) {
				t.Errorf("steps %q, want %q", steps, publishSteps[:i+1])
			}
			left, _ := os.ReadDir(dir)
			if len(left) != 1 || left[0].Name() != leaseFile(old.Name) {
				t.Errorf("left in the directory: %v", left)
			}
			after, _ := os.ReadFile(filepath.Join(dir, leaseFile(old.Name)))
			if renamed := step == "sync directory"; (string(after) == string(before)) == renamed {
				t.Errorf("after a failed %s the file holds %s", step, after)
			}
		})
	}
}

func TestNoACLs(t *testing.T) {
	ops := realOps
	ops.setACL = func(*os.File, []byte) error { return unix.EOPNOTSUPP }
	dir := specDir(t)
	_, err := ops.writeLease(dir, exampleLease(someone))
	if err == nil || !strings.Contains(err.Error(), "no POSIX ACLs") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	if _, err := ops.writeLease(dir, exampleLease(uint32(os.Geteuid()))); err != nil {
		t.Errorf("a lease of the file's owner needs no ACL: %v", err)
	}
}

func TestUntrustedDirectory(t *testing.T) {
	good := specDir(t)
	link := filepath.Join(specDir(t), "link")
	if err := os.Symlink(good, link); err != nil {
		t.Fatal(err)
	}
	groupWritable, worldWritable := specDir(t), specDir(t)
	os.Chmod(groupWritable, 0o775)
	os.Chmod(worldWritable, 0o777|os.ModeSticky)
	file := filepath.Join(specDir(t), "file")
	os.WriteFile(file, nil, 0o644)

	cases := map[string]struct{ dir, says string }{
		"link":                  {link, "is a link"},
		"link with a slash":     {link + "/", "is a link"},
		"file":                  {file, "no directory"},
		"writable to a group":   {groupWritable, "others may write"},
		"writable to everybody": {worldWritable, "others may write"},
	}
	if os.Geteuid() == 0 {
		foreign := specDir(t)
		if err := os.Chown(foreign, someone, someone); err != nil {
			t.Fatal(err)
		}
		cases["somebody else's"] = struct{ dir, says string }{foreign, "belongs to uid 40000"}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, writeErr := WriteLease(c.dir, exampleLease(0))
			_, listErr := ListLeases(c.dir)
			_, simErr := WriteSimulated(c.dir, "inst", []SimulatedDevice{{Name: "a", HostPath: "/a", ContainerPath: "/b"}})
			for what, err := range map[string]error{"write": writeErr, "remove": RemoveLease(c.dir, "a"), "list": listErr, "simulated": simErr, "sweep": Sweep(c.dir)} {
				if err == nil || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: error %v, want %q", what, err, c.says)
				}
			}
			if left, _ := os.ReadDir(good); len(left) != 0 {
				t.Errorf("wrote through the link: %v", left)
			}
		})
	}
}

// A link in place of the lease itself is replaced, never followed.
func TestLinkInDirectory(t *testing.T) {
	dir := specDir(t)
	target := filepath.Join(specDir(t), "shadow")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := exampleLease(0)
	path := filepath.Join(dir, leaseFile(l.Name))
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	write(t, dir, l)
	if data, _ := os.ReadFile(target); string(data) != "precious" {
		t.Errorf("wrote through the link: %s", data)
	}
	if st, err := os.Lstat(path); err != nil || st.Mode()&fs.ModeSymlink != 0 {
		t.Errorf("the link is still there: %v %v", st, err)
	}
}

func TestSweep(t *testing.T) {
	dir := specDir(t)
	for _, n := range []string{".gputop-lease-a.json.XYZ.tmp", ".other.tmp", "gputop-lease-a.json", "spec.1.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(dir); err != nil {
		t.Fatal(err)
	}
	var left []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{".other.tmp", "gputop-lease-a.json", "spec.1.tmp"}; !reflect.DeepEqual(left, want) {
		t.Errorf("left %q, want %q", left, want)
	}
}
