package cdi

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName keeps the names of a lease's file and of its temporary below the 255 bytes a file system allows.
const maxName = 128

// checkName accepts what the CDI specification allows in a device name: letters, digits and _ - . : inside, a letter
// or digit at both ends. So a name can never leave its directory.
func checkName(name string) error {
	bad := func(why string) error {
		return fmt.Errorf("CDI device name %q: %s; use letters, digits, _ - . and :, at most %d", clip(name), why, maxName)
	}
	switch {
	case name == "":
		return bad("is empty")
	case len(name) > maxName:
		return bad(fmt.Sprintf("has %d characters", len(name)))
	case !isAlnum(name[0]) || !isAlnum(name[len(name)-1]):
		return bad("must begin and end with a letter or digit")
	}
	for i := range len(name) {
		if c := name[i]; !isAlnum(c) && !strings.ContainsRune("_-.:", rune(c)) {
			return bad(fmt.Sprintf("character %q is not allowed", c))
		}
	}
	return nil
}

func isAlnum(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// check refuses edits that would not come back from the file as they went in, or that Podman would refuse later.
func (e Edits) check() error {
	if e.empty() {
		return errors.New("no edits: a CDI device must change something")
	}
	if e.Hooks != 0 {
		return errors.New("hooks are not written: a device of ours has none")
	}
	for _, v := range e.Env {
		if i := strings.IndexByte(v, '='); i <= 0 {
			return fmt.Errorf("environment %q: want NAME=value", clip(v))
		}
		if err := checkText(v); err != nil {
			return fmt.Errorf("environment %q: %w", clip(v), err)
		}
	}
	for _, m := range e.Mounts {
		if err := errors.Join(checkPath(m.HostPath), checkPath(m.ContainerPath)); err != nil {
			return err
		}
	}
	for _, p := range e.DeviceNodes {
		if err := checkPath(p); err != nil {
			return err
		}
	}
	return nil
}

func checkPath(p string) error {
	if !filepath.IsAbs(p) || filepath.Clean(p) != p {
		return fmt.Errorf("path %q: want an absolute path without . or .. in it", clip(p))
	}
	if err := checkText(p); err != nil {
		return fmt.Errorf("path %q: %w", clip(p), err)
	}
	return nil
}

// checkText refuses what JSON or YAML readers change or reject.
func checkText(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("is not valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == '\ufeff' || r == '\ufffe' || r == '\uffff' {
			return fmt.Errorf("character %+q is not allowed", r)
		}
	}
	return nil
}

// clip shortens hostile input before it is quoted in an error.
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "…"
	}
	return s
}

// printable is s as it may stand on a terminal: quoted when it holds anything strange.
func printable(s string) string {
	if checkText(s) != nil || len(s) > 4*maxName {
		return strconv.Quote(clip(s))
	}
	return s
}
