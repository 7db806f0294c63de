package rules

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Lengths of a file in lines: what is aimed at, and what is too much.
const (
	aimedLines = 400
	maxLines   = 500
)

func checkLength(t *tree) (problems, notes []string) {
	for _, s := range t.sources {
		n := strings.Count(s.text, "\n")
		switch {
		case s.generated:
		case n > maxLines:
			problems = append(problems, fmt.Sprintf("%s has %d lines, at most %d: split it by what it is about", s.path, n, maxLines))
		case n > aimedLines:
			notes = append(notes, fmt.Sprintf("%s has %d lines; aim at %d", s.path, n, aimedLines))
		}
	}
	return problems, notes
}

// checkPackageComments wants exactly one comment a package, which begins with "Package NAME" or, for a program,
// "Command NAME". A package of tests only carries it in a test file.
func checkPackageComments(t *tree) (problems []string) {
	type pkg struct{ dir, name string }
	files := map[pkg][]*source{}
	tests := map[pkg][]*source{}
	for _, s := range t.sources {
		p := pkg{s.dir, strings.TrimSuffix(s.file.Name.Name, "_test")}
		switch {
		case s.ignored:
		case s.test:
			tests[p] = append(tests[p], s)
		default:
			files[p] = append(files[p], s)
		}
	}
	for p, s := range tests {
		if _, ok := files[p]; !ok {
			files[p] = s
		}
	}
	keys := slices.SortedFunc(maps.Keys(files), func(a, b pkg) int { return strings.Compare(a.dir+a.name, b.dir+b.name) })
	for _, p := range keys {
		want := "Package " + p.name + " "
		if p.name == "main" {
			want = "Command " + path.Base(p.dir) + " "
		}
		n := 0
		for _, s := range files[p] {
			if s.file.Doc == nil {
				continue
			}
			n++
			if text := strings.ReplaceAll(s.file.Doc.Text(), "\n", " "); !strings.HasPrefix(text, want) {
				problems = append(problems, fmt.Sprintf("%s: the package comment has to begin with %q", s.path, want))
			}
		}
		if n != 1 {
			problems = append(problems, fmt.Sprintf("%s: package %s has %d package comments, want one: what it is for, and what it must not do",
				p.dir, p.name, n))
		}
	}
	return problems
}

// empty are names that say nothing about what is inside.
var empty = regexp.MustCompile(`^(utils?|common|helpers?|managers?|misc)(_test)?$`)

func checkPackageNames(t *tree) (problems []string) {
	seen := map[string]bool{}
	for _, s := range t.sources {
		for _, name := range []string{s.file.Name.Name, path.Base(s.dir)} {
			if key := s.dir + " " + name; empty.MatchString(name) && !seen[key] {
				seen[key] = true
				problems = append(problems, fmt.Sprintf("%s: %q says nothing about what is inside; name it after what it does", s.dir, name))
			}
		}
	}
	return problems
}

// machinePath is a path of the machine this was written on. It is put together so that this file has none itself.
var machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.~-])/(` + `work|tmp/w` + `)/[A-Za-z0-9_.]`)

// checkMachinePaths looks at every text file.
func checkMachinePaths(t *tree) (problems []string, err error) {
	err = t.walk(func(name string) error {
		text, err := fs.ReadFile(t.fsys, name)
		if err != nil || bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
			return err
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if m := machinePath.Find(line); m != nil {
				problems = append(problems, fmt.Sprintf("%s:%d: a path of one machine: %s", name, i+1, bytes.TrimSpace(line)))
			}
		}
		return nil
	})
	return problems, err
}
