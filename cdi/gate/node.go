package gate

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"gputop/cdi/posixacl"
)

// cardMajor is the device number under which NVIDIA's driver has its cards, and maxMinor the last one of a card: 255 is
// /dev/nvidiactl (Documentation/admin-guide/devices.txt of Linux, NVIDIA's nvidia-modprobe).
const (
	cardMajor = 195
	maxMinor  = 253
)

// attributes are what decides who may open a node.
type attributes struct {
	UID  uint32 `json:"uid"`
	GID  uint32 `json:"gid"`
	Mode uint32 `json:"mode"` // the permission bits; with an ACL its mask stands for the group
	// ACL is the access ACL as the kernel gives it; nil for none.
	ACL []byte `json:"acl,omitempty"`
}

func (a attributes) equal(b attributes) bool {
	return a.UID == b.UID && a.GID == b.GID && a.Mode == b.Mode && bytes.Equal(a.ACL, b.ACL)
}

// users are who is let through, of a node that is closed as this package closes one.
func (a attributes) users() (uids []uint32, ours bool) {
	entries, err := posixacl.Parse(a.ACL)
	if err != nil {
		return nil, false
	}
	for _, e := range entries {
		if e.Tag == posixacl.User {
			uids = append(uids, e.ID)
		}
	}
	return uids, a.equal(closed(uids))
}

func (a attributes) ours() bool {
	_, ok := a.users()
	return ok
}

func (a attributes) String() string {
	s := fmt.Sprintf("mode %04o, owner %d, group %d", a.Mode, a.UID, a.GID)
	if a.ACL != nil {
		s += ", with an ACL"
	}
	return s
}

// handle is a node that is held by its inode, so that what was looked at is what is changed.
type handle struct {
	node Node
	fd   int
	ino  uint64
}

func (h *handle) close() { unix.Close(h.fd) } // opened for its name alone: nothing can be lost

// self is the handle as a path, for calls that know only paths.
func (h *handle) self() string { return fmt.Sprintf("/proc/self/fd/%d", h.fd) }

// look opens a node without opening the device, and makes sure that it is a card's: a character device of NVIDIA's with
// the card's number, or for a SIMULATED card a regular file, in a directory that nobody else may change.
func look(n Node) (*handle, attributes, error) {
	fail := func(err error) (*handle, attributes, error) {
		return nil, attributes{}, fmt.Errorf("device node %s: %w", n.Path, err)
	}
	dir, err := openDir(filepath.Dir(n.Path))
	if err != nil {
		return fail(err)
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, filepath.Base(n.Path), unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	h := &handle{node: n, fd: fd}
	a, err := h.get()
	if err != nil {
		h.close()
		return fail(err)
	}
	return h, a, nil
}

// openDir opens the directory of a node; root's name for it may be a link, and who may write to what it names counts.
func openDir(dir string) (int, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Uid != 0 && st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0) {
		err = fmt.Errorf("%w: others may write to %s", ErrNotCard, dir)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func (h *handle) get() (attributes, error) {
	var st unix.Stat_t
	if err := unix.Fstat(h.fd, &st); err != nil {
		return attributes{}, err
	}
	kind := st.Mode & unix.S_IFMT
	switch n := h.node; {
	case n.Minor < 0 && kind != unix.S_IFREG:
		return attributes{}, fmt.Errorf("%w: it is no regular file", ErrNotCard)
	case n.Minor >= 0 && (kind != unix.S_IFCHR || n.Minor > maxMinor || unix.Major(st.Rdev) != cardMajor || unix.Minor(st.Rdev) != uint32(n.Minor)):
		return attributes{}, fmt.Errorf("%w: it is not device %d:%d", ErrNotCard, cardMajor, n.Minor)
	}
	h.ino = st.Ino
	a := attributes{UID: st.Uid, GID: st.Gid, Mode: st.Mode & 0o7777}
	buf := make([]byte, 64<<10)
	n, err := unix.Getxattr(h.self(), posixacl.Xattr, buf)
	switch {
	case errors.Is(err, unix.ENODATA), errors.Is(err, unix.EOPNOTSUPP):
	case err != nil:
		return attributes{}, fmt.Errorf("read its ACL: %w", err)
	default:
		a.ACL = slices.Clone(buf[:n])
	}
	return a, nil
}

// set changes a node from what it is to what it shall be. While it is changed it belongs to root, who then needs no
// capability to change the rest.
func (h *handle) set(is, want attributes) error {
	own := attributes{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	var err error
	if is.UID != own.UID || is.GID != own.GID {
		err = unix.Fchownat(h.fd, "", int(own.UID), int(own.GID), unix.AT_EMPTY_PATH)
	}
	if err == nil {
		err = h.setACL(want)
	}
	if err != nil {
		if errors.Is(err, ErrNoACL) && (is.UID != own.UID || is.GID != own.GID) {
			_ = unix.Fchownat(h.fd, "", int(is.UID), int(is.GID), unix.AT_EMPTY_PATH) // the ACL's absence is what is told
		}
		return fmt.Errorf("device node %s: change who may open it: %w", h.node.Path, err)
	}
	if want.UID != own.UID || want.GID != own.GID {
		if err := unix.Fchownat(h.fd, "", int(want.UID), int(want.GID), unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("device node %s: give it back to its owner: %w", h.node.Path, err)
		}
	}
	return nil
}

// setACL sets ACL and mode; with an ACL the kernel makes the mode of it in the same step.
func (h *handle) setACL(want attributes) error {
	if want.ACL != nil {
		err := unix.Setxattr(h.self(), posixacl.Xattr, want.ACL, 0)
		if errors.Is(err, unix.EOPNOTSUPP) {
			return ErrNoACL
		}
		return err
	}
	err := unix.Removexattr(h.self(), posixacl.Xattr)
	if err != nil && !errors.Is(err, unix.ENODATA) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return os.Chmod(h.self(), fs.FileMode(want.Mode&0o777))
}
