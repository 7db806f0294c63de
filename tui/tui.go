// Package tui is gputop's terminal user interface: the cards, the queue and the running jobs of one machine, live,
// and the keys to submit, read, cancel and preempt. It talks to the daemon through Client alone. It must not know how
// jobs are planned or run, must not do I/O in Update or View, and must not print what others wrote (job names, logs,
// process names) before control characters are taken out.
package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tea "charm.land/bubbletea/v2"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
)

// framesPerSecond bounds how often the screen is written: enough for typing, little for a slow link.
const framesPerSecond = 20

// Client is what the screens need of the daemon. *api.Client has it.
type Client interface {
	// Watch calls send with a snapshot, then with every change, until ctx ends, send fails or the link breaks.
	Watch(ctx context.Context, send func(api.WatchEvent) error) error
	Submit(ctx context.Context, r api.SubmitRequest) (api.SubmitResponse, error)
	Show(ctx context.Context, id engine.JobID) (api.JobDetail, error)
	Cancel(ctx context.Context, id engine.JobID, note string) (api.Job, error)
	Preempt(ctx context.Context, id engine.JobID, note string) (api.Job, error)
	Changer
	NoticeReader
	Logs(ctx context.Context, id engine.JobID, o api.LogOptions, w io.Writer) error
}

// Changer is the part of Client that changes a job without ending it.
type Changer interface {
	Hold(ctx context.Context, id engine.JobID, note string) (api.Job, error)
	Release(ctx context.Context, id engine.JobID, note string) (api.Job, error)
	Requeue(ctx context.Context, id engine.JobID, note string) (api.SubmitResponse, error)
	Update(ctx context.Context, id engine.JobID, u api.UpdateRequest) (api.Job, error)
}

// NoticeReader is the part of Client that notes up to which notice the caller has read.
type NoticeReader interface {
	ReadNotices(ctx context.Context, through int64) error
}

// Options say how to run the interface. Client and Draft are needed.
type Options struct {
	Client Client
	// Draft makes a job of what was typed into the submit form; it may do I/O and is called outside Update.
	Draft func(draft.Fields) (engine.Spec, error)
	// Dir is the directory in which submitted jobs run, for display.
	Dir     string
	Version string
	// ReadOnly refuses every action that changes something.
	ReadOnly bool
	// ASCII draws with ASCII alone; it is also taken from the locale.
	ASCII bool
	// Now is the wall clock, for display; time.Now when nil.
	Now func() time.Time
}

// Run shows the interface on the terminal until the user quits or ctx ends. Jobs go on afterwards, which it says on
// standard output.
func Run(ctx context.Context, o Options) error {
	o.ASCII = o.ASCII || asciiLocale(os.Getenv)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	a, err := run(ctx, o)
	if err != nil {
		return err
	}
	if s := a.farewell(); s != "" {
		fmt.Println(s)
	}
	return nil
}

func run(ctx context.Context, o Options, extra ...tea.ProgramOption) (*app, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancel(ctx)
	calls := &calls{ctx: ctx}
	var watching sync.WaitGroup
	defer func() {
		cancel()
		calls.wait()
		watching.Wait()
	}()

	a := newApp(o, calls)
	p := tea.NewProgram(a, append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithFPS(framesPerSecond)}, extra...)...)
	watching.Go(func() { watch(ctx, o.Client, p.Send, wait) })
	watching.Go(func() {
		for wait(ctx, time.Second) {
			p.Send(tickedMsg{})
		}
	})
	_, err := p.Run()
	if err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrInterrupted) {
		return nil, fmt.Errorf("terminal interface: %w", err)
	}
	return a, nil
}

// asciiLocale says whether the locale can show ASCII only. The first variable that is set decides, as in setlocale.
func asciiLocale(getenv func(string) string) bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := getenv(name); v != "" {
			return v == "C" || v == "POSIX"
		}
	}
	return false
}

// calls runs what talks to the daemon: each under the program's context, all waited for at its end.
type calls struct {
	ctx context.Context

	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

// do makes a command of a call. The call gets a context that ends with the program.
func (c *calls) do(f func(ctx context.Context) tea.Msg) tea.Cmd {
	return func() tea.Msg {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil
		}
		c.wg.Add(1)
		c.mu.Unlock()
		defer c.wg.Done()
		return f(c.ctx)
	}
}

func (c *calls) wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.wg.Wait()
}
