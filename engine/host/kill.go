package host

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Kill ends a process with SIGKILL if it is still the one that began at start, in clock ticks since boot. One that is
// gone is no error. The process is pinned first, so that a number that has passed to another is never hit.
func Kill(pid int, start uint64) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if p, ok := ReadProcess(pid); !ok || p.Start != start {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return nil
}
