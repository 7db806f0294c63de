package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
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
 2  wide.py   alice  high    pending  2      1h55m  about Jul 8: waits for a GPU: needs 2, 1 free
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
	for _, c := range []struct {
		workdir string
		command []string
		tty     bool
		want    string
	}{
		{"", []string{"top"}, true, "exec --interactive --tty abc top"},
		{"/w", nil, false, "exec --interactive --workdir /w abc /bin/sh"},
		{"", []string{"--", "ls", "--", "-l"}, false, "exec --interactive abc ls -- -l"},
	} {
		got := podmanExec(api.ExecTarget{ContainerID: "abc", Workdir: c.workdir}, c.command, c.tty)
		if strings.Join(got, " ") != c.want {
			t.Errorf("%q in %q: got %q, want %s", c.command, c.workdir, got, c.want)
		}
	}
}

// BenchmarkProcess times whole processes against a daemon that does nothing but answer.
func BenchmarkProcess(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		back := newBox()
		one := back.jobs[1]
		for i := len(back.jobs); i < n; i++ {
			one.ID = engine.JobID(i + 1)
			back.jobs = append(back.jobs, one)
		}
		socket, stop := serve(b, back)
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
		stop()
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
