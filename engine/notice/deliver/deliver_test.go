package deliver

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gputop/engine"
	"gputop/engine/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// outbox is a deliverer over a real store whose programs really run, as nobody where the test is root.
type outbox struct {
	t    *testing.T
	dir  string // writable for what runs
	st   *store.Store
	o    Options
	mu   sync.Mutex
	now  time.Time
	log  strings.Builder
	ran  chan error
	last int
}

func newOutbox(t *testing.T, o Options) *outbox {
	dir, err := os.MkdirTemp("", "gputop-deliver-") // not below a directory that only root may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	b := &outbox{t: t, dir: dir, now: start, ran: make(chan error, 1000)}
	if b.st, err = store.Open(t.Context(), t.TempDir(), store.Options{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.st.Close() })
	o.Store, o.Host, o.As = b.st, "lab", "nobody"
	o.Now = func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now }
	o.Log = slog.New(slog.NewTextHandler(&locked{b: &b.log, mu: &b.mu}, nil))
	if o.PerHour == 0 {
		o.PerHour = 20
	}
	o.Run = func(ctx context.Context, p Program) error {
		err := Run(ctx, p)
		b.ran <- err
		return err
	}
	b.o = o
	return b
}

type locked struct {
	b  *strings.Builder
	mu *sync.Mutex
}

func (l *locked) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }

// script writes a program that everybody may run.
func (b *outbox) script(name, text string) string {
	path := filepath.Join(b.dir, name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// add stores notices about jobs of a user.
func (b *outbox) add(owner string, n int, due store.Ways) {
	b.t.Helper()
	var list []store.Change
	for range n {
		b.last++
		list = append(list, store.AddNotice(&store.Notice{Due: due, Notice: engine.Notice{Time: start, Kind: engine.NoticeEnded, Job: engine.JobID(b.last),
			Name: "train", Owner: engine.User{UID: 1000, Name: owner}, Text: "succeeded", Detail: "a secret of its owner"}}))
	}
	if err := b.st.Apply(b.t.Context(), list...); err != nil {
		b.t.Fatal(err)
	}
}

// run has a deliverer work until n programs have ended, and stops it.
func (b *outbox) run(n int) (errs []error) {
	b.t.Helper()
	d := New(b.o)
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	for len(errs) < n {
		select {
		case err := <-b.ran:
			errs = append(errs, err)
		case <-ctx.Done():
			b.t.Fatalf("%d programs ran, want %d", len(errs), n)
		}
	}
	cancel()
	<-done
	return errs
}

func (b *outbox) lines(name string) []string {
	b.t.Helper()
	text, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		b.t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func (b *outbox) none() {
	b.t.Helper()
	if list, err := b.st.DueNotices(b.t.Context(), store.ByMail|store.ByCommand, 10); err != nil || len(list) != 0 {
		b.t.Errorf("still due: %v, %v", list, err)
	}
}

func TestMailAndCommandReallyRun(t *testing.T) {
	b := newOutbox(t, Options{})
	b.o.Mail = b.script("sendmail", `{ echo "args $*"; cat; } >>`+b.dir+`/mail.out`)
	b.o.Command = []string{b.script("hook", `{ id -u; id -G; pwd; env | sort; echo "$@"; cat; } >`+b.dir+`/hook.out`), "--room", "lab"}
	b.add("alice", 1, store.ByMail|store.ByCommand)
	for _, err := range b.run(2) {
		if err != nil {
			t.Fatal(err)
		}
	}
	m := b.lines("mail.out")
	if m[0] != "args -i -- alice" || !strings.Contains(strings.Join(m, "\n"), "\nSubject: [gputop lab] job 1 train: succeeded\n") {
		t.Errorf("mail:\n%s", strings.Join(m, "\n"))
	}
	h := b.lines("hook.out")
	want := []string{"65534", "65534", "/", "LANG=C.UTF-8", "PATH=" + programPath, "PWD=/", "--room lab",
		`{"version":1,"id":1,"time":"2026-03-04T05:06:07Z","host":"lab","kind":"ended","job":1,"name":"train","owner":"alice","uid":1000,"text":"succeeded"}`}
	if os.Geteuid() != 0 {
		want[0], want[1] = h[0], h[1]
	}
	if fmt.Sprint(h) != fmt.Sprint(want) {
		t.Errorf("the command got\n%q, want\n%q", h, want)
	}
	b.none()
}

func TestARestartSendsNothingAgain(t *testing.T) {
	b := newOutbox(t, Options{})
	b.o.Command = []string{b.script("hook", `cat >>`+b.dir+`/hook.out`)}
	b.add("alice", 3, store.ByCommand)
	b.run(3)
	b.add("alice", 1, store.ByCommand) // while nobody delivers
	b.run(1)
	if got := b.lines("hook.out"); len(got) != 4 {
		t.Errorf("sent %q", got)
	}
	b.none()
}

// A program that kills the deliverer's process is what comes closest to a crash in the middle: here it looks at the store.
func TestItIsTakenBeforeItIsSent(t *testing.T) {
	b := newOutbox(t, Options{Command: []string{"/bin/true"}})
	b.add("alice", 2, store.ByCommand)
	var mu sync.Mutex
	var due []int
	run := b.o.Run
	b.o.Run = func(ctx context.Context, p Program) error {
		list, err := b.st.DueNotices(ctx, store.ByMail|store.ByCommand, 10)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		due = append(due, len(list))
		mu.Unlock()
		return run(ctx, p)
	}
	b.run(2)
	if fmt.Sprint(due) != "[1 0]" {
		t.Errorf("while each was sent, so many were due: %v, want [1 0]", due)
	}
}

func TestTooManyAreOneNumber(t *testing.T) {
	b := newOutbox(t, Options{PerHour: 3})
	b.o.Command = []string{b.script("hook", `cat >>`+b.dir+`/hook.out`)}
	b.o.Mail = b.script("sendmail", `cat >>`+b.dir+`/mail.out`)
	b.add("alice", 150, store.ByCommand)
	b.add("bob", 1, store.ByMail) // of the same uid in this test, and by another way
	lanes := New(b.o).lanes
	d := lanes[1]
	for range 2 {
		for _, l := range lanes {
			if _, err := l.step(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.summaries(t.Context())
		}
	}
	if got := b.lines("hook.out"); len(got) != 3 || len(b.lines("mail.out")) < 5 {
		t.Errorf("sent %d", len(got))
	}
	b.none()
	b.mu.Lock()
	b.now = start.Add(window)
	b.mu.Unlock()
	d.summaries(t.Context())
	got := b.lines("hook.out")
	var last hookNotice
	if err := json.Unmarshal([]byte(got[len(got)-1]), &last); err != nil || len(got) != 4 || last.Kind != engine.NoticeMore || !strings.HasPrefix(last.Text, "147 more") {
		t.Errorf("after the hour %q, %v", got, err)
	}
	if d.nextSummary() != 0 {
		t.Error("a budget is left")
	}
	b.add("alice", 1, store.ByCommand)
	if _, err := d.step(t.Context()); err != nil || len(b.lines("hook.out")) != 5 {
		t.Errorf("the next hour begins with %d lines, %v", len(b.lines("hook.out")), err)
	}
}

// A command that hangs holds up neither the mail nor what is told of another's jobs.
func TestAHangingCommandHoldsUpNobody(t *testing.T) {
	b := newOutbox(t, Options{PerHour: 100, Mail: "/usr/sbin/sendmail", Command: []string{"/hook"}})
	hang, sent := make(chan struct{}), make(chan string, 10)
	first := true
	var mu sync.Mutex
	b.o.Run = func(ctx context.Context, p Program) error {
		mu.Lock()
		hangs := first && p.Argv[0] == "/hook"
		first = first && !hangs
		mu.Unlock()
		if hangs {
			<-hang
		}
		sent <- p.Argv[0]
		return nil
	}
	b.add("alice", 1, store.ByCommand)
	b.add("bob", 1, store.ByCommand)
	b.add("alice", 1, store.ByMail)
	d := New(b.o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); d.Run(ctx) }()
	got := []string{<-sent, <-sent}
	slices.Sort(got)
	if !slices.Equal(got, []string{"/hook", "/usr/sbin/sendmail"}) {
		t.Errorf("while a command hung, sent: %v", got)
	}
	close(hang)
	<-sent
	cancel()
	<-done
}

func TestOldAndUnwantedAreNotSent(t *testing.T) {
	b := newOutbox(t, Options{Command: []string{"/bin/true"}})
	b.add("alice", 1, store.ByMail) // mail was switched off since
	b.add("alice", 1, store.ByCommand)
	b.now = start.Add(stale + time.Second)
	for _, l := range New(b.o).lanes {
		if _, err := l.step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.ran) != 0 {
		t.Error("something was sent")
	}
	b.none()
}

func TestHostileTextStaysText(t *testing.T) {
	b := newOutbox(t, Options{Mail: "/usr/sbin/sendmail"})
	d := New(b.o)
	name := "x\r\nBcc: everybody\r\n\r\n.\r\nFrom root\x1b]0;t\x07\u202e é" + strings.Repeat("A", 3000)
	note := "line\n.\nBcc: x\r" + strings.Repeat("B", 3000)
	n := engine.Notice{Time: start, Kind: engine.NoticeEnded, Job: 1, Name: name, Owner: engine.User{UID: 7, Name: "alice"}, Text: "failed", Detail: note}
	raw := d.mail(n)
	m, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Header) != 7 || m.Header.Get("To") != "alice" || m.Header.Get("Bcc") != "" {
		t.Errorf("headers %v", m.Header)
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil || !strings.HasPrefix(subject, `[gputop lab] job 1 x\r\nBcc: everybody\r\n\r\n.\r\nFrom root\x1b]0;t`) {
		t.Errorf("subject %q, %v", subject, err)
	}
	body, err := io.ReadAll(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(strings.NewReader(string(raw))); sc.Scan(); {
		l := sc.Text()
		if l == "." || len(l) > 998 || strings.ContainsAny(l, "\r\x1b\x07") || strings.HasPrefix(l, "Bcc") || strings.HasPrefix(l, "From ") {
			t.Errorf("line %q", l)
		}
	}
	if !strings.Contains(string(body), "\n"+`line\n.\nBcc: x\rBBB`) {
		t.Errorf("body %s", body)
	}
	for _, owner := range []string{"-oQ/tmp", "a b", "alice@elsewhere", "|sh", `LAB\alice`, "a\nb", "", "/etc/passwd"} {
		n.Owner.Name = owner
		if p, err := d.mailProgram(n); err == nil {
			t.Errorf("mail to %q: %v", owner, p.Argv)
		}
	}
}

func TestProgramsAreBounded(t *testing.T) {
	b := newOutbox(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	started := filepath.Join(b.dir, "started")
	if err := syscall.Mkfifo(started, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(started, 0o666); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		f, err := os.Open(started)
		if err != nil {
			return
		}
		defer f.Close()
		if _, err := f.Read(make([]byte, 1)); err == nil {
			cancel() // once it runs, its time is over
		}
		_, _ = io.Copy(io.Discard, f) // to the end of the last that holds it
	}()
	slow := b.script("slow", `exec 3>`+started+`; sleep 600 & echo >&3; wait`)
	if err := Run(ctx, Program{Argv: []string{slow}, As: "nobody"}); err == nil || !strings.Contains(err.Error(), "ended after its time") {
		t.Errorf("a program that hangs: %v", err)
	}
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Fatal("what it started lives on")
	}
	loud := b.script("loud", `head -c 1000000 /dev/zero | tr '\0' 'x'; printf '\033[31m'; exit 3`)
	if err := Run(t.Context(), Program{Argv: []string{loud}, As: "nobody", Stdin: make([]byte, 1<<20)}); err == nil ||
		!strings.Contains(err.Error(), "exit status 3") || len(err.Error()) > outputBytes+200 {
		t.Errorf("a program that prints a lot: %d bytes of %.80v", len(fmt.Sprint(err)), err)
	}
	if err := Run(t.Context(), Program{Argv: []string{filepath.Join(b.dir, "none")}, As: "nobody"}); err == nil {
		t.Error("a program that is not there ran")
	}
	if os.Geteuid() == 0 {
		for _, as := range []string{"root", "", "no-such-account"} {
			if err := Run(t.Context(), Program{Argv: []string{"/bin/true"}, As: as}); err == nil {
				t.Errorf("ran as %q", as)
			}
		}
	}
}

func TestAFailureIsLoggedAndTheNextIsSent(t *testing.T) {
	b := newOutbox(t, Options{})
	b.o.Command = []string{b.script("hook", `read line; case "$line" in *'"job":1,'*) echo no room >&2; exit 9;; esac`)}
	b.add("alice", 2, store.ByCommand)
	errs := b.run(2)
	if errs[0] == nil || errs[1] != nil {
		t.Errorf("got %v", errs)
	}
	if l := b.log.String(); !strings.Contains(l, "notice not delivered") || !strings.Contains(l, "no room") || strings.Count(l, "\n") != 1 {
		t.Errorf("log: %s", l)
	}
}
