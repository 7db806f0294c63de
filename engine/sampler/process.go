package sampler

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"gputop/engine"
)

// lastWords is how long an ended process's standard error is read on.
const lastWords = 200 * time.Millisecond

// process is one sampler process.
type process struct {
	cmd     *exec.Cmd
	out     *os.File
	errs    *os.File
	stdin   *os.File
	samples chan engine.Sample
	stop    chan struct{} // closed when nobody takes samples any more
	heard   chan struct{} // closed at the end of standard error
	readers sync.WaitGroup
	exited  chan struct{}

	mu      sync.Mutex
	readErr error
	last    string // the last line on standard error
}

// start starts a sampler process. Its standard input stays open and silent: it ends when we die.
func start(o Options) (*process, error) {
	p := &process{samples: make(chan engine.Sample), stop: make(chan struct{}), exited: make(chan struct{}), heard: make(chan struct{})}
	var theirs []*os.File
	closeAll := func(files ...*os.File) {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	pipe := func(ours **os.File, read bool) (*os.File, error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		if !read {
			r, w = w, r
		}
		*ours = r
		theirs = append(theirs, w)
		return w, nil
	}
	out, err := pipe(&p.out, true)
	errs, err2 := pipe(&p.errs, true)
	in, err3 := pipe(&p.stdin, false)
	if err = errors.Join(err, err2, err3); err == nil {
		p.cmd = exec.Command(o.Command[0], o.Command[1:]...)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = in, out, errs, o.Env
		// A group of its own, so that a terminal's interrupt reaches us alone.
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		err = p.cmd.Start()
	}
	closeAll(theirs...)
	if err != nil {
		closeAll(p.out, p.errs, p.stdin)
		return nil, err
	}
	p.readers.Add(2)
	go p.readSamples()
	go p.readErrors()
	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.exited)
	}()
	return p, nil
}

// readSamples passes on one sample a line; a line that is too long or no sample ends the process's use.
func (p *process) readSamples() {
	defer p.readers.Done()
	defer close(p.samples)
	lines := bufio.NewScanner(p.out)
	lines.Buffer(make([]byte, 64<<10), MaxLine)
	for lines.Scan() {
		var s engine.Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			p.fail(fmt.Errorf("wrote something that is no sample: %w", err))
			return
		}
		select {
		case p.samples <- s:
		case <-p.stop:
			return
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		p.fail(fmt.Errorf("wrote a sample larger than %d bytes", MaxLine))
	}
}

func (p *process) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readErr = err
}

// readErrors keeps the last line of standard error, shortened.
func (p *process) readErrors() {
	defer p.readers.Done()
	defer close(p.heard)
	r := bufio.NewReaderSize(p.errs, 1024)
	for {
		line, _, err := r.ReadLine() // longer lines come in pieces; the last piece will do
		if s := strings.TrimSpace(string(line)); s != "" {
			p.mu.Lock()
			p.last = strings.ToValidUTF8(s[:min(len(s), 300)], "?")
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// kill ends the process, unless the driver holds it.
func (p *process) kill() {
	close(p.stop)
	_ = p.cmd.Process.Kill() // it may have ended already
}

// close ends the readers, also when a process that cannot die holds the other ends.
func (p *process) close() {
	select {
	case <-p.exited:
		// Its last words are still in the pipe; a grandchild may hold that open, so they are not waited for without end.
		select {
		case <-p.heard:
		case <-time.After(lastWords):
		}
	default:
	}
	_ = p.stdin.Close()
	_ = p.out.Close()
	_ = p.errs.Close()
	p.readers.Wait()
}

// word is how the process ended, with the last line of its standard error.
func (p *process) word(hung bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	switch {
	case hung:
		err = errHung
	case p.readErr != nil:
		err = p.readErr
	default:
		err = errors.New("ended")
		select {
		case <-p.exited:
			err = fmt.Errorf("ended (%s)", p.cmd.ProcessState)
		default:
		}
	}
	if p.last != "" {
		err = fmt.Errorf("%w, saying: %s", err, p.last)
	}
	return err
}
