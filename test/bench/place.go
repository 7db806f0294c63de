package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gputop/engine/runner/account"
)

// place is where everything runs: one directory of the account's.
type place struct {
	who      account.Account
	dir      string
	work     string // the jobs' working directory
	gputop   string
	gputopd  string
	fsyncing *os.File
}

func newPlace(who account.Account, f flags) (*place, error) {
	bin, err := filepath.Abs(f.bin)
	if err != nil {
		return nil, err
	}
	p := &place{who: who, gputop: filepath.Join(bin, "gputop"), gputopd: filepath.Join(bin, "gputopd")}
	for _, path := range []string{p.gputop, p.gputopd} {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("%w: run make build first", err)
		}
	}
	if p.dir, err = os.MkdirTemp(f.dir, "gputop-bench-"); err != nil {
		return nil, err
	}
	p.work = filepath.Join(p.dir, "work")
	err = errors.Join(os.Mkdir(p.work, 0o700), os.Mkdir(p.state(), 0o700))
	if err == nil {
		p.fsyncing, err = os.Create(filepath.Join(p.state(), "fsync"))
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(p.dir))
	}
	return p, nil
}

func (p *place) remove() error { return errors.Join(p.fsyncing.Close(), os.RemoveAll(p.dir)) }

func (p *place) state() string  { return filepath.Join(p.dir, "state") }
func (p *place) socket() string { return filepath.Join(p.state(), "gputop.sock") }

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("%w: run make build first", err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// command is a program as the account would start it from its shell in the working directory. Beside the account's own
// environment it gets what is named in env.
func (p *place) command(ctx context.Context, env []string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = p.work
	cmd.Env = append(append(account.PodmanEnv(p.who), "LANG=C.UTF-8", "GPUTOP_SOCKET="+p.socket()), env...)
	return cmd
}

// timed runs a program to its end and says how long that took, from before the fork.
func (p *place) timed(ctx context.Context, env []string, argv ...string) (time.Duration, string, error) {
	var out, errs bytes.Buffer
	cmd := p.command(ctx, env, argv...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s%s", strings.Join(argv, " "), err, errs.Bytes(), out.Bytes())
	}
	return took, out.String(), err
}

// fsync writes 4 KiB over the last ones and waits for the disk.
func (p *place) fsync() (time.Duration, error) {
	block := make([]byte, 4096)
	start := time.Now()
	_, err := p.fsyncing.WriteAt(block, 0)
	err = errors.Join(err, p.fsyncing.Sync())
	return time.Since(start), err
}

// service is a program that runs beside the bench; what it says goes to a log.
type service struct {
	cmd   *exec.Cmd
	log   string
	ended chan struct{} // closed when it has ended
}

func (p *place) serve(name string, env []string, argv ...string) (*service, error) {
	log, err := os.Create(filepath.Join(p.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &service{cmd: p.command(context.Background(), env, argv...), log: log.Name(), ended: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // ctrl-C is for the bench, which then ends it in order
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() { s.cmd.Wait(); close(s.ended) }()
	return s, nil
}

// ready asks until ok answers without an error, and says what the service said if it does not come up.
func (s *service) ready(ctx context.Context, ok func() error) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var err error
	for {
		if err = ok(); err == nil {
			return nil
		}
		select {
		case <-s.ended:
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			continue
		}
		return fmt.Errorf("%s does not answer: %w\n%s", filepath.Base(s.cmd.Path), err, s.said())
	}
}

// alive reports a service that ended by itself, with its last words.
func (s *service) alive() error {
	select {
	case <-s.ended:
		return fmt.Errorf("%s ended by itself (%s)\n%s", filepath.Base(s.cmd.Path), s.cmd.ProcessState, s.said())
	default:
		return nil
	}
}

// said is the end of the service's log.
func (s *service) said() []byte {
	text, err := os.ReadFile(s.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-4000):]
}

// stop asks the program to end, and after ten seconds no longer asks.
func (s *service) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.ended
	}
}
