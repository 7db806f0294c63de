package runner

import (
	"context"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine/host"
)

// serviceEnd bounds how long a Podman service may take to end.
const serviceEnd = 10 * time.Second

// endOutdated ends a Podman service that an earlier agent left behind and that has other groups than this process: what it
// starts would have them too. Containers do not need it.
func (s *service) endOutdated(ctx context.Context) {
	pid := s.listener()
	if pid <= 0 || pid == os.Getpid() || sameGroups(pid, os.Getpid()) {
		return
	}
	if p, ok := host.ReadProcess(pid); !ok || p.UID != s.user.UID {
		return
	}
	s.log.Info("Podman's service has other groups than its user: it is replaced", "pid", pid)
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		s.log.Error("Podman's service not ended", "pid", pid, "error", err)
		return
	}
	for deadline := time.Now().Add(serviceEnd); time.Now().Before(deadline) && s.answers(); {
		if pause(ctx, 20*time.Millisecond) != nil {
			return
		}
	}
}

// listener is the process behind the service's socket, 0 when there is none.
func (s *service) listener() int {
	c, err := net.DialTimeout("unix", s.socket, 2*time.Second)
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) { // a failure leaves 0
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// sameGroups says whether two processes have the same groups; what cannot be read is no difference.
func sameGroups(a, b int) bool {
	ga, oka := host.Groups(a)
	gb, okb := host.Groups(b)
	if !oka || !okb {
		return true
	}
	slices.Sort(ga)
	slices.Sort(gb)
	return slices.Equal(slices.Compact(ga), slices.Compact(gb))
}
