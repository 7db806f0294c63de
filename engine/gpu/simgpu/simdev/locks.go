package simdev

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"gputop/engine"
)

// The layout of the lock space, in file offsets (the file itself stays small). A process owns one slot k, picked at
// random: a lock at memoryBase + k*memoryStride whose length is the memory it holds in bytes, and one at smBase +
// k*smStride whose length is its share of the SMs in thousandths. Gaps between slots keep the kernel from merging
// locks, and the first byte of a memory slot is always locked while the slot is taken.
const (
	slots        = 1 << 16
	memoryBase   = int64(1) << 57
	memoryStride = int64(1) << 40
	smBase       = int64(1) << 60
	smStride     = int64(1) << 12
	// turnOffset is one byte that a process locks while it allocates, so that two never pass the capacity check at once.
	turnOffset = int64(1) << 56

	memoryEnd = memoryBase + slots*memoryStride
	smEnd     = smBase + slots*smStride
)

// maxLocks bounds one look at a file, against a process that takes thousands of tiny locks.
const maxLocks = 4096

// Holder is what one process holds on a device.
type Holder struct {
	// PID as this process's PID namespace numbers it; 0 for a process outside of it.
	PID int
	// Memory in bytes, its context included.
	Memory engine.Bytes
	// SM is the share of the device's SMs, 0 to 1.
	SM float64
}

// Holders lists the processes that hold something on the device, this process's own locks aside: the kernel never
// tells a process of those. f may be open for reading only.
func Holders(f *os.File) ([]Holder, error) {
	var out []Holder
	at := map[int]int{}
	holder := func(pid int) *Holder {
		i, ok := at[pid]
		if !ok {
			i = len(out)
			at[pid] = i
			out = append(out, Holder{PID: pid})
		}
		return &out[i]
	}
	budget := maxLocks
	err := walk(f, memoryBase, memoryEnd, &budget, func(l unix.Flock_t) {
		holder(int(max(l.Pid, 0))).Memory += engine.Bytes(l.Len)
	})
	if err == nil {
		err = walk(f, smBase, smEnd, &budget, func(l unix.Flock_t) {
			h := holder(int(max(l.Pid, 0)))
			h.SM = min(1, h.SM+float64(l.Len)/1000)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the locks of %s: %w", f.Name(), err)
	}
	return out, nil
}

// walk calls fn for every lock of other processes in [from, to). F_GETLK tells of one conflicting lock, not of the
// first, so the ranges on both sides of it are asked for in turn.
func walk(f *os.File, from, to int64, budget *int, fn func(unix.Flock_t)) error {
	todo := [][2]int64{{from, to}}
	for len(todo) > 0 {
		r := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if r[0] >= r[1] {
			continue
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: r[0], Len: r[1] - r[0]}
		if err := fcntl(f, unix.F_GETLK, &l); err != nil {
			return err
		}
		if l.Type == unix.F_UNLCK {
			continue
		}
		if *budget--; *budget < 0 {
			return errors.New("too many locks")
		}
		end := l.Start + l.Len
		if l.Len == 0 { // to the end of all offsets: no client of ours does that
			end = r[1]
			l.Len = end - l.Start
		}
		fn(l)
		todo = append(todo, [2]int64{end, r[1]}, [2]int64{r[0], l.Start})
	}
	return nil
}

func setLock(f *os.File, kind int16, start, length int64) error {
	return fcntl(f, unix.F_SETLK, &unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: start, Len: length})
}

func fcntl(f *os.File, cmd int, l *unix.Flock_t) error {
	for {
		err := unix.FcntlFlock(f.Fd(), cmd, l)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// taken says that a lock was refused because another process has it.
func taken(err error) bool { return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) }
