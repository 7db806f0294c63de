// Package manpage writes a program's commands as one manual page, from what their --help says, so that the two cannot
// differ. It knows nothing of what the commands do.
package manpage

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Page is what a manual page has beside the commands.
type Page struct {
	Section int
	// Version of the program, in the footer.
	Version string
	// Files are paths and what they are; SeeAlso are other pages, as "gputop(1)".
	Files   [][2]string
	SeeAlso []string
}

// Command is a hidden command that prints the page of its root.
func Command(p Page) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page (troff)",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(cmd *cobra.Command, _ []string) error { return Write(cmd.OutOrStdout(), cmd.Root(), p) },
	}
}

// Write prints root and the commands below it that are not hidden.
func Write(w io.Writer, root *cobra.Command, p Page) error {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s %d \"\" \"%s %s\" \"\"\n.nh\n", strings.ToUpper(root.Name()), p.Section, root.Name(), escape(p.Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", root.Name(), text(root.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n[\\fIcommand\\fR] [\\fIflags\\fR]\n", root.Name())
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(long(root)))
	options(&b, root)
	fmt.Fprintf(&b, ".SH COMMANDS\n")
	below(&b, root)
	if root.Example != "" {
		b.WriteString(".SH EXAMPLES\n" + verbatim(root.Example))
	}
	if len(p.Files) > 0 {
		b.WriteString(".SH FILES\n")
		for _, f := range p.Files {
			fmt.Fprintf(&b, ".TP\n.I %s\n%s\n", escape(f[0]), text(f[1]))
		}
	}
	if len(p.SeeAlso) > 0 {
		b.WriteString(".SH SEE ALSO\n" + text(strings.Join(p.SeeAlso, ", ")) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func below(b *strings.Builder, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		usage := strings.TrimPrefix(c.UseLine(), c.Root().Name()+" ")
		if !c.Runnable() {
			usage = c.Name() // a topic of help
		}
		fmt.Fprintf(b, ".SS %s\n%s", text(usage), paragraphs(long(c)))
		options(b, c)
		if c.Example != "" {
			b.WriteString(verbatim(c.Example))
		}
		if c.Name() != "completion" { // the shells' pages are in its --help
			below(b, c)
		}
	}
}

func long(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

func options(b *strings.Builder, c *cobra.Command) {
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		if c == c.Root() {
			b.WriteString(".SH OPTIONS\n")
		}
		b.WriteString(verbatim(flags.FlagUsagesWrapped(72)))
	}
}

// paragraphs is prose; what is indented or a list is kept as it is.
func paragraphs(s string) string {
	var b strings.Builder
	for i, p := range strings.Split(strings.TrimSpace(s), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.Contains("\n"+p, "\n ") {
			b.WriteString(verbatim(p))
			continue
		}
		for line := range strings.Lines(p) {
			b.WriteString(text(strings.TrimRight(line, "\n")) + "\n")
		}
	}
	return b.String()
}

func verbatim(s string) string {
	var b strings.Builder
	b.WriteString(".PP\n.nf\n")
	for line := range strings.Lines(strings.TrimRight(s, "\n")) {
		b.WriteString(text(strings.TrimRight(line, "\n")) + "\n")
	}
	return b.String() + ".fi\n"
}

// text is one line that troff takes for text: a dot or quote at its begin would be a request.
func text(s string) string {
	s = escape(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		return `\&` + s
	}
	return s
}

// escape keeps backslashes, and hyphens that are to be copied into a shell.
func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", `\(ga`, "'", `\(aq`, "^", `\(ha`, "~", `\(ti`).Replace(s)
}
