package agentrpc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs one end until the test ends.
func serve(t *testing.T, c *Conn) <-chan error {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-c.Done()
	})
	return done
}

func pair(t *testing.T, handle Handler, note func(Method, RawObject)) (caller, callee *Conn) {
	t.Helper()
	a, b := net.Pipe()
	caller, callee = NewConn(a, nil, nil, note), NewConn(b, nil, handle, nil)
	serve(t, caller)
	serve(t, callee)
	return caller, callee
}

func TestCallsAnswersAndErrors(t *testing.T) {
	c, _ := pair(t, func(_ context.Context, m Method, p RawObject) (any, error) {
		var ref Ref
		if err := json.Unmarshal(p, &ref); err != nil {
			return nil, err
		}
		switch ref.Name {
		case "gone":
			return nil, fmt.Errorf("inspect: %w", &Error{Code: CodeNotFound, Message: "no such container"})
		case "odd":
			return nil, errors.New("odd")
		}
		return Container{Name: ref.Name, State: string(m)}, nil
	}, nil)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			var got Container
			name := fmt.Sprint("c", i)
			if err := c.Call(t.Context(), MethodInspect, Ref{Name: name}, &got); err != nil || got.Name != name {
				t.Errorf("call %d: %+v, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	if err := c.Call(t.Context(), MethodInspect, Ref{Name: "gone"}, nil); CodeOf(err) != CodeNotFound || !strings.Contains(err.Error(), "no such container") {
		t.Errorf("not found: %v", err)
	}
	// What the peer could not name is unknown, never a fact.
	if err := c.Call(t.Context(), MethodInspect, Ref{Name: "odd"}, nil); CodeOf(err) != CodeUnavailable {
		t.Errorf("unnamed error: %v", err)
	}
}

func TestLostLinkIsUnknown(t *testing.T) {
	called := make(chan struct{})
	c, peer := pair(t, func(ctx context.Context, _ Method, _ RawObject) (any, error) {
		close(called)
		<-ctx.Done()
		return nil, ctx.Err()
	}, nil)
	errs := make(chan error, 1)
	go func() { errs <- c.Call(context.Background(), MethodStart, Ref{}, nil) }()
	<-called
	peer.Close()
	if err := <-errs; !errors.Is(err, ErrClosed) || CodeOf(err) != CodeUnavailable {
		t.Errorf("call on a lost link: %v", err)
	}
	if err := c.Call(context.Background(), MethodStart, Ref{}, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("call after it: %v", err)
	}
}

func TestLateAnswerIsDropped(t *testing.T) {
	release := make(chan struct{})
	c, _ := pair(t, func(_ context.Context, m Method, _ RawObject) (any, error) {
		if m == MethodStart {
			<-release
			return Container{Name: "late"}, nil
		}
		return Container{Name: "now"}, nil
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, MethodStart, Ref{}, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("late call: %v", err)
	}
	close(release)
	var got Container
	if err := c.Call(t.Context(), MethodInspect, Ref{}, &got); err != nil || got.Name != "now" {
		t.Errorf("the next call got %+v, %v", got, err)
	}
}

func TestNotesKeepTheirOrder(t *testing.T) {
	var got []string
	done := make(chan struct{})
	_, peer := pair(t, func(context.Context, Method, RawObject) (any, error) { return nil, nil }, func(_ Method, raw RawObject) {
		var p Progress
		if json.Unmarshal(raw, &p) == nil {
			if got = append(got, p.Text); len(got) == 3 {
				close(done)
			}
		}
	})
	for _, s := range []string{"a", "b", "c"} {
		if err := peer.Note(NoteProgress, Progress{Text: s}); err != nil {
			t.Fatal(err)
		}
	}
	<-done
	if strings.Join(got, "") != "abc" {
		t.Errorf("notes %v", got)
	}
}

// TestHostilePeer: nonsense ends that peer's own link with a reason, and nothing else.
func TestHostilePeer(t *testing.T) {
	for _, c := range []struct{ name, send, want string }{
		{"not JSON", "hello\n", "malformed frame"},
		{"an empty frame", "{}\n", "neither call, answer nor note"},
		{"a call where none is served", `{"id":1,"method":"start"}` + "\n", "unexpected call"},
		{"an endless line", strings.Repeat("x", MaxFrame+8192), "larger than"},
		{"an endless line with an end", strings.Repeat(" ", MaxFrame+2) + "\n", "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			conn := NewConn(ours, bufio.NewReader(ours), nil, nil)
			done := serve(t, conn)
			go func() { _, _ = theirs.Write([]byte(c.send)) }()
			if err := <-done; err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v, want %q", err, c.want)
			}
			theirs.Close()
		})
	}
}

func TestAnswerToNobodyIsHarmless(t *testing.T) {
	ours, theirs := net.Pipe()
	conn := NewConn(ours, nil, nil, nil)
	serve(t, conn)
	if _, err := theirs.Write([]byte(`{"id":99,"result":{}}` + "\n")); err != nil {
		t.Fatal(err)
	}
	go func() {
		r := bufio.NewReader(theirs)
		line, err := r.ReadBytes('\n')
		var f Frame
		if err != nil || json.Unmarshal(line, &f) != nil {
			return
		}
		_, _ = fmt.Fprintf(theirs, `{"id":%d,"result":{"name":"x"}}`+"\n", f.ID)
	}()
	var got Container
	if err := conn.Call(t.Context(), MethodInspect, Ref{}, &got); err != nil || got.Name != "x" {
		t.Errorf("call after it: %+v, %v", got, err)
	}
}

func TestOversizedCallIsRefusedHere(t *testing.T) {
	c, _ := pair(t, func(context.Context, Method, RawObject) (any, error) { return nil, nil }, nil)
	big := ContainerSpec{Command: []string{strings.Repeat("x", MaxFrame)}}
	if err := c.Call(t.Context(), MethodCreate, big, nil); CodeOf(err) != CodeInvalid {
		t.Errorf("oversized call: %v", err)
	}
	if err := c.Call(t.Context(), MethodInspect, Ref{}, nil); err != nil {
		t.Errorf("the link after it: %v", err)
	}
}
