package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"gputop/engine/agentrpc"
)

// fakeEngine is the engine's side of the link over a real Unix socket.
type fakeEngine struct {
	t      testing.TB
	socket string
	l      net.Listener
	// links gets each agent that said hello.
	links chan *fakeLink
	done  chan struct{}
}

type fakeLink struct {
	*agentrpc.Conn
	hello    agentrpc.Hello
	exited   chan agentrpc.Container
	progress chan agentrpc.Progress
}

func newFakeEngine(t testing.TB, socket string) *fakeEngine {
	t.Helper()
	os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	e := &fakeEngine{t: t, socket: socket, l: l, links: make(chan *fakeLink, 10), done: make(chan struct{})}
	go func() {
		defer close(e.done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go e.serve(c)
		}
	}()
	return e
}

func (e *fakeEngine) close() { e.l.Close(); <-e.done }

func (e *fakeEngine) serve(c net.Conn) {
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil || req.Method != "POST" || req.URL.Path != "/v1/agent" || req.Header.Get("Upgrade") != "gputop-agent" || req.Header.Get("Connection") != "Upgrade" {
		fmt.Fprint(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
		c.Close()
		return
	}
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: gputop-agent\r\n\r\n")
	link := &fakeLink{exited: make(chan agentrpc.Container, 100), progress: make(chan agentrpc.Progress, 100)}
	link.Conn = agentrpc.NewConn(c, r, nil, func(m agentrpc.Method, p agentrpc.RawObject) {
		switch m {
		case agentrpc.NoteHello:
			_ = json.Unmarshal(p, &link.hello)
			e.links <- link
		case agentrpc.NoteExited:
			var x agentrpc.Container
			_ = json.Unmarshal(p, &x)
			link.exited <- x
		case agentrpc.NoteProgress:
			var x agentrpc.Progress
			_ = json.Unmarshal(p, &x)
			link.progress <- x
		}
	})
	_ = link.Serve(context.Background())
}

func (e *fakeEngine) link() *fakeLink {
	e.t.Helper()
	return receive(e.t, e.links, "an agent's hello")
}

func receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(60 * time.Second):
		t.Fatalf("no %s within a minute", what)
		panic("unreachable")
	}
}
