package rules

import (
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the import path of the repository.
const module = "gputop"

// source is one Go file.
type source struct {
	path    string // from the root of the repository
	dir     string
	text    string
	file    *ast.File
	imports []string
	test    bool
	// ignored files are never part of a build: generators.
	ignored   bool
	generated bool
}

// tree is the repository as text: every Go file parsed, whatever its build tags, so that no rule depends on what this
// machine would build.
type tree struct {
	fsys    fs.FS
	sources []*source
	fset    *token.FileSet
}

// skipped are directories that hold nothing of ours.
var skipped = []string{".git", "bin", "dist"}

func readTree(fsys fs.FS) (*tree, error) {
	t := &tree{fsys: fsys, fset: token.NewFileSet()}
	err := t.walk(func(name string) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		s, err := t.parse(name, text)
		if err != nil {
			return err
		}
		t.sources = append(t.sources, s)
		return nil
	})
	return t, err
}

// walk visits every file, in order.
func (t *tree) walk(visit func(name string) error) error {
	return fs.WalkDir(t.fsys, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(skipped, d.Name()):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		return visit(name)
	})
}

func (t *tree) parse(name string, text []byte) (*source, error) {
	f, err := parser.ParseFile(t.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{path: name, dir: path.Dir(name), text: string(text), file: f, test: strings.HasSuffix(name, "_test.go"),
		ignored: ignored(f), generated: ast.IsGenerated(f)}
	for _, i := range f.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		s.imports = append(s.imports, p)
	}
	return s, nil
}

func ignored(f *ast.File) bool {
	for _, g := range f.Comments {
		for _, c := range g.List {
			if c.Pos() < f.Package && constraint.IsGoBuild(c.Text) && strings.TrimSpace(c.Text) == "//go:build ignore" {
				return true
			}
		}
	}
	return false
}

// has says whether a directory holds a package that is built.
func (t *tree) has(dir string) bool {
	return slices.ContainsFunc(t.sources, func(s *source) bool { return s.dir == dir && !s.test && !s.ignored })
}

// under says whether a directory or import path is another or lies below it.
func under(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// standard says whether an import path is the standard library's.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return first != module && !strings.Contains(first, ".")
}
