package store

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// networkFS are the file systems on which SQLite's locks or its shared memory don't hold, by the magic number of
// statfs(2). Cluster file systems on a shared disk are among them.
var networkFS = map[uint32]string{
	0x6969: "NFS", 0x517B: "SMB", 0xFE534D42: "SMB", 0xFF534D42: "CIFS", 0x01021997: "9p", 0x0BD00BD0: "Lustre",
	0x47504653: "GPFS", 0x00C36400: "Ceph", 0x5346414F: "AFS", 0x6B414653: "AFS", 0x73757245: "Coda", 0x564C: "NCP",
	0x19830326: "BeeGFS", 0xAAD7AAEA: "PanFS", 0x20030528: "OrangeFS", 0x01161970: "GFS2", 0x7461636F: "OCFS2",
	0x786F4256: "vboxsf",
}

// magicFUSE says only that a program serves the file system; its type tells whether that program is a remote one.
const magicFUSE = 0x65735546

// localFUSE are the FUSE types known to lie on a local disk. Any other (sshfs, GlusterFS, s3fs …) is refused.
var localFUSE = map[string]bool{"fuseblk": true, "fuse.fuse-overlayfs": true}

func statfsMagic(path string) (uint32, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return uint32(st.Type), nil
}

// mountType is the type of the file system that holds path, for example "fuse.sshfs", from the mount table.
func mountType(path string) (string, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return "", err
	}
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	device := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		mount, rest, _ := strings.Cut(lines.Text(), " - ")
		if f := strings.Fields(mount); len(f) > 2 && f[2] == device {
			kind, _, _ := strings.Cut(rest, " ")
			return kind, nil
		}
	}
	return "", errors.Join(lines.Err(), fmt.Errorf("no mount of device %s", device))
}

// refuseNetworkFS looks at dir, or at what will hold it while it does not exist.
func refuseNetworkFS(dir string, o Options) error {
	at := dir
	for {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	magic, err := o.magic(at)
	if err != nil {
		return fmt.Errorf("state directory %s: which file system it is on: %w", dir, explain(err))
	}
	name := networkFS[magic]
	if magic == magicFUSE {
		kind, err := o.mountType(at)
		if err != nil {
			kind = "FUSE of unknown type" // not knowing is no reason to trust it
		}
		if !localFUSE[kind] {
			name = kind
		}
	}
	if name == "" {
		return nil
	}
	return fmt.Errorf("state directory %s: %w (%s), where the database's locks don't hold; "+
		"set the state directory to a local disk, for example with XDG_STATE_HOME or --state-dir", dir, ErrNetworkFS, name)
}

// ownedDir is a state directory that this process holds. The lock owns it; the file with the pid only informs.
type ownedDir struct {
	path string
	lock *os.File
	pid  bool // the pid file is ours
}

const (
	// endingPatience is how long a daemon may take from removing its pid to its end, endingLook the time between two looks.
	endingPatience = 3 * time.Second
	endingLook     = 20 * time.Millisecond
)

// takeDir makes the directory if needed and locks it.
func takeDir(dir string, o Options) (*ownedDir, error) {
	if err := refuseNetworkFS(dir, o); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, explain(err))
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory %s: %w", dir, explain(err))
	}
	for began := time.Now(); ; time.Sleep(endingLook) {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &ownedDir{path: dir, lock: lock}, nil
		}
		// Without its pid the holder is about to end, or has just begun.
		if _, serr := os.Stat(filepath.Join(dir, "pid")); serr == nil || !errors.Is(err, unix.EWOULDBLOCK) || time.Since(began) > endingPatience {
			break
		}
	}
	lock.Close()
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("state directory %s: lock it: %w", dir, err)
	}
	holder := "its pid is not known"
	if b, err := os.ReadFile(filepath.Join(dir, "pid")); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			holder = fmt.Sprintf("pid %d", pid)
		}
	}
	return nil, fmt.Errorf("state directory %s: %w (%s); use that daemon, or stop it first", dir, ErrLocked, holder)
}

func makeDir(dir string) error {
	if fi, err := os.Stat(dir); err == nil && fi.IsDir() {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syncPath(filepath.Dir(dir))
}

func (d *ownedDir) writePID() error {
	path := filepath.Join(d.path, "pid")
	err := os.WriteFile(path+".tmp", fmt.Appendln(nil, os.Getpid()), 0o600)
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return explain(err)
	}
	d.pid = true
	return nil
}

func (d *ownedDir) release() error {
	var err error
	if d.pid {
		if err = os.Remove(filepath.Join(d.path, "pid")); errors.Is(err, os.ErrNotExist) {
			err = nil // it only informs
		}
	}
	return errors.Join(err, d.lock.Close())
}

// createFile makes an empty file that only the owner can read, so that SQLite gives its side files the same mode.
func createFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return explain(err)
	}
	if err := f.Close(); err != nil {
		return explain(err)
	}
	return syncPath(filepath.Dir(path))
}

// syncPath makes a file's bytes, or a directory's entries, survive a power cut.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return explain(err)
	}
	return explain(errors.Join(f.Sync(), f.Close()))
}
