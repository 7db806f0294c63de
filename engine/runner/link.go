package runner

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"gputop/engine/agentrpc"
)

// The bounds of the link.
const (
	minBackoff     = 200 * time.Millisecond
	maxBackoff     = 2 * time.Second
	upgradeTimeout = 10 * time.Second
	// callTimeout bounds every call but Prepare, which may pull an image.
	callTimeout    = 60 * time.Second
	prepareTimeout = 2 * time.Hour
)

// serveEngine keeps a link to the engine until ctx ends. An engine that goes away costs containers nothing.
func (a *Agent) serveEngine(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		started := time.Now()
		err := a.session(ctx)
		if ctx.Err() != nil {
			return
		}
		a.log.Info("no link to the engine", "error", err, "again in", backoff)
		if time.Since(started) > maxBackoff {
			backoff = minBackoff
		}
		if pause(ctx, backoff) != nil {
			return
		}
		backoff = min(backoff*2, maxBackoff)
	}
}

// session is one link, from dial to its end.
func (a *Agent) session(ctx context.Context) error {
	// The first look at Podman may take long on a cold machine, and the engine does not wait long for a connected agent
	// to say hello.
	runtime := a.recentRuntime(ctx)
	c, r, err := dialEngine(ctx, a.o.EngineSocket)
	if err != nil {
		return err
	}
	defer c.Close()
	conn := agentrpc.NewConn(c, r, a.handle, nil)
	hello := agentrpc.Hello{
		Protocol: agentrpc.Protocol, Version: a.o.Version, PID: os.Getpid(), Runtime: runtime,
	}
	if err := conn.Note(agentrpc.NoteHello, hello); err != nil {
		return fmt.Errorf("say hello to the engine: %w", err)
	}
	a.mu.Lock()
	a.link = conn
	a.mu.Unlock()
	a.active(0)
	defer func() {
		a.mu.Lock()
		a.link = nil
		a.mu.Unlock()
	}()
	return conn.Serve(ctx)
}

// dialEngine connects and asks the engine to turn the connection into an agent's link.
func dialEngine(ctx context.Context, socket string) (net.Conn, *bufio.Reader, error) {
	c, err := (&net.Dialer{Timeout: upgradeTimeout}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	r, err := upgrade(c)
	if err != nil {
		c.Close()
		return nil, nil, fmt.Errorf("engine at %s: %w", socket, err)
	}
	return c, r, nil
}

func upgrade(c net.Conn) (*bufio.Reader, error) {
	if err := c.SetDeadline(time.Now().Add(upgradeTimeout)); err != nil {
		return nil, err
	}
	const request = "POST /v1/agent HTTP/1.1\r\nHost: gputop\r\nConnection: Upgrade\r\nUpgrade: gputop-agent\r\n" +
		"Gputop-Api: 1\r\nContent-Length: 0\r\n\r\n"
	if _, err := io.WriteString(c, request); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return nil, fmt.Errorf("refused the agent: %s %s", resp.Status, strings.TrimSpace(string(body)))
	}
	return r, c.SetDeadline(time.Time{})
}

// note sends to the engine if a link is up. A lost note is made good when the engine inspects after reconnecting.
func (a *Agent) note(m agentrpc.Method, params any) {
	a.mu.Lock()
	link := a.link
	a.mu.Unlock()
	if link == nil {
		return
	}
	if err := link.Note(m, params); err != nil {
		a.log.Info("note not sent", "note", m, "error", err)
	}
}

// handle serves one call of the engine.
func (a *Agent) handle(ctx context.Context, m agentrpc.Method, raw agentrpc.RawObject) (any, error) {
	a.active(1)
	defer a.active(-1)
	if m != agentrpc.MethodReadLog { // reading is simply done again
		a.working(1)
		defer a.working(-1)
	}
	limit := callTimeout
	if m == agentrpc.MethodPrepare {
		limit = prepareTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	switch m {
	case agentrpc.MethodProbe:
		return a.probe(ctx), nil
	case agentrpc.MethodResolveImage:
		return serve(ctx, raw, a.resolveImage)
	case agentrpc.MethodPrepare:
		return serve(ctx, raw, a.prepare)
	case agentrpc.MethodCreate:
		return serve(ctx, raw, a.create)
	case agentrpc.MethodInit:
		return serve(ctx, raw, a.initContainer)
	case agentrpc.MethodStart:
		return serve(ctx, raw, a.start)
	case agentrpc.MethodInspect:
		return serve(ctx, raw, a.inspectAndWatch)
	case agentrpc.MethodWarn:
		return serve(ctx, raw, a.warn)
	case agentrpc.MethodStop:
		return serve(ctx, raw, a.stop)
	case agentrpc.MethodRemove:
		return serve(ctx, raw, a.remove)
	case agentrpc.MethodReadLog:
		return serve(ctx, raw, a.readLog)
	case agentrpc.MethodForget:
		return serve(ctx, raw, a.forget)
	case agentrpc.MethodKept:
		return a.kept()
	case agentrpc.MethodImages:
		return a.listImages(ctx)
	case agentrpc.MethodCheck:
		return serve(ctx, raw, a.check)
	case agentrpc.MethodEnd:
		select {
		case a.makeWay <- struct{}{}:
		default:
		}
		return nil, nil
	}
	return nil, invalid("this agent (version %s) does not know the call %q", a.o.Version, m)
}

// serve decodes a call's parameters and makes the call.
func serve[P, R any](ctx context.Context, raw agentrpc.RawObject, f func(context.Context, P) (R, error)) (any, error) {
	var p P
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, invalid("malformed parameters: %v", err)
	}
	r, err := f(ctx, p)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// none is the result of a call that returns nothing.
type none = *struct{}
