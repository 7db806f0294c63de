// Command bench times whole gputop commands, as a person's shell would wait for them, against a real daemon with a
// SIMULATED card: submit and ls with a short and a long queue, beside the disk's fsync and, where installed, Slurm's
// sbatch and squeue; and a job's start beside a bare podman run. What is compared is run in turns, so that both meet
// the same machine. It measures and judges nothing: a missed aim is printed, not an error. It must not touch a gputop
// or Slurm that is installed, and leaves nothing behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gputop/engine/runner/account"
)

// testAccount is the ordinary account that a bench started by root makes and removes: containers never run as root.
const testAccount = "gputop-bench"

type flags struct {
	rounds, starts int
	pending        []int
	dir, bin       string
	slurm          bool
	ready          bool // the account has the demo image
}

func parseFlags() (flags, error) {
	var f flags
	flag.IntVar(&f.rounds, "rounds", 25, "how often each command is timed at each length of the queue")
	flag.IntVar(&f.starts, "starts", 9, "how often a job's start is timed; 0 leaves it out")
	flag.StringVar(&f.dir, "dir", "/var/tmp", "where the state is kept during the run: a real disk, for the sake of fsync")
	flag.StringVar(&f.bin, "bin", "bin", "where gputop and gputopd are")
	flag.BoolVar(&f.slurm, "slurm", true, "time Slurm too, where it is installed")
	flag.BoolVar(&f.ready, "account-ready", false, "the demo image is there already (root's run uses this)")
	pending := flag.String("pending", "10,10000", "lengths of the queue, rising")
	flag.Parse()
	for _, s := range strings.Split(*pending, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || len(f.pending) > 0 && n <= f.pending[len(f.pending)-1] {
			return f, fmt.Errorf("-pending %q: want rising numbers such as 10,10000", *pending)
		}
		f.pending = append(f.pending, n)
	}
	if f.rounds < 1 || f.starts < 0 {
		return f, errors.New("-rounds must be at least 1 and -starts at least 0")
	}
	return f, nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	f, err := parseFlags()
	if err != nil {
		return err
	}
	if os.Getuid() == 0 {
		return asTestAccount(ctx, f)
	}
	if !f.ready {
		if err := script(ctx, "scripts/demo-image"); err != nil {
			return err
		}
	}
	return measure(ctx, f)
}

// measure runs as an ordinary account.
func measure(ctx context.Context, f flags) (err error) {
	who, err := account.Current(ctx)
	if err != nil {
		return err
	}
	p, err := newPlace(who, f)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.remove()) }()
	g, err := startGputop(ctx, p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stop()) }()
	b := &bench{flags: f, place: p, gputop: g}
	if f.slurm {
		if b.slurm, err = startSlurm(ctx, p); err != nil {
			fmt.Println("Slurm is left out:", err)
		} else {
			defer b.slurm.stop()
			fmt.Println("beside", b.slurm.version)
		}
	}
	fmt.Printf("account %s, state on %s, %s\n", who.Name, f.dir, time.Now().Format(time.DateTime))
	if err := b.starting(ctx); err != nil {
		return err
	}
	for _, n := range f.pending {
		if err := b.queue(ctx, n); err != nil {
			return fmt.Errorf("with %d pending: %w", n, err)
		}
	}
	return b.table.print(os.Stdout)
}

// asTestAccount makes an ordinary account, runs this program again as that one, and removes the account.
func asTestAccount(ctx context.Context, f flags) (err error) {
	defer func() {
		err = errors.Join(err, script(context.WithoutCancel(ctx), "scripts/test-account", "--remove", testAccount))
	}()
	if err := script(ctx, "scripts/test-account", testAccount); err != nil {
		return err
	}
	who, err := account.Lookup(ctx, testAccount)
	if err != nil {
		return err
	}
	// Copies, because the account may not reach this tree.
	dir, err := os.MkdirTemp(f.dir, "gputop-bench-programs-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	copies := filepath.Join(dir, "bench")
	err = errors.Join(os.Chmod(dir, 0o755), copyProgram(self, copies), copyProgram(filepath.Join(f.bin, "gputop"),
		filepath.Join(dir, "gputop")), copyProgram(filepath.Join(f.bin, "gputopd"), filepath.Join(dir, "gputopd")))
	if err != nil {
		return err
	}
	// Flags that come last win.
	cmd := exec.CommandContext(ctx, copies, append(os.Args[1:], "-bin", dir, "-account-ready")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Dir, cmd.Env = who.Home, account.PodmanEnv(who)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: who.UID, Gid: who.GID}}
	return cmd.Run()
}

func script(ctx context.Context, argv ...string) error {
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}
