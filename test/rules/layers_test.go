package rules

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
)

// importRule says what the packages under a directory may not import directly. Tests may import more.
type importRule struct {
	dir string
	// only, when set, lists all that may be imported of this module; what lies below dir is always allowed.
	only []string
	// standard allows nothing from outside this module but the standard library.
	standard bool
	// never lists import paths, with what lies below them.
	never []string
	why   string
}

const (
	nvml   = "github.com/NVIDIA/go-nvml"
	podman = "github.com/containers/podman"
	sqlite = "github.com/mattn/go-sqlite3"
	cdiLib = "tags.cncf.io/container-device-interface"
)

var importRules = []importRule{
	{dir: "tui", only: []string{"engine", "engine/api", "engine/draft"},
		why: "the screen knows the daemon only through its API, so that it can never block on a GPU, Podman or the disk"},
	{dir: "engine", only: []string{}, standard: true,
		why: "everybody shares the nouns, so they may depend on nothing"},
	{dir: "engine/scheduler", only: []string{"engine"}, standard: true,
		why: "a plan depends on its input alone"},
	{dir: "engine/notice", only: []string{"engine", "engine/store", "engine/termsafe"},
		why: "it says what is worth telling, and sends it; it neither decides about jobs nor asks anybody"},
	{dir: "engine/daemon", never: []string{"gputop/engine/runner", "gputop/engine/gpu", podman, nvml},
		why: "the engine may be root: it never loads NVML and never talks to a user's Podman; sampler and agent do"},
	{dir: "engine/sampler", never: []string{nvml, "gputop/engine/gpu"},
		why: "it supervises the process that loads NVML, from a process that does not"},
	{dir: "engine/api", only: []string{"engine", "engine/agentrpc", "engine/termsafe"}, standard: true,
		why: "clients link it: it has to stay small"},
	{dir: "engine/metrics", only: []string{"engine", "engine/api"},
		why: "it tells what anybody may see, by the same views as the screen"},
	{dir: "engine/store", only: []string{"engine"},
		why: "it keeps nouns; it does not know who asks"},
	{dir: "cdi", only: []string{"engine"},
		why: "specs and leases are files; who holds them is the daemon's business"},
}

// checkImports applies a rule to the package in dir itself where dir has rules of its own below, as engine does, and
// else to all below it.
func checkImports(t *tree, rules []importRule) (problems []string) {
	for _, r := range rules {
		if !t.has(r.dir) {
			problems = append(problems, fmt.Sprintf("%s: the package is not there, and a rule names it: write it or drop the rule", r.dir))
			continue
		}
		for _, s := range t.sources {
			if s.test || s.ignored || !under(s.dir, r.dir) || r.dir == "engine" && s.dir != r.dir {
				continue
			}
			for _, i := range s.imports {
				if what := r.forbids(i); what != "" {
					problems = append(problems, fmt.Sprintf("%s imports %s: %s; %s", s.path, i, what, r.why))
				}
			}
		}
	}
	return problems
}

func (r importRule) forbids(imported string) string {
	dir, ours := strings.CutPrefix(imported, module+"/")
	switch {
	case slices.ContainsFunc(r.never, func(n string) bool { return under(imported, n) }):
		return "it must not"
	case ours && r.only != nil && !under(dir, r.dir) && !slices.Contains(r.only, dir):
		if len(r.only) == 0 {
			return "it imports none of our packages"
		}
		return "of our packages it imports only " + strings.Join(r.only, ", ")
	case !ours && r.standard && !standard(imported):
		return "it imports the standard library only"
	}
	return ""
}

// owner says which directory alone may import a library.
type owner struct {
	library, dir, why string
}

var owners = []owner{
	{podman, "engine/runner", "bindings dial by path and retry on their own; only the agent, as the user, may do that"},
	{nvml, "engine/gpu", "calls can hang for ever and a missing symbol kills the process; only the sampler's code loads it"},
	{cdiLib, "cdi", "the library panics on some files and writes others that users can't read; one package knows how to use it"},
	{sqlite, "engine/store", "there is one writer, with one set of settings"},
}

func checkOwners(t *tree, owners []owner) (problems []string) {
	for _, o := range owners {
		used := false
		for _, s := range t.sources {
			for _, i := range s.imports {
				switch {
				// Podman carries its major version in the path.
				case !under(i, o.library):
				case under(s.dir, o.dir):
					used = true
				default:
					problems = append(problems, fmt.Sprintf("%s imports %s: only %s does; %s", s.path, i, o.dir, o.why))
				}
			}
		}
		if !used {
			problems = append(problems, fmt.Sprintf("%s does not import %s: the rule about it checks nothing", o.dir, o.library))
		}
	}
	return problems
}

// dependencyRule says what may not go into a package through any chain of imports.
type dependencyRule struct {
	dir   string
	env   []string
	never []string
	why   string
}

var dependencyRules = []dependencyRule{
	{"cmd/gputop", []string{"CGO_ENABLED=0"},
		[]string{nvml, podman, sqlite, cdiLib, "gputop/engine/store", "gputop/engine/runner", "gputop/engine/gpu",
			"gputop/engine/daemon", "runtime/cgo"},
		"the client starts in 2 ms because it links none of this"},
	{"engine/daemon", nil, []string{nvml, podman, "gputop/engine/runner", "gputop/engine/gpu"},
		"the engine may be root: it never loads NVML and never talks to a user's Podman"},
	{"engine/gpu/simgpu/simload", []string{"CGO_ENABLED=0"}, []string{nvml, podman, sqlite, "runtime/cgo"},
		"it is the only file in its image: static and small"},
}

func (r dependencyRule) check(deps []string) (problems []string) {
	for _, d := range deps {
		if slices.ContainsFunc(r.never, func(n string) bool { return under(d, n) }) {
			problems = append(problems, fmt.Sprintf("%s depends on %s: it must not; %s", r.dir, d, r.why))
		}
	}
	return problems
}

// pure are packages whose results depend on their arguments alone.
var pure = []string{"engine", "engine/scheduler", "engine/notice"}

// impure are the standard packages with which that would end.
var impure = []string{"bufio", "context", "crypto", "io", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "unsafe"}

func checkPure(t *tree, dirs []string) (problems []string) {
	for _, s := range t.sources {
		if s.test || s.ignored || !slices.Contains(dirs, s.dir) {
			continue
		}
		for _, i := range s.imports {
			if slices.ContainsFunc(impure, func(n string) bool { return under(i, n) }) {
				problems = append(problems, fmt.Sprintf("%s imports %s: %s has no clock, I/O, randomness or goroutines", s.path, i, s.dir))
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "starts a goroutine"
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
				if ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					what = "calls time." + n.Sel.Name
				}
			}
			if what != "" {
				problems = append(problems, fmt.Sprintf("%s %s: %s has no clock, I/O, randomness or goroutines",
					t.fset.Position(n.Pos()), what, s.dir))
			}
			return true
		})
	}
	return problems
}
