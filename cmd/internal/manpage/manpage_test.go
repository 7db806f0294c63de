package manpage

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestWrite(t *testing.T) {
	root := &cobra.Command{Use: "tool", Short: "A tool", Long: "Does it.\n.not a request\n\n  kept  as is"}
	root.CompletionOptions.DisableDefaultCmd = true
	run := func(*cobra.Command, []string) {}
	sub := &cobra.Command{Use: "go JOB…", Short: "Go there", Run: run, Example: `  tool go -- 'a\b'`}
	sub.Flags().Bool("fast", false, "be `quick`")
	root.AddCommand(sub, &cobra.Command{Use: "secret", Hidden: true, Run: run},
		&cobra.Command{Use: "topic", Short: "What it is about"})
	var b strings.Builder
	if err := Write(&b, root, Page{Section: 1, Version: "1-2", Files: [][2]string{{"/etc/x", "its file"}}, SeeAlso: []string{"other(8)"}}); err != nil {
		t.Fatal(err)
	}
	want := `.TH TOOL 1 "" "tool 1\-2" ""
.nh
.SH NAME
tool \- A tool
.SH SYNOPSIS
.B tool
[\fIcommand\fR] [\fIflags\fR]
.SH DESCRIPTION
Does it.
\&.not a request
.PP
.PP
.nf
  kept  as is
.fi
.SH COMMANDS
.SS go JOB… [flags]
Go there.
.PP
.nf
      \-\-fast quick   be quick
.fi
.PP
.nf
  tool go \-\- \(aqa\eb\(aq
.fi
.SS topic
What it is about.
.SH FILES
.TP
.I /etc/x
its file
.SH SEE ALSO
other(8)
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
}
