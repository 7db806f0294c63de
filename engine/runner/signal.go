package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// procfs is where /proc is mounted.
type procfs string

// process is what the choice of whom to signal needs of a process.
type process struct {
	pid, parent int
	start       uint64 // clock ticks since boot
	comm        string
	caught      uint64 // signals with a handler of its own, bit n-1 for signal n
	zombie      bool
}

func (p process) catches(sig unix.Signal) bool { return p.caught&(1<<(uint(sig)-1)) != 0 }

// key names a process for good: numbers are used again.
type key struct {
	pid   int
	start uint64
}

func (p process) key() key { return key{p.pid, p.start} }

// namespaceOf is the PID namespace's name, for example "pid:[4026532201]"; empty when it cannot be read.
func namespaceOf(proc procfs, pid int) string {
	s, _ := os.Readlink(filepath.Join(string(proc), strconv.Itoa(pid), "ns/pid"))
	return s
}

// members are the processes of a PID namespace, and their descendants in namespaces below it.
func members(proc procfs, ns string) (map[int]process, error) {
	entries, err := os.ReadDir(string(proc))
	if err != nil {
		return nil, err
	}
	all, in := map[int]process{}, map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		p, err := readProcess(proc, pid)
		if err != nil {
			continue // it ended
		}
		all[pid] = p
		if namespaceOf(proc, pid) == ns {
			in[pid] = p
		}
	}
	for pid, p := range all {
		for up, n := p.parent, 0; up > 1 && n < len(all); n++ {
			if _, ok := in[up]; ok {
				in[pid] = p
				break
			}
			up = all[up].parent
		}
	}
	return in, nil
}

func readProcess(proc procfs, pid int) (process, error) {
	dir := filepath.Join(string(proc), strconv.Itoa(pid))
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return process{}, err
	}
	p, err := parseStat(string(stat))
	if err != nil {
		return process{}, err
	}
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return process{}, err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "SigCgt:"); ok {
			p.caught, err = strconv.ParseUint(strings.TrimSpace(v), 16, 64)
		}
	}
	return p, err
}

// parseStat reads /proc/PID/stat; the name in brackets may hold anything.
func parseStat(s string) (process, error) {
	open, end := strings.IndexByte(s, '('), strings.LastIndexByte(s, ')')
	if open < 0 || end < open {
		return process{}, fmt.Errorf("stat %q: no name", s)
	}
	f := strings.Fields(s[end+1:])
	if len(f) < 20 {
		return process{}, fmt.Errorf("stat %q: too short", s)
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(s[:open]))
	parent, err2 := strconv.Atoi(f[1])
	start, err3 := strconv.ParseUint(f[19], 10, 64)
	return process{pid: pid, parent: parent, start: start, comm: s[open+1 : end], zombie: f[0] == "Z" || f[0] == "X"}, errors.Join(err1, err2, err3)
}

// isInit says whether the container's first process is the init program, which only passes signals on.
func isInit(p process) bool { return p.comm == "catatonit" || p.comm == "podman-init" }

// signalRound tells the processes of a container once each. One that would simply die of the signal while it waits for
// children (a shell around a training program) is left until those have ended: when it goes first, the container's
// end takes the children with it before they could save anything.
type signalRound struct {
	proc procfs
	sig  unix.Signal
	pid1 int
	ns   string
	send func(process, unix.Signal) error
	// first are the processes of the first look; told those that were signalled.
	first, told map[key]bool
	// waiting says that somebody is being left for the sake of children.
	waiting bool
	scanned bool
}

func newRound(proc procfs, pid1 int, sig unix.Signal) (*signalRound, error) {
	ns := namespaceOf(proc, pid1)
	if ns == "" {
		return nil, fmt.Errorf("the PID namespace of process %d cannot be read", pid1)
	}
	if ns == namespaceOf(proc, os.Getpid()) {
		return nil, fmt.Errorf("process %d is in the host's PID namespace: not signalling everybody", pid1)
	}
	r := &signalRound{proc: proc, sig: sig, pid1: pid1, ns: ns, first: map[key]bool{}, told: map[key]bool{}}
	r.send = func(p process, sig unix.Signal) error { return sendTo(proc, p, sig) }
	return r, nil
}

// namespace is the namespace the round is about; for a nil round whatever the process has now.
func (r *signalRound) namespace(pid int) string {
	if r == nil {
		return namespaceOf(procfs("/proc"), pid)
	}
	return r.ns
}

// step looks once and tells who is due.
func (r *signalRound) step() {
	procs, err := members(r.proc, r.ns)
	if err != nil {
		return // the next look may work; KILL comes anyway
	}
	for _, p := range r.due(procs) {
		if r.send(p, r.sig) == nil {
			r.told[p.key()] = true
		}
	}
}

// warn tells those who catch the signal, and leaves everybody else alone.
func (r *signalRound) warn() {
	procs, err := members(r.proc, r.ns)
	if err != nil {
		return // nobody is told: the limit comes anyway
	}
	for _, p := range procs {
		if !p.zombie && p.catches(r.sig) && !(p.pid == r.pid1 && isInit(p)) {
			_ = r.send(p, r.sig) // one that is gone needs no warning
		}
	}
}

// due are the processes to tell now.
func (r *signalRound) due(procs map[int]process) []process {
	if !r.scanned {
		r.scanned = true
		for _, p := range procs {
			r.first[p.key()] = true
		}
	}
	// Who has a living descendant that was there when the stop began.
	parent := map[int]bool{}
	for _, p := range procs {
		if p.zombie || !r.first[p.key()] {
			continue
		}
		for up := p.parent; procs[up].pid != 0 && !parent[up]; up = procs[up].parent {
			parent[up] = true
		}
	}
	var out []process
	r.waiting = false
	for _, p := range procs {
		switch {
		case p.zombie || r.told[p.key()]:
		case p.pid == r.pid1 && isInit(p):
		case parent[p.pid] && !p.catches(r.sig):
			r.waiting = true
		default:
			out = append(out, p)
		}
	}
	return out
}

// sendTo signals through a pidfd, so that a number that has passed to another process is never hit.
func sendTo(proc procfs, p process, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if errors.Is(err, unix.ENOSYS) {
		return unix.Kill(p.pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, err := readProcess(proc, p.pid); err != nil || now.key() != p.key() {
		return unix.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}
