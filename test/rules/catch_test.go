package rules

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Each rule is seen to fail on a small tree that breaks it, and to pass on one that does not.
func TestRulesCatch(t *testing.T) {
	imports := func(rule importRule) func(*tree) []string {
		return func(tr *tree) []string { return checkImports(tr, []importRule{rule}) }
	}
	owns := func(tr *tree) []string { return checkOwners(tr, []owner{{nvml, "engine/gpu", "why"}}) }
	isPure := func(tr *tree) []string { return checkPure(tr, []string{"a"}) }
	length := func(tr *tree) []string { p, _ := checkLength(tr); return p }
	paths := func(tr *tree) []string { p, _ := checkMachinePaths(tr); return p }
	tui := imports(importRule{dir: "tui", only: []string{"engine"}, why: "why"})
	std := imports(importRule{dir: "engine", only: []string{}, standard: true, why: "why"})
	never := imports(importRule{dir: "d", never: []string{podman}, why: "why"})
	good := "// Package a does.\npackage a\n"
	for _, c := range []struct {
		name  string
		rule  func(*tree) []string
		files map[string]string
		want  string // the one problem, or nothing
	}{
		{"allowed import", tui, map[string]string{"tui/a.go": "package tui\nimport \"gputop/engine\""}, ""},
		{"own subpackage", tui, map[string]string{"tui/a.go": "package tui\nimport \"gputop/tui/x\""}, ""},
		{"forbidden import", tui, map[string]string{"tui/a.go": "package tui\nimport \"gputop/engine/store\""},
			"tui/a.go imports gputop/engine/store: of our packages it imports only engine; why"},
		{"forbidden import below", tui, map[string]string{"tui/a.go": "package tui", "tui/x/a.go": "package x\nimport \"gputop/cdi\""},
			"tui/x/a.go imports gputop/cdi: of our packages it imports only engine; why"},
		{"behind a build tag", tui, map[string]string{"tui/a.go": "//go:build never\n\npackage tui\nimport \"gputop/cdi\""},
			"tui/a.go imports gputop/cdi: of our packages it imports only engine; why"},
		{"a test may", tui, map[string]string{"tui/a.go": "package tui", "tui/a_test.go": "package tui\nimport \"gputop/cdi\""}, ""},
		{"package missing", tui, map[string]string{"b/a.go": "package b"},
			"tui: the package is not there, and a rule names it: write it or drop the rule"},
		{"outside the standard library", std, map[string]string{"engine/a.go": "package engine\nimport _ \"golang.org/x/sys/unix\""},
			"engine/a.go imports golang.org/x/sys/unix: it imports the standard library only; why"},
		{"none of ours", std, map[string]string{"engine/a.go": "package engine\nimport _ \"gputop/cdi\""},
			"engine/a.go imports gputop/cdi: it imports none of our packages; why"},
		{"a package below has its own rules", std, map[string]string{"engine/a.go": "package engine", "engine/x/a.go": "package x\nimport _ \"gputop/cdi\""}, ""},
		{"never", never, map[string]string{"d/a.go": "package d\nimport _ \"github.com/containers/podman/v5/pkg/bindings\""},
			"d/a.go imports github.com/containers/podman/v5/pkg/bindings: it must not; why"},
		{"owner", owns, map[string]string{"engine/gpu/x/a.go": "package x\nimport _ \"" + nvml + "/pkg/nvml\""}, ""},
		{"not the owner", owns, map[string]string{"engine/gpu/a.go": "package gpu\nimport _ \"" + nvml + "/pkg/nvml\"",
			"b/a_test.go": "package b\nimport _ \"" + nvml + "/pkg/dl\""},
			"b/a_test.go imports github.com/NVIDIA/go-nvml/pkg/dl: only engine/gpu does; why"},
		{"owner that does not use it", owns, map[string]string{"engine/gpu/a.go": "package gpu"},
			"engine/gpu does not import github.com/NVIDIA/go-nvml: the rule about it checks nothing"},
		{"pure", isPure, map[string]string{"a/a.go": "package a\nimport \"time\"\nvar x = time.Second"}, ""},
		{"clock", isPure, map[string]string{"a/a.go": "package a\nimport \"time\"\nvar x = time.Now()"},
			"a/a.go:3:9 calls time.Now: a has no clock, I/O, randomness or goroutines"},
		{"goroutine", isPure, map[string]string{"a/a.go": "package a\nfunc f() { go f() }"},
			"a/a.go:2:12 starts a goroutine: a has no clock, I/O, randomness or goroutines"},
		{"randomness", isPure, map[string]string{"a/a.go": "package a\nimport _ \"math/rand/v2\""},
			"a/a.go imports math/rand/v2: a has no clock, I/O, randomness or goroutines"},
		{"comment", checkPackageComments, map[string]string{"a/a.go": good, "a/b.go": "package a", "a/a_test.go": "package a_test"}, ""},
		{"comment of tests only", checkPackageComments, map[string]string{"a/a_test.go": good}, ""},
		{"comment of a program", checkPackageComments, map[string]string{"cmd/x/a.go": "// Command x runs.\npackage main"}, ""},
		{"a generator needs none", checkPackageComments, map[string]string{"a/a.go": good, "a/g.go": "//go:build ignore\n\npackage main"}, ""},
		{"no comment", checkPackageComments, map[string]string{"a/a.go": "package a"},
			"a: package a has 0 package comments, want one: what it is for, and what it must not do"},
		{"two comments", checkPackageComments, map[string]string{"a/a.go": good, "a/b.go": good},
			"a: package a has 2 package comments, want one: what it is for, and what it must not do"},
		{"another name", checkPackageComments, map[string]string{"a/a.go": "// Package b does.\npackage a"},
			`a/a.go: the package comment has to begin with "Package a "`},
		{"another program", checkPackageComments, map[string]string{"cmd/x/a.go": "// Package main runs.\npackage main"},
			`cmd/x/a.go: the package comment has to begin with "Command x "`},
		{"empty name", checkPackageNames, map[string]string{"x/util/a.go": "package util", "x/util/b.go": "package util"},
			`x/util: "util" says nothing about what is inside; name it after what it does`},
		{"full name", checkPackageNames, map[string]string{"x/commonality/a.go": "package commonality"}, ""},
		{"long enough", length, map[string]string{"a/a.go": good + strings.Repeat("//\n", maxLines-2)}, ""},
		{"too long", length, map[string]string{"a/a.go": good + strings.Repeat("//\n", maxLines-1)},
			"a/a.go has 501 lines, at most 500: split it by what it is about"},
		{"generated", length, map[string]string{"a/a.go": "// Code generated by x; DO NOT EDIT.\n" + good + strings.Repeat("//\n", 999)}, ""},
		{"machine path", paths, map[string]string{"README.md": "ok\nsee " + "/work" + "/x"}, "README.md:2: a path of one machine: see " + "/work" + "/x"},
		{"a path of the user's", paths, map[string]string{"README.md": "/home/alice" + "/work" + "/x, work/x"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			fsys := fstest.MapFS{}
			for name, text := range c.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			tr, err := readTree(fsys)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			if c.want != "" {
				want = []string{c.want}
			}
			if got := c.rule(tr); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

func TestDependencyRuleCatches(t *testing.T) {
	r := dependencyRule{dir: "cmd/x", never: []string{sqlite, "gputop/engine/gpu"}, why: "why"}
	got := r.check([]string{"fmt", "gputop/engine", "gputop/engine/gpu/simgpu", sqlite, sqlite + "er"})
	want := []string{"cmd/x depends on gputop/engine/gpu/simgpu: it must not; why", "cmd/x depends on " + sqlite + ": it must not; why"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
