package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gputop/engine"
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
		{"no profile", "default_profile: nope\n", `default_profile: no profile "nope"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := loadConfig(path, true)
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
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
		got, err := loadConfig(path, true)
		if p := got.policy; err != nil || p.LogLimit != c.limit || p.KeepEnded != c.ended || p.KeepLogs != c.logs {
			t.Errorf("%q: %s, %d, %s, %v", c.text, p.LogLimit, p.KeepEnded, p.KeepLogs, err)
		}
	}
}
