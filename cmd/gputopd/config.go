package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"time"

	"github.com/goccy/go-yaml"

	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/daemon"
	"gputop/engine/notice/deliver"
	"gputop/engine/policyfile"
	"gputop/profiles"
)

// fileConfig is the daemon's configuration file. A key it does not know is an error, with its line.
type fileConfig struct {
	Simulate       string `yaml:"simulate"`
	NVMLLibrary    string `yaml:"nvml_library"`
	SampleInterval string `yaml:"sample_interval"`
	Profile        string `yaml:"default_profile"`
	Class          string `yaml:"default_class"`
	TimeLimit      string `yaml:"default_time_limit"`
	StopGrace      string `yaml:"stop_grace"`
	MaxPending     int    `yaml:"max_pending_per_user"`
	AdminGroup     string `yaml:"admin_group"`
	LogLimit       string `yaml:"log_limit"`
	KeepEnded      *int   `yaml:"keep_ended_jobs"`
	KeepLogs       string `yaml:"keep_logs"`
	EnableLinger   bool   `yaml:"enable_linger"`
	Gate           string `yaml:"gate"`
	Guard          string `yaml:"memory_guard"`
	GuardGrace     string `yaml:"memory_guard_grace"`
	Metrics        string `yaml:"metrics"`
	// Scheduling is the policy of gputop sim replay, key by key.
	Scheduling policyfile.File `yaml:"scheduling"`
	Everyone   fileRule        `yaml:"everyone"`
	Groups     []fileGroup     `yaml:"groups"`
	Users      []fileUser      `yaml:"users"`
	// Notices and ReclaimIdle are in config_notices.go.
	Notices     noticesConfig `yaml:"notices"`
	ReclaimIdle string        `yaml:"reclaim_idle"`
	// Images is in config_images.go.
	Images imagesConfig `yaml:"images"`
}

// config is what the file and the flags say together.
type config struct {
	simulate string
	library  string
	interval time.Duration
	policy   daemon.Policy
	// linger makes users linger when their first agent starts.
	linger bool
	// unknown are groups with a rule that this machine does not know: the rule applies to nobody.
	unknown []string
	notices deliver.Options
	// metrics is the TCP address on which Prometheus may ask; empty for none.
	metrics string
}

// loadConfig reads a configuration file; one that does not exist is empty unless it was named. guarded refuses one that
// others may write.
func loadConfig(path string, named, guarded bool) (config, error) {
	c := config{interval: time.Second, policy: daemon.DefaultPolicy(), notices: defaultNotices()}
	b, err := readConfig(path, guarded)
	if errors.Is(err, fs.ErrNotExist) && !named {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	var f fileConfig
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil && !errors.Is(err, io.EOF) {
		// In one line: who started the daemon shows the last line of its log.
		return c, fmt.Errorf("configuration %s: %s", path, yaml.FormatError(err, false, false))
	}
	if err := f.apply(&c); err != nil {
		return c, fmt.Errorf("configuration %s: %s%w", path, placeOf(b, err), err)
	}
	return c, nil
}

func (f fileConfig) apply(c *config) error {
	c.simulate, c.library, c.linger = f.Simulate, f.NVMLLibrary, f.EnableLinger
	for _, d := range []struct {
		key, text string
		into      *time.Duration
	}{
		{"sample_interval", f.SampleInterval, &c.interval},
		{"default_time_limit", f.TimeLimit, &c.policy.TimeLimit},
		{"stop_grace", f.StopGrace, &c.policy.StopGrace},
		{"keep_logs", f.KeepLogs, &c.policy.KeepLogs},
		{"memory_guard_grace", f.GuardGrace, &c.policy.GuardGrace},
	} {
		if d.text == "" {
			continue
		}
		v, err := engine.ParseDuration(d.text)
		if err != nil {
			return badKey("$", d.key, err)
		}
		if v < 0 || v == 0 && d.into != &c.policy.StopGrace && d.into != &c.policy.KeepLogs && d.into != &c.policy.GuardGrace {
			return badKey("$", d.key, errors.New("must be more than zero"))
		}
		*d.into = v
	}
	if f.Class != "" {
		cl, err := engine.ParseClass(f.Class)
		if err == nil && cl == engine.Critical {
			err = errCriticalDefault
		}
		if err != nil {
			return badKey("$", "default_class", err)
		}
		c.policy.Class = cl
	}
	if f.Profile != "" {
		if _, err := profiles.Get(f.Profile); err != nil {
			return badKey("$", "default_profile", err)
		}
		c.policy.Profile = f.Profile
	}
	if f.AdminGroup != "" {
		c.policy.AdminGroup = f.AdminGroup
	}
	if f.Gate != "" {
		m, err := gate.ParseMode(f.Gate)
		if err != nil {
			return badKey("$", "gate", err)
		}
		c.policy.Gate = m
	}
	if f.Guard != "" {
		g, err := daemon.ParseGuard(f.Guard)
		if err != nil {
			return badKey("$", "memory_guard", err)
		}
		c.policy.Guard = g
	}
	if f.Metrics != "" {
		if host, port, err := net.SplitHostPort(f.Metrics); err != nil || host == "" || port == "" {
			return badKey("$", "metrics", fmt.Errorf("%q is no address: write it as 127.0.0.1:9406; 0.0.0.0:9406 is open to the network", f.Metrics))
		}
		c.metrics = f.Metrics
	}
	if f.MaxPending < 0 {
		return badKey("$", "max_pending_per_user", fmt.Errorf("%d is negative", f.MaxPending))
	}
	if f.MaxPending > 0 {
		c.policy.MaxPending = f.MaxPending
	}
	if err := f.applyScheduling(&c.policy); err != nil {
		return err
	}
	if err := f.applyPeople(c); err != nil {
		return err
	}
	if err := f.applyNotices(c); err != nil {
		return err
	}
	if err := f.applyImages(c); err != nil {
		return err
	}
	return f.applyKept(&c.policy)
}

// applyScheduling is the part about who starts first, and who gives way.
func (f fileConfig) applyScheduling(p *daemon.Policy) (err error) {
	p.Scheduler, err = f.Scheduling.Resolve()
	var bad *policyfile.KeyError
	if errors.As(err, &bad) {
		return badKey("$.scheduling", bad.Key, bad.Err)
	}
	p.Scheduler.Grace = p.StopGrace
	return err
}

// applyPeople is the part about who may have what.
func (f fileConfig) applyPeople(c *config) (err error) {
	c.policy.People, c.unknown, err = f.people(groupID)
	return err
}

// leastLogLimit is the smallest log that is worth reading.
const leastLogLimit = 1 << 20

// applyKept is the part about what is kept of jobs, and for how long.
func (f fileConfig) applyKept(p *daemon.Policy) error {
	if f.LogLimit != "" && f.LogLimit != "0" {
		n, err := engine.ParseBytes(f.LogLimit)
		if err != nil {
			return badKey("$", "log_limit", err)
		}
		if n < leastLogLimit {
			return badKey("$", "log_limit", fmt.Errorf("%s is too little: want %s or more, or 0 for no limit", n, engine.Bytes(leastLogLimit)))
		}
		p.LogLimit = n
	} else if f.LogLimit == "0" {
		p.LogLimit = 0
	}
	if f.KeepEnded != nil {
		if *f.KeepEnded < 0 {
			return badKey("$", "keep_ended_jobs", fmt.Errorf("%d is negative", *f.KeepEnded))
		}
		p.KeepEnded = *f.KeepEnded
	}
	return nil
}
