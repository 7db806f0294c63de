package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

// fakeAgent plays a user's agent and Podman. A job's command says what its program does: "exit N" ends at once with
// that code, "run" goes on until it is stopped.
type fakeAgent struct {
	t    *testing.T
	user engine.User

	mu         sync.Mutex
	containers map[string]*agentrpc.Container
	starts     map[string]int
	envs       map[string]map[string]string
	calls      []string
	// before may fail a call, or lose its answer by closing the link.
	before func(m agentrpc.Method, link *agentrpc.Conn) error
	// after may lose the answer of a call that was done.
	after   func(m agentrpc.Method, link *agentrpc.Conn) error
	conn    *agentrpc.Conn
	kept    []engine.JobID // of which it has logs
	runtime agentrpc.RuntimeInfo
	// check answers what a job wants of the host; nil finds all good. pid is the process it is said to be.
	check func(agentrpc.PrepareArgs) error
	pid   atomic.Int64
}

func newFakeAgent(t *testing.T, u engine.User) *fakeAgent {
	return &fakeAgent{t: t, user: u, containers: map[string]*agentrpc.Container{}, starts: map[string]int{}, envs: map[string]map[string]string{},
		runtime: agentrpc.RuntimeInfo{PodmanVersion: "5.4.2"}}
}

// connect links the agent to a daemon.
func (f *fakeAgent) connect(ctx context.Context, d *Daemon, wg *sync.WaitGroup) {
	ours, theirs := net.Pipe()
	wg.Add(2)
	go func() {
		defer wg.Done()
		d.ServeAgent(ctx, api.Caller{User: f.user, PID: int(f.pid.Load())}, theirs)
	}()
	var c *agentrpc.Conn
	c = agentrpc.NewConn(ours, nil, func(_ context.Context, m agentrpc.Method, p agentrpc.RawObject) (any, error) {
		return f.handle(m, p, c)
	}, nil)
	f.mu.Lock()
	f.conn = c
	f.mu.Unlock()
	go func() {
		defer wg.Done()
		_ = c.Serve(ctx)
	}()
	_ = c.Note(agentrpc.NoteHello, agentrpc.Hello{Protocol: agentrpc.Protocol, Runtime: f.runtime})
}

func (f *fakeAgent) handle(m agentrpc.Method, raw agentrpc.RawObject, c *agentrpc.Conn) (any, error) {
	f.mu.Lock()
	before, after := f.before, f.after
	f.calls = append(f.calls, string(m))
	f.mu.Unlock()
	if before != nil {
		if err := before(m, c); err != nil {
			return nil, err
		}
	}
	out, err := f.do(m, raw)
	if after != nil {
		if lost := after(m, c); lost != nil {
			return nil, lost
		}
	}
	return out, err
}

func (f *fakeAgent) do(m agentrpc.Method, raw agentrpc.RawObject) (any, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var ref agentrpc.Ref
	switch m {
	case agentrpc.MethodResolveImage, agentrpc.MethodPrepare:
		return agentrpc.Image{Found: true, ID: "img"}, nil
	case agentrpc.MethodCreate:
		var s agentrpc.ContainerSpec
		if err := json.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		f.envs[s.Name] = map[string]string{}
		maps.Copy(f.envs[s.Name], s.Env)
		if s.Edits != nil {
			for _, v := range s.Edits.Env {
				name, value, _ := strings.Cut(v, "=")
				f.envs[s.Name][name] = value
			}
		}
		if f.containers[s.Name] == nil {
			f.containers[s.Name] = &agentrpc.Container{ID: "id-" + s.Name, Name: s.Name, State: "created", Error: fmt.Sprint(s.Command)}
		}
		return *f.containers[s.Name], nil
	case agentrpc.MethodCheck:
		var p agentrpc.PrepareArgs
		if err := json.Unmarshal(raw, &p); err != nil || f.check == nil {
			return nil, err
		}
		return nil, f.check(p)
	case agentrpc.MethodEnd:
		return nil, nil
	case agentrpc.MethodProbe:
		return f.runtime, nil
	case agentrpc.MethodReadLog:
		return agentrpc.LogChunk{}, nil
	case agentrpc.MethodKept:
		return agentrpc.KeptJobs{Jobs: f.kept}, nil
	case agentrpc.MethodForget:
		var a agentrpc.ForgetArgs
		if err := json.Unmarshal(raw, &a); err != nil {
			return nil, err
		}
		f.kept = slices.DeleteFunc(slices.Clone(f.kept), func(id engine.JobID) bool { return id == a.Job })
		return nil, nil
	}
	if err := json.Unmarshal(raw, &ref); err != nil {
		return nil, err
	}
	c := f.containers[ref.Name]
	if c == nil {
		return nil, &agentrpc.Error{Code: agentrpc.CodeNotFound, Message: "no such container"}
	}
	switch m {
	case agentrpc.MethodInit:
		c.State, c.PID = "initialized", os.Getpid()
	case agentrpc.MethodStart:
		f.starts[c.Name]++
		c.State, c.StartedAt = "running", time.Now()
		var code int
		if n, _ := fmt.Sscanf(c.Error, "[exit %d]", &code); n == 1 {
			f.endLocked(c, code)
		}
	case agentrpc.MethodStop:
		f.endLocked(c, 143)
	case agentrpc.MethodRemove:
		delete(f.containers, c.Name)
		return nil, nil
	}
	return *c, nil
}

// endLocked ends a container's program. The note goes out after the lock is free.
func (f *fakeAgent) endLocked(c *agentrpc.Container, code int) {
	if c.State != "running" {
		return
	}
	c.State, c.ExitCode, c.FinishedAt, c.PID = "exited", code, time.Now(), 0
	note, conn := *c, f.conn
	go func() { _ = conn.Note(agentrpc.NoteExited, note) }()
}

func (f *fakeAgent) end(name string, code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endLocked(f.containers[name], code)
}

func (f *fakeAgent) started(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.starts[name]
}

func (f *fakeAgent) hooks(before, after func(agentrpc.Method, *agentrpc.Conn) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before, f.after = before, after
}

// alter changes a container behind everybody's back.
func (f *fakeAgent) alter(name string, g func(c *agentrpc.Container)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g(f.containers[name])
}

func me() engine.User {
	return engine.User{UID: uint32(os.Getuid()) + 1000, GID: uint32(os.Getgid()), Name: "user" + strconv.Itoa(os.Getuid())}
}

// env is what a container was created with.
func (f *fakeAgent) env(name string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.envs[name]
}
