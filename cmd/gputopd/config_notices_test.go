package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestConfigOfNotices(t *testing.T) {
	for _, c := range []struct{ text, want, bad string }{
		{"", " [] nobody 20 30m0s 1h0m0s 0s", ""},
		{"notices: {mail: true}\n", "/usr/sbin/sendmail [] nobody 20 30m0s 1h0m0s 0s", ""},
		{"notices: {mail: false}\n", " [] nobody 20 30m0s 1h0m0s 0s", ""},
		{"notices:\n  mail: /opt/sendmail\n  command: [/opt/tell, -x]\n  user: mailer\n  per_hour: 3\n  wait_after: 0s\n  idle_after: 2h\nreclaim_idle: 30m\n",
			"/opt/sendmail [/opt/tell -x] mailer 3 0s 2h0m0s 30m0s", ""},
		{"notices: {mail: sendmail}\n", "", "notices.mail: "},
		{"notices: {mail: 3}\n", "", "notices.mail: "},
		{"notices: {command: [tell]}\n", "", "notices.command: "},
		{"notices: {user: root}\n", "", "notices.user: "},
		{"notices: {per_hour: 0}\n", "", "notices.per_hour: 0"},
		{"notices: {wait_after: soon}\n", "", "notices.wait_after: "},
		{"notices: {idle_after: -1h}\n", "", "notices.idle_after: "},
		{"notices: {male: true}\n", "", "male"},
		{"notices: {idle_after: 0s}\nreclaim_idle: 1h\n", "", "reclaim_idle: "},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadConfig(path, true, false)
		n, p := got.notices, got.policy.Notices
		is := fmt.Sprint(n.Mail, " ", n.Command, " ", n.As, " ", n.PerHour, " ", p.WaitAfter, " ", p.IdleAfter, " ", p.ReclaimAfter)
		switch {
		case c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)):
			t.Errorf("%q: %v, want %s", c.text, err, c.bad)
		case c.bad == "" && (err != nil || is != c.want):
			t.Errorf("%q: %s, %v; want %s", c.text, is, err, c.want)
		}
	}
}

func TestConfigOfImages(t *testing.T) {
	for _, c := range []struct{ text, want, bad string }{
		{"", " []", ""},
		{"images: {archives: /srv/images/, ready: [python, 'ghcr.io/lab/tool:2']}\n", "/srv/images [docker.io/library/python:latest ghcr.io/lab/tool:2]", ""},
		{"images: {archives: images}\n", "", "images.archives: "},
		{"images: {ready: [python]}\n", "", "images.ready: "},
		{"images: {archives: /a, ready: [Python]}\n", "", "images.ready: "},
		{"images: {archives: /a, ready: [0123456789abcdef]}\n", "", "images.ready: "},
		{"images: {archives: /a, allowed: [x]}\n", "", "allowed"},
	} {
		path := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := loadConfig(path, true, false)
		is := fmt.Sprint(got.policy.ImageArchives, " ", got.policy.ReadyImages)
		switch {
		case c.bad != "" && (err == nil || !strings.Contains(err.Error(), c.bad)):
			t.Errorf("%q: %v, want %s", c.text, err, c.bad)
		case c.bad == "" && (err != nil || is != c.want):
			t.Errorf("%q: %s, %v; want %s", c.text, is, err, c.want)
		}
	}
}
