package main

import (
	"fmt"
	"path/filepath"
	"time"

	"gputop/engine"
	"gputop/engine/notice/deliver"
)

// sendmail is where every local mail system has its sendmail.
const sendmail = "/usr/sbin/sendmail"

// noticesConfig is what an admin may say about notices.
type noticesConfig struct {
	// Mail is true, false or the path of a sendmail.
	Mail      any      `yaml:"mail"`
	Command   []string `yaml:"command"`
	User      string   `yaml:"user"`
	PerHour   *int     `yaml:"per_hour"`
	WaitAfter string   `yaml:"wait_after"`
	IdleAfter string   `yaml:"idle_after"`
}

func defaultNotices() deliver.Options { return deliver.Options{As: "nobody", PerHour: 20} }

func (f fileConfig) applyNotices(c *config) error {
	n := f.Notices
	switch m := n.Mail.(type) {
	case nil:
	case bool:
		if m {
			c.notices.Mail = sendmail
		}
	case string:
		if !filepath.IsAbs(m) {
			return fmt.Errorf("notices.mail: %q: want true, false or the full path of a sendmail", m)
		}
		c.notices.Mail = m
	default:
		return fmt.Errorf("notices.mail: want true, false or the full path of a sendmail")
	}
	if len(n.Command) > 0 {
		if !filepath.IsAbs(n.Command[0]) {
			return fmt.Errorf("notices.command: %q: want a full path", n.Command[0])
		}
		c.notices.Command = n.Command
	}
	if n.User == "root" {
		return fmt.Errorf("notices.user: programs for notices never run as root")
	}
	if n.User != "" {
		c.notices.As = n.User
	}
	if n.PerHour != nil {
		if *n.PerHour < 1 {
			return fmt.Errorf("notices.per_hour: %d: want 1 or more", *n.PerHour)
		}
		c.notices.PerHour = *n.PerHour
	}
	for _, d := range []struct {
		key, text string
		into      *time.Duration
	}{
		{"notices.wait_after", n.WaitAfter, &c.policy.Notices.WaitAfter},
		{"notices.idle_after", n.IdleAfter, &c.policy.Notices.IdleAfter},
		{"reclaim_idle", f.ReclaimIdle, &c.policy.Notices.ReclaimAfter},
	} {
		if d.text == "" {
			continue
		}
		v, err := engine.ParseDuration(d.text)
		if err != nil {
			return fmt.Errorf("%s: %w", d.key, err)
		}
		if v < 0 {
			return fmt.Errorf("%s: is negative", d.key)
		}
		*d.into = v
	}
	if p := c.policy.Notices; p.ReclaimAfter > 0 && p.IdleAfter == 0 {
		return fmt.Errorf("reclaim_idle: needs notices.idle_after, for nobody is stopped who was not told")
	}
	return nil
}
