package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

func TestRestartAdoptsAndKeepsTheQueue(t *testing.T) {
	b := newBox(t, 1)
	run := b.submit(spec(engine.Medium, "run"))
	b.untilState(run, engine.Running)
	wait := []engine.JobID{b.submit(spec(engine.Low, "run")), b.submit(spec(engine.High, "run"))}
	b.restart()
	b.until(run, "adopted", func(j api.Job) bool { return j.State == engine.Running })
	if n := b.agent.started(b.container(run, 1)); n != 1 {
		t.Errorf("the running job was started %d times", n)
	}
	for _, id := range wait {
		b.untilState(id, engine.Pending)
	}
	b.agent.end(b.container(run, 1), 0)
	b.untilState(run, engine.Succeeded)
	b.untilState(wait[1], engine.Running)
}

func TestFoundCreatedContainerIsNeverStarted(t *testing.T) {
	b := newBox(t, 1)
	b.agent.hooks(func(m agentrpc.Method, c *agentrpc.Conn) error {
		if m == agentrpc.MethodInit {
			c.Close()
			return errors.New("lost")
		}
		return nil
	}, nil)
	id := b.submit(spec(engine.Medium, "run"))
	b.until(id, "back in the queue after a fault", func(j api.Job) bool { return j.State == engine.Pending && j.Attempt == 1 })
	b.agent.hooks(nil, nil)
	b.until(id, "running", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
	if n := b.agent.started(b.container(id, 1)); n != 0 {
		t.Errorf("the created container was started %d times", n)
	}
}

func TestLostAnswerOfStartRunsNothingTwice(t *testing.T) {
	b := newBox(t, 1)
	var once sync.Once
	b.agent.hooks(nil, func(m agentrpc.Method, c *agentrpc.Conn) (err error) {
		if m == agentrpc.MethodStart {
			once.Do(func() { c.Close(); err = errors.New("lost") })
		}
		return err
	})
	id := b.submit(spec(engine.Medium, "run"))
	j := b.untilState(id, engine.Running)
	if n := b.agent.started(b.container(id, 1)); n != 1 || j.Attempt != 1 {
		t.Errorf("started %d times, attempt %d; want 1 and 1", n, j.Attempt)
	}
}

func TestAfterAPowerCutExitZeroIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name    string
		retries int
		alter   func(*agentrpc.Container)
		boot    string
		want    engine.JobState
	}{
		{"exited 0 after a reboot", 0, func(c *agentrpc.Container) { c.State, c.PID = "exited", 0 }, "boot-2", engine.Lost},
		{"created after a reboot", 0, func(c *agentrpc.Container) { c.State, c.PID = "created", 0 }, "boot-2", engine.Lost},
		{"exited without times", 0, func(c *agentrpc.Container) { c.State, c.PID, c.StartedAt = "exited", 0, time.Time{} }, "boot-1", engine.Lost},
		{"exited 0 while the daemon was away", 0, func(c *agentrpc.Container) { c.State, c.PID, c.FinishedAt = "exited", 0, time.Now() }, "boot-1", engine.Succeeded},
		{"reboot, retries allowed", 1, func(c *agentrpc.Container) { c.State, c.PID = "exited", 0 }, "boot-2", engine.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, 1)
			s := spec(engine.Medium, "run")
			s.Retries = c.retries
			id := b.submit(s)
			b.untilState(id, engine.Running)
			b.stop()
			b.agent.alter(b.container(id, 1), c.alter)
			b.bootID = c.boot
			b.start()
			want := 1
			if c.want == engine.Running {
				want = 2
			}
			b.until(id, string(c.want), func(j api.Job) bool { return j.State == c.want && j.Attempt == want })
			if n := b.agent.started(b.container(id, 1)); n != 1 {
				t.Errorf("first attempt started %d times", n)
			}
		})
	}
}

func TestNoAgentIsNotLost(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.stop()
	b.silent.Store(true)
	b.start()
	// Nothing is decided while nobody answers: the job keeps its state and its card.
	other := b.d.snapshotForTest(t)
	if len(other.Held) != 1 {
		t.Fatalf("held %+v", other.Held)
	}
	b.silent.Store(false)
	b.agent.connect(b.d.runCtx, b.d, &b.done)
	b.agent.end(b.container(id, 1), 0)
	b.untilState(id, engine.Succeeded)
}

// An agent that answers nothing must not keep a card from the others for ever.
func TestStopWithoutAnswersGivesTheCardBack(t *testing.T) {
	silent := func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodPrepare || m == agentrpc.MethodResolveImage || m == agentrpc.MethodProbe {
			return nil
		}
		return errors.New("no answer")
	}
	for _, c := range []struct {
		name string
		// before and after are done before the job starts and before it is cancelled.
		before, after func(b *box)
		state         engine.JobState
	}{
		{"never started", func(b *box) { b.agent.hooks(silent, nil) }, func(*box) {}, engine.Starting},
		{"process gone", func(*box) {}, func(b *box) {
			b.agent.hooks(silent, nil)
			b.agent.alter(b.container(1, 1), func(c *agentrpc.Container) { c.PID = 0 })
		}, engine.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, 1)
			c.before(b)
			id := b.submit(spec(engine.Medium, "run"))
			b.untilState(id, c.state)
			c.after(b)
			if _, err := b.d.Stop(t.Context(), b.caller(), id, engine.StopCancelled, ""); err != nil {
				t.Fatal(err)
			}
			b.untilState(id, engine.Cancelled)
		})
	}
}

// TestRefusedStartIsLookedAt: an error as the answer to a start says nothing about what ran. A short job that ended while
// Podman looked at it has run, and must not run again.
func TestRefusedStartIsLookedAt(t *testing.T) {
	for _, c := range []struct {
		name    string
		command []string
		code    agentrpc.Code
		want    engine.JobState
	}{
		{"failed, yet it ran to its end", []string{"exit", "0"}, agentrpc.CodeFailed, engine.Succeeded},
		{"not found, yet it ran and failed", []string{"exit", "3"}, agentrpc.CodeNotFound, engine.Failed},
		{"failed, yet it runs", []string{"run"}, agentrpc.CodeFailed, engine.Running},
		{"called invalid, yet it runs", []string{"run"}, agentrpc.CodeInvalid, engine.Running},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBox(t, 1)
			b.agent.hooks(nil, func(m agentrpc.Method, _ *agentrpc.Conn) error {
				if m == agentrpc.MethodStart {
					return &agentrpc.Error{Code: c.code, Message: "stat /proc/1/ns: no such process"}
				}
				return nil
			})
			id := b.submit(spec(engine.Medium, c.command...))
			j := b.untilState(id, c.want)
			if n := b.agent.started(b.container(id, 1)); n != 1 || j.Attempt != 1 {
				t.Errorf("started %d times, attempt %d; want 1 and 1", n, j.Attempt)
			}
		})
	}
}

// TestStartThatNeverRanSaysWhy: where nothing ran, the reason Podman gave is what its owner reads, and it is tried again.
func TestStartThatNeverRanSaysWhy(t *testing.T) {
	b := newBox(t, 1)
	b.agent.hooks(func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodStart {
			return &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "no such runtime"}
		}
		return nil
	}, nil)
	id := b.submit(spec(engine.Medium, "run"))
	j := b.until(id, "back in the queue", func(j api.Job) bool { return j.State == engine.Pending && j.Attempt == 1 })
	if !strings.Contains(j.Message, "no such runtime") {
		t.Errorf("message %q", j.Message)
	}
	b.agent.hooks(nil, nil)
	b.until(id, "running", func(j api.Job) bool { return j.State == engine.Running && j.Attempt == 2 })
}

// TestEndWhileBeingTakenOver: a container that ends between the answer that it runs and the look at its process has ended
// as it says, and is not lost.
func TestEndWhileBeingTakenOver(t *testing.T) {
	b := newBox(t, 1)
	id := b.submit(spec(engine.Medium, "run"))
	b.untilState(id, engine.Running)
	b.stop()
	name := b.container(id, 1)
	var once sync.Once
	b.agent.hooks(nil, func(m agentrpc.Method, _ *agentrpc.Conn) error {
		if m == agentrpc.MethodInspect { // the answer is made; the program ends before it is read
			once.Do(func() {
				b.agent.alter(name, func(c *agentrpc.Container) { c.State, c.PID, c.FinishedAt = "exited", 0, time.Now() })
			})
		}
		return nil
	})
	b.start()
	b.untilState(id, engine.Succeeded)
}

// The spec of simulated cards is the daemon's own: who removes it takes the cards away for a moment only.
func TestTheSpecOfSimulatedCardsComesBack(t *testing.T) {
	dir := t.TempDir()
	b := newBoxWith(t, 1, func(o *Options) { o.LeaseDir, o.SpecDirs = dir, []string{dir} })
	written := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "gputop-simulated-*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	for range 2 {
		for len(written()) == 0 {
			b.boot.Add(specsEvery.Nanoseconds())
			time.Sleep(10 * time.Millisecond)
		}
		if err := os.Remove(written()[0]); err != nil {
			t.Fatal(err)
		}
	}
}
