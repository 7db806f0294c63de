package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestJournalLines(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(newJournalHandler(&b))
	log.Error("disk full", "level", 3)
	log.Warn("no group")
	log.Info("ready", "text", "two\nlines")
	log.Debug("not shown")
	log.With("job", 7).WithGroup("agent").Info("started", "time", "now")
	want := `<3>msg="disk full" level=3
<4>msg="no group"
<6>msg=ready text="two\nlines"
<6>msg=started job=7 agent.time=now
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestToJournal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		env  string
		want bool
	}{
		{"", false},
		{fmt.Sprintf("%d:%d", st.Dev, st.Ino), true},
		{fmt.Sprintf("%d:%d", st.Dev, st.Ino+1), false}, // inherited, and redirected since
	} {
		t.Setenv("JOURNAL_STREAM", c.env)
		if got := toJournal(f); got != c.want {
			t.Errorf("JOURNAL_STREAM=%q: got %v", c.env, got)
		}
	}
}
