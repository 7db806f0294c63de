package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// peerConn is a connection with what the kernel says of its other end.
type peerConn struct {
	net.Conn
	cred    syscall.Ucred
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

// Accept returns the next connection within the limits; others get a short answer and are closed.
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
		if err := l.take(cred.Uid); err != nil {
			refuse(c, err)
			continue
		}
		return &peerConn{Conn: c, cred: cred, release: func() { l.giveBack(cred.Uid) }}, nil
	}
}

func (l *peerListener) take(uid uint32) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byUID[uid] >= l.limits.ConnectionsPerUID {
		return fmt.Errorf("uid %d has %d connections open, the most allowed; close a gputop or a script that waits", uid, l.byUID[uid])
	}
	// Root and the daemon's own user get in when others have filled the house.
	if l.total >= l.limits.Connections && uid != 0 && int(uid) != os.Geteuid() {
		return errors.New("the daemon has as many connections as it takes; try again")
	}
	l.total++
	l.byUID[uid]++
	return nil
}

func (l *peerListener) giveBack(uid uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.byUID[uid]--; l.byUID[uid] == 0 {
		delete(l.byUID, uid)
	}
}

// refuse answers without reading the request. It must not block: the answer fits the socket's buffer.
func refuse(c net.Conn, why error) {
	body := mustJSON(&Error{Code: CodeTooMany, Message: why.Error()})
	_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	fmt.Fprintf(c, "HTTP/1.1 429 Too Many Requests\r\n%s: %d\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		VersionHeader, Version, len(body), body)
	// Closing with unread data would reset the connection and lose the answer.
	if uc, ok := c.(*net.UnixConn); ok {
		_ = uc.CloseWrite()
	}
	c.Close()
}
