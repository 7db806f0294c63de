package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gputop/engine"
)

// cgroupRoot is where cgroup v2 is mounted when nothing else is.
const cgroupRoot = "/sys/fs/cgroup"

// ContainerMemory is the host memory that the control group of a process uses, in bytes, without what is kept of files and
// could be dropped at once. ok is false where cgroup v2 does not say.
func ContainerMemory(pid int) (used engine.Bytes, ok bool) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return 0, false
	}
	return groupMemory(cgroupRoot, string(b))
}

// groupMemory reads the group that /proc/PID/cgroup names. The kernel wrote the path; a group outside what this process
// may see begins with "/..".
func groupMemory(root, lines string) (engine.Bytes, bool) {
	var group string
	for line := range strings.Lines(lines) {
		if rest, found := strings.CutPrefix(line, "0::"); found {
			group = strings.TrimSuffix(rest, "\n")
		}
	}
	if len(group) < 2 || group[0] != '/' || strings.Contains(group+"/", "/../") {
		return 0, false
	}
	dir := filepath.Join(root, group)
	current, err := os.ReadFile(filepath.Join(dir, "memory.current"))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(current)), 10, 64)
	if err != nil {
		return 0, false
	}
	stat, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(stat)) {
		if rest, found := strings.CutPrefix(line, "inactive_file "); found {
			files, err := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			if err != nil {
				return 0, false
			}
			return engine.Bytes(max(n-files, 0)), true
		}
	}
	return 0, false
}
