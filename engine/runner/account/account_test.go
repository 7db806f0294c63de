package account

import (
	"slices"
	"testing"

	"gputop/engine"
)

func TestParsePasswd(t *testing.T) {
	got, err := parsePasswd("alice:x:1001:1002:Alice A,,,:/home/alice:/bin/zsh")
	want := Account{User: engine.User{UID: 1001, GID: 1002, Name: "alice"}, Home: "/home/alice", Shell: "/bin/zsh"}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if a, err := parsePasswd("svc:x:5:5::/:"); err != nil || a.Shell != "/bin/sh" {
		t.Errorf("no shell: %+v, %v", a, err)
	}
	for _, bad := range []string{"", "alice", "a:x:-1:0::/:/bin/sh", "a:x:1:x::/:/bin/sh"} {
		if a, err := parsePasswd(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, a)
		}
	}
}

func TestLookup(t *testing.T) {
	a, err := Lookup(t.Context(), "0")
	if err != nil || a.Name != "root" || a.UID != 0 {
		t.Errorf("uid 0 is %+v, %v", a, err)
	}
	if a, err := Lookup(t.Context(), "nobody-has-this-name"); err == nil {
		t.Errorf("found %+v", a)
	}
}

func TestPodmanEnv(t *testing.T) {
	t.Setenv("CONTAINER_HOST", "tcp://elsewhere")
	t.Setenv("XDG_RUNTIME_DIR", "/tmp/mine")
	a := Account{User: engine.User{UID: 4000000000, Name: "ghost"}, Home: "/home/ghost"}
	want := []string{"HOME=/home/ghost", "USER=ghost", "LOGNAME=ghost", "PATH=" + Path}
	if got := PodmanEnv(a); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
