package api

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gputop/engine"
)

func TestCallersRefused(t *testing.T) {
	uid := uint32(os.Getuid())
	dir := t.TempDir()
	write := func(text string) string {
		p := filepath.Join(dir, fmt.Sprint(len(text)))
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	release := make(chan struct{})
	defer close(release)
	for _, tc := range []struct {
		name string
		o    ServerOptions
		code ErrorCode
		want string
	}{
		{"container user", ServerOptions{SubIDFile: write(fmt.Sprintf("# x\nbob:%d:5\n", uid))}, CodeForbidden, "is a container user of bob"},
		{"unknown", ServerOptions{Resolve: func(uint32) (engine.User, []uint32, error) { return engine.User{}, nil, user.UnknownUserIdError(1) }}, CodeForbidden, "is no user of this machine"},
		{"NSS fails", ServerOptions{Resolve: func(uint32) (engine.User, []uint32, error) { return engine.User{}, nil, errors.New("ldap down") }}, CodeUnavailable, "ldap down"},
		{"NSS hangs", ServerOptions{Limits: Limits{LookupTimeout: 20 * time.Millisecond}, Resolve: func(uint32) (engine.User, []uint32, error) {
			<-release
			return engine.User{}, nil, nil
		}}, CodeUnavailable, "does not answer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := start(t, &fake{}, tc.o).Info(ctx)
			var e *Error
			if !errors.As(err, &e) || e.Code != tc.code || !strings.Contains(e.Message, tc.want) {
				t.Errorf("got %v, want %s …%s…", err, tc.code, tc.want)
			}
		})
	}
	c := start(t, &fake{}, ServerOptions{SubIDFile: write(fmt.Sprintf("root:%d:1\nbob:%d:65536\nbroken\n", uid, uid+1))})
	if _, err := c.Info(ctx); err != nil {
		t.Errorf("a person beside the ranges is refused: %v", err)
	}
}

// When NSS goes away, people known before stay known for a while; nobody new is.
func TestCallerCache(t *testing.T) {
	now := time.Unix(1000, 0)
	asked := 0
	var fail error
	cs := &callers{timeout: time.Second, subuid: &subIDs{path: "/nonexistent"}, now: func() time.Time { return now }, known: map[uint32]*person{},
		resolve: func(uid uint32) (engine.User, []uint32, error) {
			asked++
			return engine.User{UID: uid, Name: fmt.Sprint("u", asked)}, nil, fail
		}}
	check := func(uid uint32, name string, questions int) {
		t.Helper()
		u, _, err := cs.find(uid)
		if u.Name != name || (err == nil) != (name != "") || asked != questions {
			t.Errorf("got %q, %v after %d questions; want %q after %d", u.Name, err, asked, name, questions)
		}
	}
	check(1, "u1", 1)
	check(1, "u1", 1)
	now = now.Add(callerFresh)
	check(1, "u2", 2)
	fail = errors.New("ldap down")
	now = now.Add(callerFresh)
	check(1, "u2", 3)
	check(2, "", 4)
	check(2, "", 4)
	now = now.Add(callerStale)
	check(1, "", 5)
	fail = nil
	now = now.Add(callerNegative)
	check(1, "u6", 6)
}
