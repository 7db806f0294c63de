// Package simdevtest lets a test have real processes hold a simulated GPU: the test binary runs itself. It must be
// imported by tests only.
package simdevtest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/gpu/simgpu/simdev"
)

const childEnv = "GPUTOP_SIMDEVTEST_DEVICE"

// Main runs the tests, or in a child process serves the test that started it. Call it as TestMain.
func Main(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := serve(path, os.Stdin, os.Stdout); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve obeys one command a line, and answers each with a line: "ok" or the error.
func serve(path string, in io.Reader, out io.Writer) error {
	h, err := simdev.Open(path)
	if err != nil {
		return err
	}
	defer h.Close()
	fmt.Fprintln(out, "ok")
	for s := bufio.NewScanner(in); s.Scan(); {
		var verb string
		var value float64
		if _, err := fmt.Sscan(s.Text(), &verb, &value); err != nil {
			return err
		}
		switch verb {
		case "alloc":
			err = h.Alloc(engine.Bytes(value))
		case "free":
			err = h.Free(engine.Bytes(value))
		case "sm":
			err = h.SetSM(value)
		}
		if err == nil {
			fmt.Fprintln(out, "ok")
		} else {
			fmt.Fprintln(out, err)
		}
	}
	return nil
}

// Process is a process that holds a simulated GPU.
type Process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start starts a process that has the device open; it is killed at the end of the test.
func Start(t *testing.T, path string) *Process {
	t.Helper()
	p := &Process{t: t, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env = append(os.Environ(), childEnv+"="+path)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	p.in, p.out = in, bufio.NewReader(out)
	if s := p.line(); s != "ok" {
		t.Fatalf("process on %s: %s", path, s)
	}
	return p
}

func (p *Process) line() string {
	s, err := p.out.ReadString('\n')
	if err != nil {
		return "no answer: " + err.Error()
	}
	return strings.TrimSpace(s)
}

func (p *Process) do(format string, args ...any) string {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		return err.Error()
	}
	return p.line()
}

// PID is the process's number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alloc takes memory and returns what the device said: "ok" or why not.
func (p *Process) Alloc(n engine.Bytes) string { return p.do("alloc %d", int64(n)) }

// Hold takes memory, or fails the test.
func (p *Process) Hold(n engine.Bytes) {
	p.t.Helper()
	if s := p.Alloc(n); s != "ok" {
		p.t.Fatalf("alloc %s: %s", n, s)
	}
}

// Free gives memory back.
func (p *Process) Free(n engine.Bytes) {
	p.t.Helper()
	if s := p.do("free %d", int64(n)); s != "ok" {
		p.t.Fatalf("free %s: %s", n, s)
	}
}

// SM sets the share of the SMs it keeps at work.
func (p *Process) SM(share float64) {
	p.t.Helper()
	if s := p.do("sm %v", share); s != "ok" {
		p.t.Fatalf("sm %v: %s", share, s)
	}
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}
