package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"gputop/cdi"
	"gputop/cdi/gate"
	"gputop/engine/api"
	"gputop/engine/daemon"
	"gputop/engine/gpu/simgpu"
	"gputop/engine/host"
	"gputop/engine/metrics"
	"gputop/engine/notice/deliver"
	"gputop/engine/sampler"
	"gputop/engine/store"
)

type serveFlags struct {
	personal, shared bool
	stateDir         string
	socket           string
	configFile       string
	cdiDir           string
	simulate         string
	library          string
	interval         time.Duration
	// people is asked who is who, by all parts.
	people *api.People
	agents *agentStarter
}

func serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the engine",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context())
		},
	}
	fl := c.Flags()
	fl.BoolVar(&f.personal, "personal", false, "for this user alone")
	fl.BoolVar(&f.shared, "shared", false, "for all users of this machine; needs root")
	fl.StringVar(&f.stateDir, "state-dir", "", "directory of the state (default /var/lib/gputop, or ~/.local/state/gputop)")
	fl.StringVar(&f.socket, "socket", "", "socket to listen on (default /run/gputop/gputop.sock, or gputop.sock in the state directory)")
	fl.StringVar(&f.configFile, "config", "", "configuration file (default /etc/gputop/config.yaml, or config.yaml in the state directory)")
	fl.StringVar(&f.cdiDir, "cdi-dir", "", "directory for leases (default /var/run/cdi in shared mode)")
	fl.StringVar(&f.simulate, "simulate", "", "use simulated GPUs, for example a100-40gb:4, or of a scenario, FILE.yaml")
	fl.StringVar(&f.library, "nvml-library", "", "path of libnvidia-ml.so.1")
	fl.DurationVar(&f.interval, "sample-interval", 0, "time between samples of the GPUs (default 1s, at least 200ms)")
	c.MarkFlagsMutuallyExclusive("personal", "shared")
	return c
}

// complete fills in the defaults of the mode.
func (f *serveFlags) complete() error {
	if !f.personal && !f.shared {
		f.shared = os.Geteuid() == 0
		f.personal = !f.shared
	}
	switch {
	case f.shared && os.Geteuid() != 0:
		return errors.New("the shared mode needs root; for yourself alone use --personal")
	case f.personal && os.Geteuid() == 0:
		return errors.New("root runs no personal daemon: containers never run as root; use --shared, or an ordinary account")
	}
	set := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	if f.shared {
		set(&f.stateDir, "/var/lib/gputop")
		set(&f.socket, "/run/gputop/gputop.sock")
		set(&f.cdiDir, "/var/run/cdi")
		return nil
	}
	if f.stateDir == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return fmt.Errorf("no state directory: %w", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		f.stateDir = filepath.Join(base, "gputop")
	}
	abs, err := filepath.Abs(f.stateDir)
	if err != nil {
		return err
	}
	f.stateDir = abs
	set(&f.socket, filepath.Join(f.stateDir, "gputop.sock"))
	return nil
}

// configPath is the configuration file, and whether it was named and so has to be there.
func (f *serveFlags) configPath() (path string, named bool) {
	switch {
	case f.configFile != "":
		return f.configFile, true
	case f.shared:
		return "/etc/gputop/config.yaml", false
	}
	return filepath.Join(f.stateDir, "config.yaml"), false
}

func (f *serveFlags) loadConfig() (config, error) {
	path, named := f.configPath()
	c, err := loadConfig(path, named, f.shared)
	if err != nil {
		return c, err
	}
	if !f.shared && c.policy.Gate != gate.Observe {
		return c, fmt.Errorf("configuration %s: gate: %s is for the shared mode: a personal daemon may not change device nodes", path, c.policy.Gate)
	}
	if f.simulate != "" {
		c.simulate = f.simulate
	}
	if f.library != "" {
		c.library = f.library
	}
	if f.interval != 0 {
		c.interval = f.interval
	}
	return c, nil
}

func (f *serveFlags) run(ctx context.Context) error {
	if err := f.complete(); err != nil {
		return err
	}
	conf, err := f.loadConfig()
	if err != nil {
		return err
	}
	log := newLog()
	m, err := managerOf()
	if err != nil {
		return err
	}
	st, err := store.Open(ctx, f.stateDir, store.Options{Now: time.Now, Log: log})
	if err != nil {
		return err
	}
	defer st.Close()
	o, err := f.options(conf, st, log)
	if err != nil {
		return err
	}
	d, err := daemon.New(ctx, o)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if f.shared {
		mode = 0o666
	}
	ln, err := api.ActivatedListener()
	if err == nil && ln == nil {
		if f.shared {
			// The directory of the default socket is gone after every boot.
			if err := os.MkdirAll(filepath.Dir(f.socket), 0o755); err != nil {
				return fmt.Errorf("directory of the socket: %w", err)
			}
		}
		ln, err = api.ListenUnix(f.socket, mode)
	}
	if err != nil {
		return err
	}
	return f.serve(ctx, d, ln, conf, st, log, m)
}

func (f *serveFlags) options(conf config, st *store.Store, log *slog.Logger) (daemon.Options, error) {
	boot, err := host.BootID()
	if err != nil {
		return daemon.Options{}, err
	}
	name, err := os.Hostname()
	if err != nil {
		return daemon.Options{}, fmt.Errorf("host name: %w", err)
	}
	f.people = api.NewPeople(api.LookupUser, 0)
	o := daemon.Options{Mode: daemon.Personal, Version: version, Host: name, Store: st, Policy: conf.policy, Log: log,
		SpecDirs: []string{"/etc/cdi", "/var/run/cdi"}, UserName: newNames(f.people).of, StateDir: f.stateDir,
		Groups: groupsOf(f.people),
		System: daemon.System{Now: time.Now, Boottime: host.Boottime, BootID: boot, CPUs: host.CPUs(), Memory: host.Memory(),
			Process: host.ReadProcess, Groups: host.Groups, Kill: host.Kill, HostMemory: host.ContainerMemory}}
	if n := conf.notices; n.Mail != "" || len(n.Command) > 0 {
		n.Store, n.Host, n.Now, n.Log = st, name, time.Now, log
		o.Deliver = deliver.New(n)
	}
	if f.shared {
		o.Account = accountOf(f.people)
		o.Mode, o.LeaseDir, o.GroupID, o.UserID = daemon.Shared, f.cdiDir, groupID, userID
		if f.cdiDir != "/var/run/cdi" {
			o.SpecDirs = append(o.SpecDirs, f.cdiDir)
		}
	} else {
		o.System.LockDevice = host.LockDevice
	}
	f.agents = &agentStarter{engineSocket: f.socket, stateDir: f.stateDir, instance: st.Instance(), shared: f.shared, groups: o.Groups, account: accountOf(f.people), log: log}
	f.agents.linger.Store(conf.linger)
	o.StartAgent = f.agents.start
	return o, f.simulated(conf, st, &o)
}

// simDir is where the simulated cards' files are: in shared mode where every user's container can reach them.
func (f *serveFlags) simDir() string {
	if f.shared {
		return filepath.Join(filepath.Dir(f.socket), "simulated")
	}
	return filepath.Join(f.stateDir, "simulated")
}

// simulated makes the files of simulated cards, and in shared mode the CDI spec that names them.
func (f *serveFlags) simulated(conf config, st *store.Store, o *daemon.Options) error {
	if conf.simulate == "" {
		return nil
	}
	c, err := simgpu.Parse(conf.simulate)
	if err != nil {
		return err
	}
	devs, err := simgpu.Prepare(f.simDir(), c, st.Instance())
	if err != nil {
		return err
	}
	// Cards without a timetable write nothing: a daemon has to start on a full disk.
	if len(c.Events) > 0 {
		if err := simgpu.Begin(f.simDir(), time.Now()); err != nil {
			return err
		}
	}
	for _, d := range devs {
		o.Devices = append(o.Devices, cdi.SimulatedDevice{Name: string(d.UUID), HostPath: d.HostPath, ContainerPath: d.ContainerPath})
	}
	if f.shared {
		if _, err := cdi.WriteSimulated(f.cdiDir, st.Instance(), o.Devices); err != nil {
			return err
		}
	}
	return nil
}

// serve runs the engine, its sampler and its listener until ctx is done or one of them fails.
func (f *serveFlags) serve(ctx context.Context, d *daemon.Daemon, ln net.Listener, conf config, st *store.Store, log *slog.Logger, m manager) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	admins := &adminGroup{shared: f.shared, log: log}
	admins.set(conf.policy.AdminGroup)
	scrape := metrics.Handler(d, version, time.Now)
	srv := api.NewServer(d, api.ServerOptions{Log: log, People: f.people, AdminGroups: admins.gids, Metrics: scrape})
	tellUnknown(log, conf)
	path, _ := f.configPath()
	reload := &reloader{path: path, load: f.loadConfig, inForce: conf, problem: d.SetConfigProblem, log: log,
		take: func(c config) {
			d.SetPolicy(c.policy)
			admins.set(c.policy.AdminGroup)
			f.agents.linger.Store(c.linger)
		}}
	argv, err := f.samplerArgv(conf, st)
	if err != nil {
		return err
	}
	sup := sampler.New(sampler.Options{Command: argv, Deadline: max(5*time.Second, 3*conf.interval), OnSample: d.TakeSample,
		OnState: func(s sampler.State) { log.Info("sampler", "phase", s.Phase, "pid", s.PID, "message", s.Message) }})
	files := []string{filepath.Join(f.stateDir, "gputop.db"), filepath.Join(f.stateDir, "lock")}
	parts := []func(context.Context) error{d.Run, func(ctx context.Context) error { return srv.Serve(ctx, ln) }, sup.Run,
		func(ctx context.Context) error { return serveMetrics(ctx, conf.metrics, scrape, log) },
		func(ctx context.Context) error { return watchFiles(ctx, lookEvery, files...) },
		func(ctx context.Context) error { return reload.run(ctx, reloadLook, groupsLook) },
		func(ctx context.Context) error { return m.keep(ctx, log, d.Alive) }}
	done := make(chan error, len(parts))
	for _, part := range parts {
		go func() { done <- part(ctx) }()
	}
	log.Info("gputop is ready", "socket", f.socket, "state", f.stateDir, "simulated", conf.simulate != "")
	var first error
	for range parts {
		err := <-done
		if err != nil && first == nil && ctx.Err() == nil {
			first = err
		}
		cancel(err)
	}
	return first
}

func (f *serveFlags) samplerArgv(conf config, st *store.Store) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	argv := []string{self, "sampler", "--interval", conf.interval.String()}
	if conf.simulate != "" {
		return append(argv, "--simulate", conf.simulate, "--sim-dir", f.simDir(), "--instance", st.Instance()), nil
	}
	if conf.library != "" {
		argv = append(argv, "--nvml-library", conf.library)
	}
	return argv, nil
}
