package draft

import (
	"errors"
	"strings"
)

// plainBytes need no quotes and mean nothing to a shell.
func plainByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("%+,-./:=@_^", b) >= 0 || b >= 0x80
}

// CommandLine turns one typed line into a command: plain and quoted words are split; a line that needs a shell (pipes,
// variables, globs, several lines) goes to sh -c.
func CommandLine(line string) []string {
	line = strings.TrimSpace(line)
	words, needsShell, err := split(line)
	if needsShell || err != nil {
		return []string{"/bin/sh", "-c", line}
	}
	// NAME=VALUE in front of a program is the shell's to read.
	if len(words) > 0 && strings.Contains(words[0], "=") {
		return []string{"/bin/sh", "-c", line}
	}
	return words
}

// split cuts a line into words with the quotes of a shell. needsShell says that it holds what only a shell understands.
func split(line string) (words []string, needsShell bool, err error) {
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); i++ {
		b := line[i]
		switch {
		case b == ' ' || b == '\t':
			if inWord {
				words, inWord = append(words, word.String()), false
				word.Reset()
			}
			continue
		case b == '\'' || b == '"':
			end := strings.IndexByte(line[i+1:], b)
			if end < 0 {
				return nil, needsShell, errors.New("a quote is not closed")
			}
			text := line[i+1 : i+1+end]
			if b == '"' && strings.ContainsAny(text, "$`\\") {
				needsShell = true
			}
			word.WriteString(text)
			i += end + 1
		default:
			if !plainByte(b) {
				needsShell = true
			}
			word.WriteByte(b)
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, needsShell, nil
}
