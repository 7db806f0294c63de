package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func TestJobTable(t *testing.T) {
	now := time.Date(2020, 1, 2, 5, 0, 0, 0, time.UTC)
	jobs := newBox().jobs[:3]
	jobs[2].Name = "世界"
	want := `ID  NAME      OWNER  CLASS   STATE    GPU     TIME  DETAIL
 1  train.py  alice  medium  running  1      1h54m  GPU 0
 2  wide.py   alice  high    pending  2      1h55m  waits for a GPU: needs 2, 1 free
 3  世界      bob    medium  running  12GiB  1h55m
`
	if got := jobTable(jobs, now).String(); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", 200 * time.Second: "3m20s", 7500 * time.Second: "2h05m", 100 * time.Hour: "4d04h",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestWaitCode(t *testing.T) {
	for _, c := range []struct {
		state engine.JobState
		code  *int
		want  int
	}{
		{engine.Succeeded, ref(0), 0}, {engine.Failed, ref(3), 3}, {engine.Failed, ref(137), 137}, {engine.Failed, nil, 125},
		{engine.Failed, ref(0), 125}, {engine.TimedOut, ref(137), 124}, {engine.Cancelled, ref(143), 130}, {engine.Lost, nil, 125},
	} {
		if got := waitCode(api.Job{State: c.state, ExitCode: c.code}); got != c.want {
			t.Errorf("%s %v: got %d, want %d", c.state, c.code, got, c.want)
		}
	}
}

func TestPodmanExec(t *testing.T) {
	target := api.ExecTarget{ContainerID: "abc", Env: map[string]string{"A": "1", "XDG_CACHE_HOME": "/c"}}
	for _, c := range []struct {
		name    string
		environ []string
		dirs    string
		want    []string
	}{
		{"runtime directory there", []string{"XDG_RUNTIME_DIR=/other", "A=9"}, "/run/user/5", []string{"XDG_RUNTIME_DIR=/run/user/5", "A=1"}},
		{"gone", []string{"XDG_RUNTIME_DIR=/run/user/0", "B=2"}, "", []string{"B=2", "A=1"}},
		{"one of their own", []string{"XDG_RUNTIME_DIR=/tmp/r"}, "/tmp/r", []string{"XDG_RUNTIME_DIR=/tmp/r", "A=1"}},
	} {
		argv, env := podmanExec(target, []string{"top"}, true, c.environ, 5, func(d string) bool { return d == c.dirs })
		if want := "podman exec --interactive --tty --env A --env XDG_CACHE_HOME=/c abc top"; strings.Join(argv, " ") != want {
			t.Errorf("%s: got %q, want %s", c.name, argv, want)
		}
		if !reflect.DeepEqual(env, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, env, c.want)
		}
	}
}

// BenchmarkProcess times whole processes against a daemon that does nothing but answer.
func BenchmarkProcess(b *testing.B) {
	dir := b.TempDir()
	for _, n := range []int{10, 10_000} {
		back := newBox()
		one := back.jobs[1]
		for i := len(back.jobs); i < n; i++ {
			one.ID = engine.JobID(i + 1)
			back.jobs = append(back.jobs, one)
		}
		socket := filepath.Join(dir, fmt.Sprint(n))
		l, err := api.ListenUnix(socket, 0o600)
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- api.NewServer(back, api.ServerOptions{}).Serve(ctx, l) }()
		for _, args := range [][]string{{"ls"}, {"submit", "--dry-run", "--", "true"}} {
			b.Run(fmt.Sprintf("%s/%d", args[0], n), func(b *testing.B) {
				self, err := os.Executable()
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					cmd := &exec.Cmd{Path: self, Args: append([]string{"gputop"}, args...), Env: append(os.Environ(), "GPUTOP_SOCKET="+socket), Stdout: io.Discard}
					if err := cmd.Run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

func BenchmarkJobTable(b *testing.B) {
	one := newBox().jobs[1]
	jobs := make([]api.Job, 10_000)
	for i := range jobs {
		jobs[i] = one
		jobs[i].ID = engine.JobID(i + 1)
	}
	for b.Loop() {
		_ = jobTable(jobs, time.Now()).String()
	}
}
