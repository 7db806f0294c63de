package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

func TestReadyImages(t *testing.T) {
	root := t.TempDir()
	write := func(file string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, file), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("/srv/docker.io/library/python/3.tar")
	write("/srv/ghcr.io/lab/odd") // a file where a directory should be: not to be opened, root or not
	i := api.Images{Archives: "/srv", Ready: []string{"docker.io/library/python:3", "ghcr.io/lab/odd:1", "ghcr.io/lab/tool:2", "localhost/own:1"},
		Images: []agentrpc.StoredImage{{Name: "localhost/own:1"}}}
	v := good()
	v.Ready = LookAtReady(Machine{Root: root}, i)
	var got []string
	for _, f := range Check(v) {
		if f.Check == "images" {
			got = append(got, string(f.Level)+": "+f.Message+" | "+f.Fix)
		}
	}
	want := []string{
		"warning: the archive /srv/ghcr.io/lab/odd/1.tar of image ghcr.io/lab/odd:1 is closed to you | sudo chmod -R a+rX /srv/ghcr.io/lab/odd",
		"warning: image ghcr.io/lab/tool:2 is to be kept ready, and there is no archive of it in /srv/ghcr.io/lab/tool | " +
			"sudo sh -c 'umask 022; mkdir -p /srv/ghcr.io/lab/tool && podman pull ghcr.io/lab/tool:2 && podman save -o /srv/ghcr.io/lab/tool/2.tar.new ghcr.io/lab/tool:2 && mv /srv/ghcr.io/lab/tool/2.tar.new /srv/ghcr.io/lab/tool/2.tar'",
		"warning: image localhost/own:1 is in your own store; for others there is no archive of it in /srv/localhost/own | " +
			"sudo sh -c 'umask 022; mkdir -p /srv/localhost/own && podman save -o /srv/localhost/own/1.tar.new localhost/own:1 && mv /srv/localhost/own/1.tar.new /srv/localhost/own/1.tar'",
		"ok: 1 of 4 images that are kept ready can be loaded without a registry | ",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
