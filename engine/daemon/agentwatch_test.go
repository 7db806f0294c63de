package daemon

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
	"gputop/engine/host"
)

// agentPID is the process that the tests' agents are said to be.
const agentPID = 4242

// killed records what a daemon killed.
type killed struct {
	mu   sync.Mutex
	pids []int
	ch   chan int
}

// watchBox is a box whose agents' process can be killed, pinged often.
func watchBox(t *testing.T, change func(*Daemon)) (*box, *killed) {
	t.Helper()
	b := newBox(t, 1)
	k := &killed{ch: make(chan int, 10)}
	_ = b.d.do(t.Context(), func() {
		b.d.agents.every, b.d.agents.limit = 20*time.Millisecond, 50*time.Millisecond
		b.d.o.System.Process = func(pid int) (host.Process, bool) {
			if pid == agentPID {
				return host.Process{UID: me().UID, Start: 5}, true
			}
			return host.Process{UID: me().UID, Start: 7}, b.running(pid)
		}
		b.d.o.System.Kill = func(pid int, start uint64) error {
			if start != 5 {
				return errors.New("another process")
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.pids = append(k.pids, pid)
			k.ch <- pid
			return nil
		}
		if change != nil {
			change(b.d)
		}
	})
	return b, k
}

// mute connects an agent that says hello and never answers.
func mute(t *testing.T, b *box, c api.Caller) {
	t.Helper()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	b.done.Add(1)
	go func() { defer b.done.Done(); b.d.ServeAgent(ctx, c, theirs) }()
	conn := agentrpc.NewConn(ours, nil, nil, nil)
	if err := conn.Note(agentrpc.NoteHello, agentrpc.Hello{Protocol: agentrpc.Protocol}); err != nil {
		t.Fatal(err)
	}
	b.done.Add(1)
	go func() { // swallow what comes, until the link is closed
		defer b.done.Done()
		buf := make([]byte, 4096)
		for {
			if _, err := ours.Read(buf); err != nil {
				return
			}
		}
	}()
}

func TestAgentThatAnswersNothingIsReplaced(t *testing.T) {
	b, k := watchBox(t, nil)
	mute(t, b, api.Caller{User: me(), PID: agentPID})
	if pid := <-k.ch; pid != agentPID {
		t.Errorf("killed %d, want %d", pid, agentPID)
	}
	// The next call starts an agent that works.
	b.untilState(b.submit(spec(engine.Medium, "exit", "0")), engine.Succeeded)
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.pids) != 1 {
		t.Errorf("killed %v; an agent that answers is left alone", k.pids)
	}
}

func TestOnlyTheAgentItselfIsKilled(t *testing.T) {
	other := me()
	other.UID++
	for name, tc := range map[string]struct {
		c api.Caller
		p host.Process // what the pid is when it is to be killed
	}{
		"the pid is another user's":             {api.Caller{User: other, PID: agentPID}, host.Process{UID: me().UID, Start: 5}},
		"the pid has passed to another process": {api.Caller{User: me(), PID: agentPID}, host.Process{UID: me().UID, Start: 6}},
		"it has become another user":            {api.Caller{User: me(), PID: agentPID}, host.Process{UID: other.UID, Start: 5}},
		"nothing is known of it":                {api.Caller{User: me()}, host.Process{UID: me().UID, Start: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			b, k := watchBox(t, nil)
			p := b.d.processOf(tc.c)
			b.d.o.System.Process = func(int) (host.Process, bool) { return tc.p, true }
			b.d.endAgent(p)
			if len(k.pids) != 0 {
				t.Errorf("killed %v", k.pids)
			}
		})
	}
}

// An agent whose link broke and that does not come back is stopped or hangs: it goes before the next is started.
func TestAgentThatDoesNotComeBackIsEnded(t *testing.T) {
	now := time.Now()
	started := make(chan struct{}, 1)
	b, k := watchBox(t, func(d *Daemon) { d.o.StartAgent = func(engine.User) error { started <- struct{}{}; return nil } })
	_ = b.d.do(t.Context(), func() { b.d.o.System.Now = func() time.Time { return now } })
	a := b.d.agents
	a.left(agentProcess{uid: me().UID, pid: agentPID, start: 5})
	start := func() { a.mu.Lock(); a.startLocked(me()); a.mu.Unlock(); <-started }
	start()
	if len(k.ch) != 0 {
		t.Error("an agent was ended that had no time to come back")
	}
	_ = b.d.do(t.Context(), func() { now = now.Add(agentPatience) })
	start()
	if len(k.ch) != 1 {
		t.Error("the agent that did not come back was left, with its lock")
	}
}

func TestAgentWithOldGroupsIsAskedOnceToMakeWay(t *testing.T) {
	ends := make(chan struct{}, 10)
	var mu sync.Mutex
	nss := []uint32{100, 7}
	b, _ := watchBox(t, func(d *Daemon) {
		d.o.Groups = func(uint32) ([]uint32, error) {
			mu.Lock()
			defer mu.Unlock()
			return nss, nil
		}
		d.o.System.Groups = func(pid int) ([]uint32, bool) { return []uint32{7, 100, me().GID}, pid == agentPID }
	})
	b.agent.hooks(func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodEnd {
			ends <- struct{}{}
		}
		return nil
	}, nil)
	b.agent.pid.Store(agentPID)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	l, err := b.d.agents.get(t.Context(), me())
	if err != nil {
		t.Fatal(err)
	}
	if now, old := b.d.oldGroups(l); old {
		t.Fatalf("the same groups %v in another order are a change", now)
	}
	mu.Lock()
	nss = []uint32{100, 7, 300}
	mu.Unlock()
	<-ends
	if now, old := b.d.oldGroups(l); !old || !slices.Contains(now, 300) {
		t.Errorf("groups %v, old %t", now, old)
	}
	// It stays as it was, as below a user's manager: it is not asked for ever.
	for range 3 {
		b.d.makeWay(t.Context(), l)
	}
	if len(ends) != 0 {
		t.Error("asked again for the same change")
	}
	mu.Lock()
	nss = []uint32{100, 7, 400}
	mu.Unlock()
	<-ends
}

func TestProgramIsLookedForAlsoWhenTheImageIsKnown(t *testing.T) {
	b := newBox(t, 1)
	var mu sync.Mutex
	var asked []agentrpc.PrepareArgs
	b.agent.check = func(p agentrpc.PrepareArgs) error {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, p)
		if p.Program == "pyhton" {
			return &agentrpc.Error{Code: agentrpc.CodeInvalid, Message: "pyhton: no such program on this job's PATH; did you mean python?"}
		}
		return nil
	}
	s := spec(engine.Medium, "exit", "0")
	s.CallerEnv = map[string]string{"PATH": "/venv/bin:/usr/bin"}
	b.untilState(b.submit(s), engine.Succeeded) // the image is known from here on
	s.Command, s.Workdir, s.Env = []string{"pyhton", "x.py"}, "/tmp", map[string]string{"PATH": "/my/bin"}
	_, err := b.d.Submit(t.Context(), b.caller(), api.SubmitRequest{Spec: s})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeInvalid || !strings.Contains(e.Message, "did you mean python?") {
		t.Errorf("a program that is not there was answered %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if n := len(asked); n != 2 || asked[0].Path != "/venv/bin:/usr/bin" || asked[1].Path != "/my/bin" || asked[0].Later || !asked[0].HostEnv {
		t.Errorf("asked %+v", asked)
	}
}

func TestDiagnosis(t *testing.T) {
	b, _ := watchBox(t, func(d *Daemon) { d.o.StateDir = t.TempDir() })
	b.d.o.LeaseDir, b.d.o.SpecDirs = "/nonexistent/cdi", []string{"/nonexistent/cdi"}
	<-b.d.seen
	d, err := b.d.Diagnose(t.Context(), b.caller())
	if err != nil || !d.Agent.Connected || d.Agent.Runtime == nil || d.Agent.Runtime.PodmanVersion != "5.4.2" || !d.Simulated || d.StateFree == nil || !d.StateWritable {
		t.Fatalf("%+v, %v", d, err)
	}
	if len(d.Cards) != 1 || len(d.Cards[0].Problems) != 1 || d.Cards[0].Problems[0].Code != "no-spec" || d.Cards[0].Problems[0].Fix == "" {
		t.Errorf("cards %+v", d.Cards)
	}
	root, err := b.d.Diagnose(t.Context(), api.Caller{User: engine.User{Name: "root"}})
	if err != nil || root.Agent != (api.AgentDiagnosis{}) {
		t.Errorf("root's agent %+v, %v", root.Agent, err)
	}
}

func TestSpecsAreReadAsTheUsersPodmanReadsThem(t *testing.T) {
	d := &Daemon{}
	for podman, want := range map[string]string{"": "", "4.3.1": "0.5.0", "4.30.0": "", "5.4.2": ""} {
		l := &link{}
		l.runtime.Store(&agentrpc.RuntimeInfo{PodmanVersion: podman})
		if got := d.finderFor(l).MaxVersion; got != want {
			t.Errorf("Podman %q reads CDI up to %q, want %q", podman, got, want)
		}
	}
}
