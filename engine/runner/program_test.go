package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

func TestProgramOfAJob(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		p := filepath.Join(root, name)
		mkdir(t, filepath.Dir(p))
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("bin/python3", "ELF", 0o755)
	write("bin/torchrun", "ELF", 0o755)
	write("bin/notes", "text", 0o644)
	write("opt/conda/bin/conda", "ELF", 0o755)
	write("data/tool", "ELF", 0o755)
	write("project/train.py", "import x", 0o644)
	write("project/run.sh", "#!"+root+"/bin/python3\n", 0o755)
	write("project/dos.sh", "#!/bin/sh\r\n", 0o755)
	write("project/lost.sh", "#!/no/such/shell -e\n", 0o755)
	write("project/closed.sh", "#!/bin/sh\n", 0o644)
	if err := os.Symlink(root+"/opt/conda/bin/conda", root+"/project/conda"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("run.sh", root+"/project/link.sh"); err != nil {
		t.Fatal(err)
	}
	v := jobView{workdir: root + "/project", path: root + "/bin:" + root + "/opt/conda/bin", mounts: []engine.Mount{
		{Source: root + "/bin", Target: root + "/bin"}, {Source: root + "/project", Target: root + "/project"}, {Source: root + "/data", Target: "/inside"}}}
	for _, tc := range []struct {
		program string
		later   bool
		want    string // empty: it runs
	}{
		{"python3", false, ""},
		{"python", false, "python: no such program on this job's PATH; did you mean python3?"},
		{"Python3", false, "Python3: no such program on this job's PATH; did you mean python3?"},
		{"tochrun", false, "tochrun: no such program on this job's PATH; did you mean torchrun?"},
		{"ptyhon3", true, "ptyhon3: no such program on this job's PATH; did you mean python3?"},
		{"elsewhere", false, "elsewhere: no such program on this job's PATH"},
		{"nvidia-smi", false, ""},
		{"notes", false, "notes: ROOT/bin/notes may not be executed; mend it with: chmod +x ROOT/bin/notes"},
		{"conda", false, "conda: it is at ROOT/opt/conda/bin/conda, which a job does not see; add --mount ROOT/opt/conda/bin:ROOT/opt/conda/bin:ro"},
		{"train.py", false, "train.py: no such program on this job's PATH; for the file in the working directory write python3 train.py"},
		{"run.sh", false, "run.sh: no such program on this job's PATH; for the file in the working directory write ./run.sh"},
		{"./run.sh", false, ""},
		{"./link.sh", false, ""},
		{"/inside/tool", false, ""},
		{"/inside/none", false, "/inside/none: no such program on this machine"},
		{root + "/data/tool", false, "ROOT/data/tool: a job does not see ROOT/data/tool; add --mount ROOT/data:ROOT/data:ro"},
		{"./conda", false, "./conda: a job does not see ROOT/opt/conda/bin/conda; add --mount ROOT/opt/conda/bin:ROOT/opt/conda/bin:ro"},
		{"./none", false, "./none: no such program in the working directory ROOT/project"},
		{"./none", true, ""},
		{"./closed.sh", true, "./closed.sh: it may not be executed; mend it with: chmod +x ROOT/project/closed.sh"},
		{"../project", false, "../project: it is not a file that can be run"},
		{"./dos.sh", false, "./dos.sh: its lines end as on Windows, so its interpreter is not found; mend it with: sed -i 's/\\r$//' ROOT/project/dos.sh"},
		{"./lost.sh", false, "./lost.sh: its first line names /no/such/shell, which a job does not find"},
	} {
		err := v.check(tc.program, tc.later)
		got := ""
		if err != nil {
			got = strings.ReplaceAll(err.Error(), root, "ROOT")
			if agentrpc.CodeOf(err) != agentrpc.CodeInvalid {
				t.Errorf("%s: code %s, want invalid", tc.program, agentrpc.CodeOf(err))
			}
		}
		if got != tc.want {
			t.Errorf("%s (later %t):\n got %q\nwant %q", tc.program, tc.later, got, tc.want)
		}
	}
}

func TestOneSlip(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		want bool
	}{{"same", "same", false}, {"ab", "abc", true}, {"abc", "acb", true}, {"abc", "axc", true}, {"abc", "xyc", false},
		{"", "a", true}, {"abcd", "badc", false}, {"abc", "abcde", false}} {
		if got := oneSlip(tc.a, tc.b); got != tc.want {
			t.Errorf("%q, %q: %v", tc.a, tc.b, got)
		}
	}
}
