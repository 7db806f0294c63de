package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/tui/internal/tuitest"
)

// terminal is the whole program on a pseudo-terminal, drawn by an emulator.
type terminal struct {
	t      *testing.T
	screen *vt.SafeEmulator
	master *os.File
	drawn  chan struct{}
	done   chan error
	client *tuitest.Client
	app    *app
	bytes  int
}

func start(t *testing.T, client *tuitest.Client, w, h int) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := pty.Setsize(master, &pty.Winsize{Rows: uint16(h), Cols: uint16(w)}); err != nil {
		t.Fatal(err)
	}
	x := &terminal{t: t, screen: vt.NewSafeEmulator(w, h), master: master, drawn: make(chan struct{}, 1),
		done: make(chan error, 1), client: client}
	ctx, cancel := context.WithCancel(t.Context())
	read, answered := make(chan struct{}), make(chan struct{})
	go func() { // what the program draws
		defer close(read)
		buf := make([]byte, 1<<15)
		for {
			n, err := master.Read(buf)
			if err != nil {
				return
			}
			_, _ = x.screen.Write(buf[:n])
			x.bytes += n
			nudge(x.drawn)
		}
	}()
	go func() { // what the terminal answers to questions
		defer close(answered)
		_, _ = io.Copy(master, x.screen)
	}()
	go func() {
		a, err := run(ctx, Options{Client: client, Draft: specOf, Version: "0.1.0"}, tea.WithInput(slave), tea.WithOutput(slave),
			tea.WithEnvironment([]string{"TERM=xterm-256color", "COLORTERM=truecolor"}), tea.WithoutSignals())
		x.app = a
		x.done <- err
	}()
	t.Cleanup(func() {
		cancel()
		slave.Close()
		master.Close()
		_ = x.screen.InputPipe().(io.Closer).Close() // Close of the emulator itself races with its Read
		<-read
		<-answered
	})
	return x
}

func (x *terminal) text() string {
	var b strings.Builder
	for y := range x.screen.Height() {
		for c := 0; c < x.screen.Width(); c++ {
			if cell := x.screen.CellAt(c, y); cell != nil {
				b.WriteString(cell.Content)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// wait returns when the screen shows what is wanted.
func (x *terminal) wait(want string) {
	x.t.Helper()
	deadline := time.After(20 * time.Second)
	for !strings.Contains(x.text(), want) {
		select {
		case <-x.drawn:
		case err := <-x.done:
			x.t.Fatalf("the program ended (%v) before it showed %q", err, want)
		case <-deadline:
			x.t.Fatalf("the screen never showed %q:\n%s", want, x.text())
		}
	}
}

func (x *terminal) typed(s string) {
	x.t.Helper()
	if _, err := x.master.WriteString(s); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) end() {
	x.t.Helper()
	select {
	case err := <-x.done:
		if err != nil {
			x.t.Errorf("run: %v", err)
		}
	case <-time.After(20 * time.Second):
		x.t.Fatal("the program did not end")
	}
}

func TestProgramSubmitCancelLogsQuit(t *testing.T) {
	c := tuitest.New(tuitest.TwoCards())
	c.Output = "epoch 1 loss 0.42\n"
	x := start(t, c, 80, 24)
	x.wait("lab-a100")
	x.typed("s")
	x.wait("Submit a job")
	x.typed("python train.py\r")
	x.wait("job #100 train.py is queued")
	if got := c.Submitted(); len(got) != 1 || strings.Join(got[0].Spec.Command, " ") != "python train.py" {
		t.Fatalf("submitted %+v", got)
	}
	x.typed("c")
	x.wait("Cancel job #100?")
	x.typed("y")
	x.wait("job #100 is cancelled")
	if got := c.Stopped(); len(got) != 1 || got[0] != (tuitest.Stop{ID: 100, Why: engine.StopCancelled, Note: stopNote}) {
		t.Fatalf("stopped %v", got)
	}
	x.typed("\x1b[Z") // shift+tab: running jobs
	x.wait("▸Running")
	x.typed("l")
	x.wait("epoch 1 loss 0.42")
	x.typed("\x1b")
	x.wait("▸Running")
	x.typed("q")
	x.end()
	if s := x.app.farewell(); !strings.Contains(s, "of yours go on") {
		t.Errorf("farewell %q", s)
	}
}

// A quick typist does not lose letters: what follows s goes into the form although nothing was drawn in between.
func TestProgramTakesKeysInOneBurst(t *testing.T) {
	c := tuitest.New(tuitest.TwoCards())
	x := start(t, c, 80, 24)
	x.wait("lab-a100")
	x.typed("ssleep 5\r")
	x.wait("job #100 sleep is queued")
	x.typed("q")
	x.end()
}

func TestProgramReconnects(t *testing.T) {
	c := tuitest.New(tuitest.TwoCards())
	c.Refuse(errors.New("connection refused"))
	x := start(t, c, 80, 24)
	x.wait("connection refused")
	c.Refuse(nil)
	x.wait("● live")
	c.Refuse(errors.New("daemon went away"))
	c.Send(t.Context(), api.WatchEvent{})
	x.wait("reconnecting")
	c.Refuse(nil)
	x.wait("● live")
	x.typed("q")
	x.end()
}

func TestProgramEndsWithItsContextAndRestoresTheScreen(t *testing.T) {
	c := tuitest.New(tuitest.Many(8, 7, true))
	x := start(t, c, 120, 40)
	x.wait("SIMULATED")
	if !x.screen.IsAltScreen() {
		t.Error("not on the alternate screen")
	}
	x.typed("\x03")
	x.end()
	for x.screen.IsAltScreen() {
		<-x.drawn
	}
}
