// Package rules holds the repository to its own rules: which package may import which, one package comment each, how
// long a file is, what a package may not be called. It has tests only and must not be imported.
package rules

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func repository(t *testing.T) *tree {
	t.Helper()
	tr, err := readTree(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.sources) == 0 {
		t.Fatal("no Go file was found: the test looks in the wrong place")
	}
	return tr
}

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

func TestImports(t *testing.T)         { report(t, checkImports(repository(t), importRules)) }
func TestOwners(t *testing.T)          { report(t, checkOwners(repository(t), owners)) }
func TestPure(t *testing.T)            { report(t, checkPure(repository(t), pure)) }
func TestPackageComments(t *testing.T) { report(t, checkPackageComments(repository(t))) }
func TestPackageNames(t *testing.T)    { report(t, checkPackageNames(repository(t))) }

func TestFileLength(t *testing.T) {
	problems, notes := checkLength(repository(t))
	for _, n := range notes {
		t.Log(n)
	}
	report(t, problems)
}

func TestNoMachinePaths(t *testing.T) {
	problems, err := checkMachinePaths(repository(t))
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

// TestDependencies asks the go command what really goes into a program, through everything it imports.
func TestDependencies(t *testing.T) {
	tr := repository(t)
	env := buildEnv(t)
	for _, r := range dependencyRules {
		if !tr.has(r.dir) {
			t.Errorf("%s: the package is not there, and a rule names it: write it or drop the rule", r.dir)
			continue
		}
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./"+r.dir)
		cmd.Dir = root
		cmd.Env = append(slices.Clone(env), r.env...)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Errorf("go list -deps ./%s: %v\n%s", r.dir, err, stderr.String())
			continue
		}
		report(t, r.check(strings.Fields(string(out))))
	}
}

// buildEnv is the environment with the build tags and C flags of build.env.
func buildEnv(t *testing.T) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(root, "build.env"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := os.Environ()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if strings.Contains(line, "=") && !strings.HasPrefix(line, "#") {
			env = append(env, line)
		}
	}
	return env
}
