package gpu

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// maxCommand bounds the command line kept of a process, in bytes.
const maxCommand = 256

// processes lists who is on a device, by PID. known is false when the driver would not say.
func (c *Collector) processes(d nvml.Device, g *engine.GPU) (out []engine.GPUProcess, known bool) {
	at := map[uint32]int{}
	add := func(kind string, list []nvml.ProcessInfo, r nvml.Return) bool {
		if !c.healthy(g, r) {
			return false
		}
		for _, p := range list {
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
			if p.UsedGpuMemory != math.MaxUint64 && (o.Memory == nil || *o.Memory < engine.Bytes(p.UsedGpuMemory)) {
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
		describe(c.o.Proc, &out[i])
	}
	slices.SortFunc(out, func(a, b engine.GPUProcess) int { return cmp.Compare(a.PID, b.PID) })
	return out, known
}

// describe fills in what the kernel says of a process; what it does not say stays zero.
func describe(proc string, p *engine.GPUProcess) {
	dir := filepath.Join(proc, strconv.Itoa(p.PID))
	if b, err := os.ReadFile(filepath.Join(dir, "stat")); err == nil {
		p.Start = startTime(b)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "status")); err == nil {
		p.UID = realUID(b)
	}
	if link, err := os.Readlink(filepath.Join(dir, "ns", "pid")); err == nil {
		// The error leaves 0, which says unknown.
		_, _ = fmt.Sscanf(link, "pid:[%d]", &p.PIDNamespace)
	}
	p.Command = command(dir)
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
