package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"syscall"
	"time"
)

const (
	// reloadLook is how often the configuration is looked at for a change.
	reloadLook = 2 * time.Second
	// groupsLook is how often it is read though it has not changed: a group with a rule may have been made since.
	groupsLook = time.Minute
)

// reloader keeps the daemon to its configuration file. A bad one leaves the earlier in force.
type reloader struct {
	path    string
	load    func() (config, error)
	inForce config
	// take puts a configuration in force; problem says what is wrong with the file, or that nothing is.
	take    func(config)
	problem func(string)
	log     *slog.Logger

	seen os.FileInfo
	last string // the problem that was told last
}

// run looks at the file until ctx is done, and at once when the daemon gets SIGHUP.
func (r *reloader) run(ctx context.Context, look, groups time.Duration) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	tick := time.NewTicker(look)
	defer tick.Stop()
	for at := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			r.log.Info("asked to read the configuration again")
			r.last = ""
		case <-tick.C:
			if !r.changed() && time.Since(at) < groups {
				continue
			}
		}
		at = time.Now()
		r.reload()
	}
}

// changed says whether the file is another one, or has been written, since it was looked at last.
func (r *reloader) changed() bool {
	fi, err := os.Stat(r.path)
	was := r.seen
	if err != nil {
		r.seen = nil
		return was != nil
	}
	r.seen = fi
	return was == nil || !os.SameFile(was, fi) || !was.ModTime().Equal(fi.ModTime()) || was.Size() != fi.Size() || was.Mode() != fi.Mode()
}

func (r *reloader) reload() {
	c, err := r.load()
	if err != nil {
		if err.Error() != r.last {
			r.log.Error("the configuration is not taken; the earlier one stays in force", "err", err)
		}
		r.last = err.Error()
		r.problem(err.Error())
		return
	}
	r.last = ""
	r.problem("")
	if reflect.DeepEqual(c, r.inForce) {
		return
	}
	r.tellFixed(c)
	tellUnknown(r.log, c)
	r.take(c)
	r.inForce = c
	r.log.Info("the configuration was read again and is in force")
}

// tellFixed says what a running daemon does not change.
func (r *reloader) tellFixed(c config) {
	for key, differs := range map[string]bool{"simulate": c.simulate != r.inForce.simulate, "nvml_library": c.library != r.inForce.library,
		"sample_interval": c.interval != r.inForce.interval} {
		if differs {
			r.log.Warn("a changed setting takes effect when the daemon is next started", "key", key)
		}
	}
}

// tellUnknown names the groups with a rule that this machine does not have.
func tellUnknown(log *slog.Logger, c config) {
	for _, g := range c.unknown {
		log.Warn("a rule is for a group that this machine does not know: it applies to nobody", "group", g)
	}
}
