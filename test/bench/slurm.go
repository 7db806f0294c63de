package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// slurm is a controller of the bench's own, run by the account, with one node that is down: its jobs wait as ours do.
// It answers sbatch from memory and writes its state some seconds later; gputop has the job on disk when it answers.
type slurm struct {
	place      *place
	env        []string
	munged     *service
	controller *service
	submitted  int
	version    string
}

// slurmPrograms are where Debian's packages slurmctld, slurm-client and munge put them; root's PATH may lack sbin.
func slurmPrograms() error {
	var missing []string
	for _, name := range []string{"slurmctld", "munged", "sbatch", "squeue", "scancel"} {
		if program(name) == "" {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fmt.Errorf("%s not found (apt-get install slurmctld slurm-client munge)", strings.Join(missing, ", "))
	}
	return nil
}

func program(name string) string {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path
		}
	}
	return ""
}

const slurmConf = `ClusterName=bench
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[2]d
SlurmUser=%[3]s
AuthType=auth/munge
AuthInfo=socket=%[4]s/munge.socket
CredType=cred/munge
StateSaveLocation=%[4]s/slurm
SlurmctldPidFile=%[4]s/slurmctld.pid
SlurmdSpoolDir=%[4]s/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SchedulerType=sched/backfill
MailProg=/bin/true
MaxJobCount=100000
NodeName=%[1]s NodeAddr=127.0.0.1 CPUs=1 State=DOWN
PartitionName=bench Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`

func startSlurm(ctx context.Context, p *place) (*slurm, error) {
	if err := slurmPrograms(); err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	host, _, _ = strings.Cut(host, ".")
	dir := filepath.Join(p.dir, "slurm")
	conf := filepath.Join(dir, "slurm.conf")
	key := make([]byte, 128)
	rand.Read(key)
	err = errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(filepath.Join(dir, "slurm"), 0o700),
		os.WriteFile(filepath.Join(dir, "munge.key"), key, 0o600),
		os.WriteFile(conf, fmt.Appendf(nil, slurmConf, host, port, p.who.Name, dir), 0o600))
	if err != nil {
		return nil, err
	}
	s := &slurm{place: p, env: []string{"SLURM_CONF=" + conf}}
	in := func(name string) string { return filepath.Join(dir, name) }
	s.munged, err = p.serve("munged", nil, program("munged"), "--foreground", "--force", "--key-file", in("munge.key"),
		"--socket", in("munge.socket"), "--pid-file", in("munge.pid"), "--log-file", in("munge.log"), "--seed-file", in("munge.seed"))
	if err != nil {
		return nil, err
	}
	s.controller, err = p.serve("slurmctld", s.env, program("slurmctld"), "-D", "-f", conf)
	if err == nil {
		err = s.controller.ready(ctx, func() error {
			_, _, err := s.place.timed(ctx, s.env, program("squeue"), "--noheader")
			return err
		})
	}
	if err != nil {
		s.stop()
		return nil, err
	}
	if _, out, err := p.timed(ctx, s.env, program("sbatch"), "--version"); err == nil {
		s.version = strings.TrimSpace(out)
	}
	return s, nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// submit times one sbatch and says which job it made.
func (s *slurm) submit(ctx context.Context) (time.Duration, string, error) {
	took, out, err := s.place.timed(ctx, s.env, program("sbatch"), "--parsable", "--output", "/dev/null", "--wrap", "true")
	return took, strings.TrimSpace(out), err
}

func (s *slurm) cancel(ctx context.Context, id string) error {
	_, _, err := s.place.timed(ctx, s.env, program("scancel"), id)
	return err
}

// fill brings the queue to n jobs of their own: an array would be one record.
func (s *slurm) fill(ctx context.Context, n int) error {
	const workers = 4
	var (
		wg   sync.WaitGroup
		errs [workers]error
	)
	for w := range workers {
		wg.Go(func() {
			for i := s.submitted + w; i < n && errs[w] == nil; i += workers {
				_, _, errs[w] = s.submit(ctx)
			}
		})
	}
	wg.Wait()
	s.submitted = n
	return errors.Join(errs[:]...)
}

// list times squeue and checks that it showed the whole queue.
func (s *slurm) list(ctx context.Context, n int) (time.Duration, error) {
	took, out, err := s.place.timed(ctx, s.env, program("squeue"))
	return took, errors.Join(err, wantLines("squeue", out, n))
}

func wantLines(what, out string, n int) error {
	if got := bytes.Count([]byte(out), []byte("\n")); got < n {
		return fmt.Errorf("%s printed %d lines for %d jobs:\n%.300s", what, got, n, out)
	}
	return nil
}

func (s *slurm) stop() {
	if s.controller != nil {
		s.controller.stop()
	}
	s.munged.stop()
}
