// Package host reads facts about this Linux machine: its boot, clocks, size and processes, and takes the machine-wide
// lock of a device. It changes nothing but its own lock files.
package host

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"gputop/engine"
)

// BootID is the kernel's random id of this boot.
func BootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// Boottime is CLOCK_BOOTTIME in nanoseconds: nobody can set it, and it counts while the machine sleeps.
func Boottime() int64 {
	var ts unix.Timespec
	// It cannot fail on any Linux that runs Go.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts)
	return ts.Nano()
}

// CPUs is the number of processors.
func CPUs() engine.CPUs { return engine.CPUs(runtime.NumCPU()) }

// Memory is the machine's memory in bytes (MemTotal), 0 when unknown.
func Memory() engine.Bytes {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0
			}
			return engine.Bytes(kb) * engine.KiB
		}
	}
	return 0
}

// Free is the room an ordinary user has left on a directory's file system, in bytes.
func Free(dir string) (engine.Bytes, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("room in %s: %w", dir, err)
	}
	return engine.Bytes(st.Bavail) * engine.Bytes(st.Bsize), nil
}

// Process is a running process.
type Process struct {
	UID          uint32
	Start        uint64 // clock ticks since boot
	PIDNamespace uint64 // inode; 0 when it may not be read
}

// ReadProcess reads /proc/PID. ok is false when there is no such process, or when it is a zombie.
func ReadProcess(pid int) (p Process, ok bool) {
	if pid <= 0 {
		return p, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	fi, err := os.Stat(dir)
	if err != nil {
		return p, false
	}
	if st, is := fi.Sys().(*syscall.Stat_t); is {
		p.UID = st.Uid
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return p, false
	}
	// The command's name may hold spaces and brackets: fields are counted from the last one.
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return p, false
	}
	fields := strings.Fields(string(stat[i+1:]))
	const stateField, startField = 0, 19
	if len(fields) <= startField || fields[stateField] == "Z" || fields[stateField] == "X" {
		return p, false
	}
	if p.Start, err = strconv.ParseUint(fields[startField], 10, 64); err != nil {
		return p, false
	}
	if uid, ok := realUID(dir); ok {
		p.UID = uid
	}
	if ns, err := os.Stat(filepath.Join(dir, "ns", "pid")); err == nil {
		if st, is := ns.Sys().(*syscall.Stat_t); is {
			p.PIDNamespace = st.Ino
		}
	}
	return p, true
}

// realUID reads the real uid: the owner of /proc/PID is root for a process that may not be dumped.
func realUID(dir string) (uint32, bool) {
	n, ok := statusIDs(dir, "Uid:")
	if !ok || len(n) == 0 {
		return 0, false
	}
	return n[0], true
}

// Groups are a process's group and supplementary groups. ok is false when it is gone or may not be read.
func Groups(pid int) (groups []uint32, ok bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	own, ok := statusIDs(dir, "Gid:")
	if !ok || len(own) == 0 {
		return nil, false
	}
	more, ok := statusIDs(dir, "Groups:")
	return append(more, own[0]), ok
}

// statusIDs are the numbers of a line of /proc/PID/status.
func statusIDs(dir, key string) (ids []uint32, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return nil, false
	}
	for line := range strings.Lines(string(b)) {
		rest, found := strings.CutPrefix(line, key)
		if !found {
			continue
		}
		for _, f := range strings.Fields(rest) {
			n, err := strconv.ParseUint(f, 10, 32)
			if err != nil {
				return nil, false
			}
			ids = append(ids, uint32(n))
		}
		return ids, true
	}
	return nil, false
}

// ErrLocked is returned for a device that another daemon of this machine has given out.
var ErrLocked = errors.New("given out by another gputop of this machine")

// lockDir is writable by everyone on every Linux we support.
const lockDir = "/tmp"

// LockDevice takes the machine-wide lock of a device. It ends with the process, or with release.
func LockDevice(id engine.DeviceID) (release func(), err error) {
	if strings.ContainsAny(string(id), "/\x00") {
		return nil, fmt.Errorf("device %q: not a UUID", id)
	}
	path := filepath.Join(lockDir, "gputop-device-"+string(id)+".lock")
	// Reading is enough to lock, so that everybody can, whoever made the file; in a sticky directory it is opened
	// without O_CREAT first, since creating over somebody else's file is refused there.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, unix.EEXIST) {
			fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("lock of device %s: open %s: %w", id, path, err)
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("device %s: %w", id, ErrLocked)
		}
		return nil, fmt.Errorf("lock device %s: %w", id, err)
	}
	return func() { unix.Close(fd) }, nil
}
