//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// imaged is a shared box with a directory of image archives, in which the admin keeps docker.io/gputop-e2e/tool:1.
func imaged(t *testing.T) (b *sharedBox, archive string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gputop-images-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	archive = engine.ImageArchive(dir, "docker.io/gputop-e2e/tool:1")
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, []byte("images: {archives: "+dir+", ready: ['gputop-e2e/tool:1']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newPerson(t, alice)
	a.run("podman", "tag", image, "docker.io/gputop-e2e/tool:1")
	own := filepath.Join(a.dir("archive"), "tool.tar")
	a.run("podman", "save", "-q", "-o", own, "docker.io/gputop-e2e/tool:1")
	a.run("podman", "untag", image, "docker.io/gputop-e2e/tool:1")
	text, err := os.ReadFile(own)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(archive, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{alice, bob} {
		p := newPerson(t, name)
		t.Cleanup(func() {
			for _, tag := range []string{"docker.io/gputop-e2e/tool:1", "docker.io/library/gputop-e2e-docker:dev"} {
				p.try("podman", "untag", tag, tag)
			}
		})
	}
	return sharedWith(t, "--simulate", oneCard, "--config", config), archive
}

// TestImagesByShortNameAndFromAnArchive: a short name means the same for everybody, and what an admin keeps ready needs
// no registry, of which there is none here.
func TestImagesByShortNameAndFromAnArchive(t *testing.T) {
	b, archive := imaged(t)
	o := b.person(bob)
	mine := o.submit("--image", "gputop-demo", "--gpus", "0", "--", "true")
	d := o.untilState(mine, engine.Succeeded)
	if d.ImageName != image || !strings.HasPrefix(d.ImageDigest, "sha256:") {
		t.Errorf("a short name stood for %q, digest %q", d.ImageName, d.ImageDigest)
	}
	if out := o.gputop("show", mine.String()); !strings.Contains(out, "Full name    "+image) || !strings.Contains(out, d.ImageDigest) {
		t.Errorf("show:\n%s", out)
	}
	is := func(what, want string) {
		t.Helper()
		if out := o.gputop("images"); !strings.Contains(out, want) {
			t.Errorf("%s, images does not say %q:\n%s", what, want, out)
		}
	}
	is("before a job wants it", "archive, kept ready")
	if err := os.Chmod(archive, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := o.try("gputop", "doctor").out; !strings.Contains(out, "is closed to you") {
		t.Errorf("doctor of a closed archive:\n%s", out)
	}
	if err := os.Chmod(archive, 0o644); err != nil {
		t.Fatal(err)
	}
	if out := o.try("gputop", "doctor").out; !strings.Contains(out, "1 of 1 images that are kept ready") {
		t.Errorf("doctor:\n%s", out)
	}
	got := o.untilState(o.submit("--image", "gputop-e2e/tool:1", "--gpus", "0", "--", "true"), engine.Succeeded)
	if got.ImageName != "docker.io/gputop-e2e/tool:1" {
		t.Errorf("the archive's image is called %q", got.ImageName)
	}
	is("after a job", "your store, kept ready")
	// What is in the file is another image than its path says.
	wrong := engine.ImageArchive(filepath.Join(archive, "../../../.."), "docker.io/gputop-e2e/other:1")
	if err := os.MkdirAll(filepath.Dir(wrong), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(archive, wrong); err != nil {
		t.Fatal(err)
	}
	bad := o.until(o.submit("--image", "gputop-e2e/other:1", "--gpus", "0", "--", "true"), "failed", func(d api.JobDetail) bool { return d.State == engine.Failed })
	if !strings.Contains(bad.Message, "and not the image gputop-e2e/other:1") {
		t.Errorf("an archive with another image: %q", bad.Message)
	}
}

// TestImageImport takes a real archive from a docker that is a script, and is refused by the real one, if there is one.
func TestImageImport(t *testing.T) {
	b, archive := imaged(t)
	o := b.person(bob)
	if r := o.try("gputop", "images", "import", "x:1"); r.code == 0 || !strings.Contains(r.err, "docker") {
		t.Errorf("without a docker: exit %d: %s%s", r.code, r.out, r.err)
	}
	bin := o.dir("bin")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = 'image save -- gputop-e2e/tool:1' ] || { echo no such image >&2; exit 1; }\nexec cat %s\n", archive)
	if err := os.WriteFile(filepath.Join(bin, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + bin + ":" + os.Getenv("PATH")
	if out := o.run("env", path, "gputop", "images", "import", "gputop-e2e/tool:1"); !strings.Contains(out, "docker.io/gputop-e2e/tool:1") {
		t.Errorf("import says %q", out)
	}
	if out := o.gputop("images", "--json"); !strings.Contains(out, `"name": "docker.io/gputop-e2e/tool:1"`) {
		t.Errorf("images after the import:\n%s", out)
	}
	if r := o.try("env", path, "gputop", "images", "import", "other:1"); r.code != 1 || !strings.Contains(r.err, "no such image") {
		t.Errorf("what docker does not have: exit %d: %s%s", r.code, r.out, r.err)
	}
	var list struct {
		Images []struct{ Stored, Ready bool }
	}
	if err := json.Unmarshal([]byte(o.gputop("images", "--json")), &list); err != nil || len(list.Images) == 0 {
		t.Errorf("images: %v", err)
	}
}
