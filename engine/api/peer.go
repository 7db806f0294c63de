package api

import (
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
)

// peerConn is a connection with what the kernel says of its other end.
type peerConn struct {
	net.Conn
	cred    syscall.Ucred
	refused error // answered by the server: the peer has to be heard before it listens
	release func()
	once    sync.Once
}

// Close also gives the connection's place back.
func (c *peerConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.release)
	return err
}

// peerOf asks the kernel who is at the other end: the process that connected, as it was then.
func peerOf(c net.Conn) (syscall.Ucred, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return syscall.Ucred{}, fmt.Errorf("no peer credentials on a %T", c)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return syscall.Ucred{}, err
	}
	var cred *syscall.Ucred
	var errno error
	if err := raw.Control(func(fd uintptr) {
		cred, errno = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return syscall.Ucred{}, err
	}
	if errno != nil {
		return syscall.Ucred{}, errno
	}
	return *cred, nil
}

// peerListener knows its peers and keeps each uid to its number of connections, so that one user's loop does not lock
// the others out.
type peerListener struct {
	net.Listener
	limits Limits

	mu    sync.Mutex
	total int
	byUID map[uint32]int
}

func newPeerListener(l net.Listener, limits Limits) *peerListener {
	return &peerListener{Listener: l, limits: limits, byUID: map[uint32]int{}}
}

// Accept returns the next connection. One over the limits is marked, to be refused in words; far over them it is closed.
func (l *peerListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		cred, err := peerOf(c)
		if err != nil {
			c.Close()
			continue
		}
		refused, ok := l.take(cred.Uid)
		if !ok {
			c.Close()
			continue
		}
		return &peerConn{Conn: c, cred: cred, refused: refused, release: func() { l.giveBack(cred.Uid) }}, nil
	}
}

// take counts a connection. Not ok means that it was not counted and gets no answer.
func (l *peerListener) take(uid uint32) (refused error, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Root and the daemon's own user get in when others have filled the house.
	full := l.total >= l.limits.Connections && uid != 0 && int(uid) != os.Geteuid()
	if l.byUID[uid] >= 2*l.limits.ConnectionsPerUID || full && l.total >= 2*l.limits.Connections {
		return nil, false
	}
	switch {
	case l.byUID[uid] >= l.limits.ConnectionsPerUID:
		refused = &Error{Code: CodeTooMany, Message: fmt.Sprintf("uid %d has %d connections open, the most allowed", uid, l.limits.ConnectionsPerUID),
			Hint: "close a gputop or a script that waits"}
	case full:
		refused = &Error{Code: CodeTooMany, Message: "the daemon has as many connections as it takes", Hint: "try again"}
	}
	l.total++
	l.byUID[uid]++
	return refused, true
}

func (l *peerListener) giveBack(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.byUID[uid]--; l.byUID[uid] == 0 {
		delete(l.byUID, uid)
	}
}
