package cdi

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gputop/cdi/posixacl"
)

// Our files, and the temporaries they are written through. Podman reads only *.json and *.yaml.
const (
	ourPrefix  = "gputop-"
	tempPrefix = "." + ourPrefix
	tempSuffix = ".tmp"
)

// fileOps are the steps of publishing a file whose order matters; tests record them and make them fail.
type fileOps struct {
	write  func(f *os.File, data []byte) error
	setACL func(f *os.File, acl []byte) error
	sync   func(f *os.File) error
	rename func(dir *os.File, from, to string) error
}

var realOps = fileOps{
	write:  func(f *os.File, data []byte) error { _, err := f.Write(data); return err },
	setACL: func(f *os.File, acl []byte) error { return unix.Fsetxattr(int(f.Fd()), posixacl.Xattr, acl, 0) },
	sync:   func(f *os.File) error { return f.Sync() },
	rename: func(dir *os.File, from, to string) error {
		return unix.Renameat(int(dir.Fd()), from, int(dir.Fd()), to)
	},
}

// openDir opens a directory of specs for changing. It must belong to root or the caller and be writable to nobody else:
// whoever can write there could hand hooks to root's own containers, or turn our writes elsewhere by a link.
func openDir(dir string) (*os.File, error) {
	dir = filepath.Clean(dir)
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("CDI directory %s: is a link or no directory; make it a real directory owned by root", dir)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open CDI directory", Path: dir, Err: err}
	}
	f := os.NewFile(uintptr(fd), dir)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, fmt.Errorf("stat CDI directory %s: %w", dir, err)
	}
	if me := uint32(os.Geteuid()); st.Uid != 0 && st.Uid != me {
		f.Close()
		return nil, fmt.Errorf("CDI directory %s: belongs to uid %d; it must belong to root or uid %d: chown root %s", dir, st.Uid, me, dir)
	}
	if st.Mode&0o022 != 0 {
		f.Close()
		return nil, fmt.Errorf("CDI directory %s: others may write to it (mode %04o), so its devices cannot be trusted: chmod go-w %s", dir, st.Mode&0o7777, dir)
	}
	return f, nil
}

// makeDir opens a directory of specs, and makes it first where it is missing: /var/run is empty after a boot.
func makeDir(dir string) (*os.File, error) {
	dir = filepath.Clean(dir)
	f, err := openDir(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("make CDI directory: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make CDI directory: %w", err)
	}
	if f, err = openDir(dir); err != nil {
		return nil, err
	}
	// A service's umask must not hide it from the users whose Podman reads it.
	if err := errors.Join(f.Chmod(0o755), syncDir(parent)); err != nil {
		f.Close()
		return nil, fmt.Errorf("make CDI directory %s: %w", dir, err)
	}
	return f, nil
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// publish puts a file into dir whole or not at all, also over a power cut: temporary, permissions, fsync, rename,
// fsync of the directory. An error from the last step leaves the new file in place.
func (o fileOps) publish(dir *os.File, name string, data []byte, mode os.FileMode, reader *uint32) (err error) {
	temp := tempPrefix + strings.TrimPrefix(name, ourPrefix) + "." + rand.Text()[:12] + tempSuffix
	fd, err := unix.Openat(int(dir.Fd()), temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(dir.Name(), name), err)
	}
	f := os.NewFile(uintptr(fd), temp)
	defer func() {
		if err != nil {
			f.Close()
			_ = unix.Unlinkat(int(dir.Fd()), temp, 0)
			err = fmt.Errorf("write %s: %w", filepath.Join(dir.Name(), name), err)
		}
	}()
	if err := o.write(f, data); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := o.allow(f, reader); err != nil {
		return err
	}
	if err := o.sync(f); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := o.rename(dir, temp, name); err != nil {
		return err
	}
	return o.sync(dir)
}

// allow lets one user read the file, and nobody else: a group would not do, labs share primary groups.
func (o fileOps) allow(f *os.File, reader *uint32) error {
	if reader == nil {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if st.Uid == *reader {
		return nil
	}
	err := o.setACL(f, posixacl.Only(posixacl.Read, *reader))
	if errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("this file system has no POSIX ACLs, so the file cannot be made readable for uid %d alone; "+
			"use a directory on tmpfs, ext4 or xfs: %w", *reader, err)
	}
	if err != nil {
		return fmt.Errorf("let uid %d read it: %w", *reader, err)
	}
	return nil
}

// Sweep removes temporaries that a writer killed half-way left behind. Call it once at start, before any write.
func Sweep(dir string) error {
	f, err := openDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list CDI directory %s: %w", dir, err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, tempPrefix) && strings.HasSuffix(n, tempSuffix) {
			if err := unix.Unlinkat(int(f.Fd()), n, 0); err != nil && !errors.Is(err, unix.ENOENT) {
				return fmt.Errorf("remove %s: %w", filepath.Join(dir, n), err)
			}
		}
	}
	return nil
}
