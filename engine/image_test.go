package engine

import (
	"strings"
	"testing"
)

func TestImageNames(t *testing.T) {
	sum := strings.Repeat("0f", 32)
	for _, c := range []struct{ name, want, archive string }{
		{"pytorch/pytorch", "localhost/pytorch/pytorch:latest docker.io/pytorch/pytorch:latest", "/a/docker.io/pytorch/pytorch/latest.tar"},
		{"pytorch/pytorch:2.4.0", "localhost/pytorch/pytorch:2.4.0 docker.io/pytorch/pytorch:2.4.0", "/a/docker.io/pytorch/pytorch/2.4.0.tar"},
		{"python", "localhost/python:latest docker.io/library/python:latest", "/a/docker.io/library/python/latest.tar"},
		{"python@sha256:" + sum, "localhost/python@sha256:" + sum + " docker.io/library/python@sha256:" + sum, ""},
		{"docker.io/python:3", "docker.io/library/python:3", "/a/docker.io/library/python/3.tar"},
		{"docker://index.docker.io/a/b", "docker.io/a/b:latest", "/a/docker.io/a/b/latest.tar"},
		{"localhost/mine", "localhost/mine:latest", "/a/localhost/mine/latest.tar"},
		{"localhost:5000/mine:1", "localhost:5000/mine:1", "/a/localhost+5000/mine/1.tar"},
		{"nvcr.io/nvidia/pytorch:24.05-py3", "nvcr.io/nvidia/pytorch:24.05-py3", "/a/nvcr.io/nvidia/pytorch/24.05-py3.tar"},
		{"nvcr.io/nvidia/pytorch:24.05-py3@sha256:" + sum, "nvcr.io/nvidia/pytorch@sha256:" + sum, ""},
		{"sha256:" + sum, "sha256:" + sum, ""},
		{"0123456789ab", "0123456789ab", ""},
		{"", "!", ""},
		{"a/../b", "!", ""},
		{"../b", "!", ""},
		{"docker.io/../../etc/x", "!", ""},
		{"localhost/..", "!", ""},
		{"a b", "!", ""},
		{"Python", "!small letters", ""},
		{"docker.io/", "!", ""},
		{"python:", "!no tag", ""},
		{"python:a/b", "!", ""},
		{"python@sha256:12", "!digest", ""},
		{"oci:/tmp/x", "!", ""},
		{"dir:///tmp/x", "!registry's image", ""},
		{"docker-archive:/tmp/x.tar", "!", ""},
		{"-x.io/a", "!no registry", ""},
	} {
		got, err := ImageNames(c.name)
		if bad, wrong := strings.CutPrefix(c.want, "!"); wrong {
			if err == nil || !strings.Contains(err.Error(), bad) {
				t.Errorf("%q: %q, %v; want an error with %q", c.name, got, err, bad)
			}
			continue
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%q: %q, %v; want %s", c.name, got, err, c.want)
			continue
		}
		if a := ImageArchive("/a", got[len(got)-1]); a != c.archive {
			t.Errorf("%q: archive %q, want %q", c.name, a, c.archive)
		}
		for _, full := range got { // a full name stands for itself
			if again, err := ImageNames(full); err != nil || len(again) != 1 || again[0] != full {
				t.Errorf("%q again: %q, %v", full, again, err)
			}
		}
	}
}
