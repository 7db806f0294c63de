package draft

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// maxInline is the longest script whose text goes with the job, in bytes: the kernel takes 128 KiB in one argument.
const maxInline = 96 << 10

// ParseScript reads the leading #GPUTOP lines of a script, each with flags as on the command line. They end at the
// first line that is neither empty nor a comment. An error names the line.
func ParseScript(r io.Reader) (Fields, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return Fields{}, fmt.Errorf("read the script: %w", err)
	}
	if len(b) > maxFile {
		return Fields{}, fmt.Errorf("the script is larger than %d bytes", maxFile)
	}
	if bytes.IndexByte(b, 0) >= 0 {
		return Fields{}, fmt.Errorf("this is a program, not a script; put it after --: gputop submit -- ./program")
	}
	var f Fields
	for n, line := range strings.Split(string(b), "\n") {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			break
		}
		args, ok := strings.CutPrefix(line, "#GPUTOP")
		if !ok || args != "" && args[0] != ' ' && args[0] != '\t' {
			continue
		}
		if err := readFlags(&f, args); err != nil {
			return Fields{}, fmt.Errorf("line %d (%s): %w", n+1, line, err)
		}
	}
	return f, nil
}

// readFlags reads the flags of one #GPUTOP line.
func readFlags(f *Fields, line string) error {
	words, _, err := split(line)
	if err != nil {
		return err
	}
	for i := 0; i < len(words); i++ {
		if strings.HasPrefix(words[i], "#") {
			return nil // a comment behind the flags
		}
		name, dashed := strings.CutPrefix(words[i], "--")
		if !dashed {
			return fmt.Errorf("%q is no flag; write for example #GPUTOP --gpus 1", words[i])
		}
		name, value, has := strings.Cut(name, "=")
		fl, ok := flagNamed(name)
		if !ok {
			return fmt.Errorf("unknown flag --%s; the flags are %s", name, flagNames())
		}
		if !has {
			if i++; i == len(words) {
				return fmt.Errorf("--%s wants a value", name)
			}
			value = words[i]
		}
		if fl.Repeats() {
			*fl.List(f) = append(*fl.List(f), value)
		} else {
			*fl.Value(f) = value
		}
	}
	return nil
}

func flagNames() string {
	var names []string
	for _, fl := range flags {
		names = append(names, "--"+fl.Name)
	}
	return strings.Join(names, ", ")
}

// ScriptCommand is the command that runs a script of the given full path and text. A shell script goes along as text,
// so that editing the file does not change a job that waits; $0 is its path. Others, and long ones, are run from the
// file by the interpreter of their first line.
func ScriptCommand(path, text string, args []string) []string {
	line, _, _ := strings.Cut(text, "\n")
	interpreter := []string{"/bin/sh"}
	if rest, ok := strings.CutPrefix(line, "#!"); ok {
		if words := strings.Fields(rest); len(words) > 0 {
			interpreter = words
		}
	}
	program := interpreter[0]
	if filepath.Base(program) == "env" && len(interpreter) > 1 {
		program = interpreter[1]
	}
	switch filepath.Base(program) {
	case "sh", "bash", "dash", "zsh", "ksh":
		if len(text) <= maxInline {
			return append(append(interpreter, "-c", text, path), args...)
		}
	}
	if len(interpreter) > 1 {
		// The kernel hands everything behind the interpreter over as one argument; env -S splits it again.
		interpreter = append(interpreter[:1:1], strings.Join(interpreter[1:], " "))
	}
	return append(append(interpreter, path), args...)
}
