package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/quota"
)

func TestConfigProblemsAreOneLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "simulate: t4:1\nstop_grase: 5s\n", `[2:1] unknown field "stop_grase"`},
		{"a list for a word", "simulate: [1]\n", "[1:11] "},
		{"no YAML", "simulate: 'x\n", "[1:11] "},
		{"no time", "sample_interval: soon\n", "sample_interval: "},
		{"a tiny log", "log_limit: 4k\n", "log_limit: 4KiB is too little"},
		{"no amount", "log_limit: much\n", "log_limit: "},
		{"negative number", "keep_ended_jobs: -1\n", "keep_ended_jobs: -1 is negative"},
		{"no time to keep", "keep_logs: ever\n", "keep_logs: "},
		{"a group twice", "groups:\n- name: root\n- name: root\n", `[3:9] groups[1].name: there is a second rule for group root`},
		{"negative quota", "users:\n- name: ada\n  max_gpus: -1\n", `[3:13] users[0].max_gpus: -1: want a number from 0`},
		{"critical granted", "everyone:\n  classes: [low, critical]\n", `[2:18] everyone.classes[1]: critical is for admins`},
		{"no class", "everyone: {classes: []}\n", `everyone.classes: with no class`},
		{"default outside", "everyone: {classes: [low], default_class: high}\n", `everyone.default_class: high is not one`},
		{"a kernel tree", "everyone:\n  mounts: ['/data:/data', '/dev:/x']\n", `[2:27] everyone.mounts[1]: /dev lies in /dev, which is never mounted`},
		{"a system tree", "everyone: {mounts: ['/data:/usr']}\n", `everyone.mounts[0]: /usr would cover the image's own files`},
		{"two mounts", "everyone: {mounts: ['/a:/x', '/b:/x']}\n", `everyone.mounts[1]: two mounts go to /x`},
		{"an empty pattern", "everyone:\n  images: ['', 'a']\n", `[2:12] everyone.images[0]: "" is no pattern for images`},
		{"critical by default", "default_class: critical\n", `[1:16] default_class: critical is for admins`},
		{"critical by a rule", "everyone: {default_class: critical}\n", `everyone.default_class: critical is for admins`},
		{"a default too long", "everyone:\n  default_time_limit: 2d\n  max_time_limit: 1d\n", `[2:23] everyone.default_time_limit: 48h0m0s is longer than max_time_limit of the same rule, 24h0m0s`},
		{"relative mount", "groups:\n- name: root\n  mounts: [data]\n", `[3:12] groups[0].mounts[0]: `},
		{"unknown key of a rule", "groups:\n- name: root\n  max_gpu: 1\n", `[3:3] unknown field "max_gpu"`},
		{"together", "groups:\n- name: root\n  together: {max_memory: lots}\n", `[3:26] groups[0].together.max_memory: `},
		{"no name", "users:\n- max_gpus: 1\n", `users[0].name: want the name of a user`},
		{"high gives way", "scheduling:\n  preemptible: [high]\n", `[2:16] scheduling.preemptible: high does not give way`},
		{"no such policy", "scheduling: {policy: fast}\n", `[1:22] scheduling.policy: "fast" is none: want one of balanced, urgent, throughput`},
		{"unknown key of the policy", "scheduling:\n  preempt_waits: 3m\n", `[2:3] unknown field "preempt_waits"`},
		{"no budget", "users:\n- name: ada\n  max_gpu_hours: 100\n", `[3:18] users[0].max_gpu_hours: "100": write GPU hours and days`},
		{"a budget of hours", "users:\n- name: ada\n  max_gpu_hours: 10 in 36h\n", `write GPU hours and days, up to 90`},
		{"no such guard", "memory_guard: kill\n", `[1:15] memory_guard: "kill": want off, warn or stop`},
		{"no address", "metrics: 9406\n", `[1:10] metrics: "9406" is no address`},
		{"no host", "metrics: ':9406'\n", `metrics: ":9406" is no address`},
		{"no weight", "users:\n- name: ada\n  weight: 0\n", `[3:11] users[0].weight: 0: want a number from 0.001 to 1000`},
		{"no time", "everyone: {max_time_limit: 0s}\n", `[1:28] everyone.max_time_limit: must be more than zero`},
		{"no mode of the gate", "gate: closed\n", `[1:7] gate: "closed": want observe, warn or enforce`},
		{"no profile", "default_profile: nope\n", `default_profile: no profile "nope"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := loadConfig(path, true, false)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

// A personal daemon has no gate: it says so rather than let its user believe in one.
func TestGateIsForTheSharedMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte("gate: enforce\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&serveFlags{personal: true, configFile: path}).loadConfig(); err == nil || !strings.Contains(err.Error(), "is for the shared mode") {
		t.Errorf("personal: %v", err)
	}
	c, err := loadConfig(path, true, false)
	if err != nil || c.policy.Gate != gate.Enforce {
		t.Errorf("%q, %v", c.policy.Gate, err)
	}
}

func TestConfigOfWhatIsKept(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit engine.Bytes
		ended int
		logs  time.Duration
	}{
		{"", engine.GiB, 5000, 30 * 24 * time.Hour},
		{"log_limit: 64MiB\nkeep_ended_jobs: 7\nkeep_logs: 2d\n", 64 * engine.MiB, 7, 48 * time.Hour},
		{"log_limit: 0\nkeep_ended_jobs: 0\nkeep_logs: 0s\n", 0, 0, 0},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadConfig(path, true, false)
		if p := got.policy; err != nil || p.LogLimit != c.limit || p.KeepEnded != c.ended || p.KeepLogs != c.logs {
			t.Errorf("%q: %s, %d, %s, %v", c.text, p.LogLimit, p.KeepEnded, p.KeepLogs, err)
		}
	}
}

func TestConfigOfPeople(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := `
everyone: {max_gpus: 2, max_running: 4, classes: [medium, low], default_class: low, default_time_limit: 2h, max_time_limit: 2d, images: [localhost/*]}
groups:
- name: root
  max_memory: 8GiB
  mounts: [/data:/data:ro]
  together: {max_gpus: 3.5, max_cpus: 4}
- name: no-such-group-here
  max_pending: 7
users:
- name: ada
  max_gpus: 8
  weight: 3
scheduling: {policy: urgent, preemptible: [low, medium]}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(path, true, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.unknown) != 1 || c.unknown[0] != "no-such-group-here" || len(c.policy.Scheduler.Of) != 2 || c.policy.Scheduler.Loss >= 0 {
		t.Errorf("unknown %v, scheduler %+v", c.unknown, c.policy.Scheduler)
	}
	terms := c.policy.People.For("ada", []uint32{0})
	class, limit := terms.Default()
	if terms.Quota.String() != "8 GPUs, 4 jobs, 8GiB of memory" || class != engine.Low || limit != 2*time.Hour || terms.MaxTimeLimit != 48*time.Hour ||
		len(terms.Groups) != 1 || terms.Groups[0].Together.String() != "3.5 GPUs, 4 CPUs" || len(terms.Mounts) != 1 || !terms.Mounts[0].ReadOnly ||
		!terms.Allows("localhost/x") || terms.Allows("docker.io/x") || terms.From[quota.KeyMemory] != "group root" || terms.MaxPending != nil || terms.Weight == nil || *terms.Weight != 3 {
		t.Errorf("terms %+v", terms)
	}
}

func TestConfigOfOthersIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	write := func(mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for mode, want := range map[os.FileMode]string{0o644: "", 0o600: "", 0o664: "others may write it (mode 0664)", 0o602: "others may write it (mode 0602)"} {
		write(mode)
		_, err := loadConfig(path, true, true)
		if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("mode %o: %v, want %q", mode, err, want)
		}
	}
	write(0o644)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := loadConfig(path, true, true); err == nil || !strings.Contains(err.Error(), "directory of") {
		t.Errorf("in a directory of everybody: %v", err)
	}
	if os.Geteuid() != 0 {
		return // the rest needs another owner
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 4242, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := loadConfig(path, true, true); err == nil || !strings.Contains(err.Error(), "belongs to uid 4242") {
		t.Errorf("of somebody else: %v", err)
	}
}
