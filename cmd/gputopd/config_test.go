package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigProblemsAreOneLine(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"unknown key", "simulate: t4:1\nstop_grase: 5s\n", `[2:1] unknown field "stop_grase"`},
		{"a list for a word", "simulate: [1]\n", "[1:11] "},
		{"no YAML", "simulate: 'x\n", "[1:11] "},
		{"no time", "sample_interval: soon\n", "sample_interval: "},
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
