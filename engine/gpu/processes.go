package gpu

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// maxCommand bounds the command line kept of a process, in bytes.
const maxCommand = 256

// maxPID is the kernel's largest.
const maxPID = 1 << 22

// personAge is how long what a process says of itself is believed: it may put another program in its place.
const personAge = 10 * time.Second

// processes lists who is on a device, by PID. known is false when the driver would not say.
func (c *Collector) processes(d nvml.Device, g *engine.GPU, now time.Time) (out []engine.GPUProcess, known bool) {
	at := map[uint32]int{}
	add := func(kind string, list []nvml.ProcessInfo, r nvml.Return) bool {
		if !c.healthy(g, r) {
			return false
		}
		for _, p := range list {
			if p.Pid == 0 || p.Pid > maxPID {
				continue // nobody; what it holds shows as memory that no process accounts for
			}
			i, ok := at[p.Pid]
			if !ok {
				i = len(out)
				at[p.Pid] = i
				out = append(out, engine.GPUProcess{PID: int(p.Pid)})
			}
			o := &out[i]
			if !strings.Contains(o.Type, kind) {
				o.Type += kind
			}
			// A process in both lists is told with the same memory in both.
			if p.UsedGpuMemory <= mostMemory && (o.Memory == nil || *o.Memory < engine.Bytes(p.UsedGpuMemory)) {
				o.Memory = ptr(engine.Bytes(p.UsedGpuMemory))
			}
		}
		return true
	}
	compute, r := d.GetComputeRunningProcesses()
	known = add("C", compute, r)
	// Cards without graphics do not know this list.
	graphics, r := d.GetGraphicsRunningProcesses()
	if !add("G", graphics, r) && r != nvml.ERROR_NOT_SUPPORTED {
		known = false
	}
	for i := range out {
		c.describe(&out[i], now)
	}
	slices.SortFunc(out, func(a, b engine.GPUProcess) int { return cmp.Compare(a.PID, b.PID) })
	return out, known
}

// person is what the kernel said of a process.
type person struct {
	start     uint64
	asked     time.Time
	seen      time.Time
	uid       uint32
	namespace uint64
	command   string
}

// describe fills in what the kernel says of a process; what it does not say stays zero. The start time is read each
// time, for it tells a reused PID; the rest is kept for personAge.
func (c *Collector) describe(p *engine.GPUProcess, now time.Time) {
	dir := filepath.Join(c.o.Proc, strconv.Itoa(p.PID))
	if b := head(filepath.Join(dir, "stat"), 4096); b != nil {
		p.Start = startTime(b)
	}
	k := c.people[p.PID]
	if k == nil || k.start != p.Start || p.Start == 0 || now.Sub(k.asked) > personAge || now.Before(k.asked) {
		k = &person{start: p.Start, asked: now}
		if b := head(filepath.Join(dir, "status"), 4096); b != nil {
			k.uid = realUID(b)
		}
		if link, err := os.Readlink(filepath.Join(dir, "ns", "pid")); err == nil {
			// The error leaves 0, which says unknown.
			_, _ = fmt.Sscanf(link, "pid:[%d]", &k.namespace)
		}
		k.command = command(dir)
		c.people[p.PID] = k
	}
	k.seen = now
	p.UID, p.PIDNamespace, p.Command = k.uid, k.namespace, k.command
}

// startTime is field 22 of /proc/PID/stat; the name before it may hold spaces and parentheses.
func startTime(stat []byte) uint64 {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseUint(fields[19], 10, 64)
	return n
}

func realUID(status []byte) uint32 {
	_, rest, _ := strings.Cut(string(status), "\nUid:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(fields[0], 10, 32)
	return uint32(n)
}

// command is a process's command line in one printable line, or its name.
func command(dir string) string {
	b := head(filepath.Join(dir, "cmdline"), maxCommand)
	if len(b) == 0 {
		b = head(filepath.Join(dir, "comm"), maxCommand)
	}
	s := strings.ToValidUTF8(string(bytes.TrimRight(b, "\x00\n")), "?")
	return strings.Map(func(r rune) rune {
		switch {
		case r == 0:
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, s)
}

func head(path string, n int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return nil
	}
	return b
}
