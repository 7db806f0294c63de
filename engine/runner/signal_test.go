package runner

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWhoIsSignalled(t *testing.T) {
	const term = 1 << (unix.SIGTERM - 1)
	init1 := process{pid: 1, comm: "catatonit", caught: term}
	for _, tc := range []struct {
		name  string
		procs []process
		// ends are the PIDs that are gone by the second look, and born those that are new in it.
		ends []int
		born []process
		want [2]string
	}{
		{"a program alone", []process{init1, {pid: 2, parent: 1}}, nil, nil, [2]string{"[2]", "[]"}},
		{"a shell waits for its program", []process{init1, {pid: 2, parent: 1, comm: "sh"}, {pid: 3, parent: 2}}, []int{3}, nil, [2]string{"[3]", "[2]"}},
		{"a shell goes on to the next program", []process{init1, {pid: 2, parent: 1}, {pid: 3, parent: 2}}, []int{3}, []process{{pid: 4, parent: 2}}, [2]string{"[3]", "[2 4]"}},
		{"a parent with a handler is told at once", []process{init1, {pid: 2, parent: 1, caught: term}, {pid: 3, parent: 2}}, nil, nil, [2]string{"[2 3]", "[]"}},
		{"grandchildren keep the shell", []process{init1, {pid: 2, parent: 1}, {pid: 3, parent: 2, caught: term}, {pid: 4, parent: 3}}, []int{3}, nil, [2]string{"[3 4]", "[2]"}},
		{"a first process that is the program", []process{{pid: 1, comm: "python", caught: term}}, nil, nil, [2]string{"[1]", "[]"}},
		{"zombies count for nobody", []process{init1, {pid: 2, parent: 1}, {pid: 3, parent: 2, zombie: true}}, nil, nil, [2]string{"[2]", "[]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &signalRound{sig: unix.SIGTERM, pid1: 1, first: map[key]bool{}, told: map[key]bool{}}
			procs := map[int]process{}
			for _, p := range tc.procs {
				procs[p.pid] = p
			}
			for i, want := range tc.want {
				var pids []int
				for _, p := range r.due(procs) {
					pids = append(pids, p.pid)
					r.told[p.key()] = true
				}
				slices.Sort(pids)
				if got := fmt.Sprint(pids); got != want {
					t.Errorf("look %d: signalled %s, want %s", i+1, got, want)
				}
				for _, pid := range tc.ends {
					delete(procs, pid)
				}
				for pid, p := range procs {
					if procs[p.parent].pid == 0 && p.parent != 0 {
						p.parent = 1
						procs[pid] = p
					}
				}
				for _, p := range tc.born {
					procs[p.pid] = p
				}
			}
		})
	}
}

func TestParseStat(t *testing.T) {
	p, err := parseStat("12 (a) (b c) S 7 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 0 0\n")
	if err != nil || p.pid != 12 || p.parent != 7 || p.start != 98765 || p.comm != "a) (b c" || p.zombie {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := parseStat("12 (a) S 7"); err == nil {
		t.Error("a short line was read")
	}
}

func TestNeverSignalTheHost(t *testing.T) {
	if r, err := newRound("/proc", os.Getpid(), unix.SIGTERM); err == nil {
		t.Errorf("a round over the host's namespace was made: %+v", r)
	}
}

func TestSendToNamesTheProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := readProcess("/proc", cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := p
	other.start++
	if err := sendTo("/proc", other, unix.SIGTERM); err != unix.ESRCH {
		t.Errorf("a process with another start time: %v, want ESRCH", err)
	}
	if err := sendTo("/proc", p, unix.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("sleep ended with %v", err)
	}
}
