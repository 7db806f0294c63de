package deliver

import (
	"encoding/json"
	"fmt"
	"mime"
	"regexp"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/termsafe"
)

// more is the word on what was passed over.
func more(b *budget, now time.Time) engine.Notice {
	return engine.Notice{Time: now, Kind: engine.NoticeMore, Owner: b.owner,
		Text: fmt.Sprintf("%d more in the last hour; gputop notices and gputop ls show them", b.passed)}
}

// mailbox is a name that can only be a local account: no address of another machine, no option, no pipe.
var mailbox = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)

const (
	subjectCells = 120
	// lineBytes keeps lines of a mail below what SMTP allows, 998.
	lineBytes = 900
)

// mailProgram is sendmail with a mail to the job's owner, at this machine.
func (d *Deliverer) mailProgram(n engine.Notice) (Program, error) {
	if !mailbox.MatchString(n.Owner.Name) {
		return Program{}, fmt.Errorf("no mail to %q: only to a plain account name of this machine", n.Owner.Name)
	}
	// -i: a line with a dot alone does not end the mail.
	return Program{Argv: []string{d.o.Mail, "-i", "--", n.Owner.Name}, As: d.o.As, Stdin: d.mail(n)}, nil
}

func (d *Deliverer) mail(n engine.Notice) []byte {
	about := n.Text
	if n.Job != 0 {
		about = fmt.Sprintf("job %s %s: %s", n.Job, n.Name, n.Text)
	}
	var b strings.Builder
	header := func(name, value string) { fmt.Fprintf(&b, "%s: %s\n", name, value) }
	header("To", n.Owner.Name)
	header("Subject", mime.QEncoding.Encode("utf-8", termsafe.Truncate("[gputop "+d.o.Host+"] "+about, subjectCells)))
	header("Date", n.Time.Format(time.RFC1123Z))
	header("Auto-Submitted", "auto-generated") // so that nobody's vacation answers
	header("MIME-Version", "1.0")
	header("Content-Type", "text/plain; charset=utf-8")
	header("Content-Transfer-Encoding", "8bit")
	b.WriteByte('\n')
	line := func(s string) {
		s = termsafe.Line(s)
		if len(s) > lineBytes {
			s = strings.ToValidUTF8(s[:lineBytes], "") + "…"
		}
		b.WriteString(s + "\n")
	}
	if n.Job == 0 {
		line("gputop did not mail you everything: " + n.Text + ".")
		return []byte(b.String())
	}
	line(fmt.Sprintf("Job %s (%s) on %s: %s", n.Job, n.Name, d.o.Host, n.Text))
	if n.Detail != "" {
		line(n.Detail)
	}
	line("")
	line("More: gputop show " + n.Job.String())
	line("Fewer of these: gputop submit --notify none, or ended, preempted, ...")
	return []byte(b.String())
}

// hookNotice is what an admin's program reads: nothing of the job's command, variables, mounts and messages.
type hookNotice struct {
	Version int               `json:"version"`
	ID      int64             `json:"id,omitempty"`
	Time    time.Time         `json:"time"`
	Host    string            `json:"host"`
	Kind    engine.NoticeKind `json:"kind"`
	Job     engine.JobID      `json:"job,omitempty"`
	Name    string            `json:"name,omitempty"`
	Owner   string            `json:"owner"`
	UID     uint32            `json:"uid"`
	Attempt int               `json:"attempt,omitempty"`
	Text    string            `json:"text"`
}

func (d *Deliverer) hookProgram(n engine.Notice) (Program, error) {
	b, err := json.Marshal(hookNotice{Version: 1, ID: n.ID, Time: n.Time, Host: d.o.Host, Kind: n.Kind, Job: n.Job, Name: n.Name,
		Owner: n.Owner.Name, UID: n.Owner.UID, Attempt: n.Attempt, Text: n.Text})
	if err != nil {
		return Program{}, err
	}
	return Program{Argv: d.o.Command, As: d.o.As, Stdin: append(b, '\n')}, nil
}
