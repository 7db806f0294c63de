package engine

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// An image's name in full is REGISTRY/PATH:TAG or REGISTRY/PATH@DIGEST. A short name such as pytorch/pytorch stands for
// one of this machine's own (localhost/…), else for Docker Hub's, and for nothing else, whatever a machine's Podman is
// told to search: the same name means the same image for everybody.

const (
	ownRegistry = "localhost"
	hub         = "docker.io"
)

var (
	imageID     = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|[0-9a-f]{12,64})$`)
	registryRe  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$`)
	imagePathRe = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)
	tagRe       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestRe    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// ImageNames are what an image's name stands for, in the order in which it is looked for; the last is what a pull asks
// for. An image's ID stands for itself.
func ImageNames(name string) ([]string, error) {
	if IsImageID(name) {
		return []string{name}, nil
	}
	rest, err := strings.TrimPrefix(name, "docker://"), error(nil)
	if strings.Contains(rest, "://") {
		return nil, fmt.Errorf("image %q: want a registry's image, such as docker.io/pytorch/pytorch:2.4.0", name)
	}
	rest, digest, pinned := strings.Cut(rest, "@")
	if pinned && !digestRe.MatchString(digest) {
		return nil, fmt.Errorf("image %q: a digest is sha256: and 64 digits", name)
	}
	tag := "latest"
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, '/') {
		rest, tag = rest[:i], rest[i+1:]
	} else if pinned {
		tag = ""
	}
	if tag != "" && !tagRe.MatchString(tag) || tag == "" && !pinned {
		return nil, fmt.Errorf("image %q: %q is no tag", name, tag)
	}
	end := ":" + tag
	if pinned {
		end = "@" + digest // a digest says more than any tag
	}
	registry, in, found := strings.Cut(rest, "/")
	short := !found || registry != ownRegistry && !strings.ContainsAny(registry, ".:")
	if short {
		registry, in = hub, rest
	}
	switch {
	case registry == "index.docker.io", registry == "registry-1.docker.io":
		registry = hub
	case !registryRe.MatchString(registry):
		err = fmt.Errorf("image %q: %q is no registry", name, registry)
	}
	if strings.ToLower(in) != in {
		err = errors.Join(err, fmt.Errorf("image %q: the name of an image is in small letters", name))
	} else if !imagePathRe.MatchString(in) {
		err = errors.Join(err, fmt.Errorf("image %q: want a name such as docker.io/pytorch/pytorch:2.4.0", name))
	}
	if err != nil {
		return nil, err
	}
	full := registry + "/" + in + end
	if registry == hub && !strings.Contains(in, "/") {
		full = hub + "/library/" + in + end
	}
	if short {
		return []string{ownRegistry + "/" + in + end, full}, nil
	}
	return []string{full}, nil
}

// IsImageID says whether a name is an image's ID, which means something in one store only.
func IsImageID(name string) bool { return imageID.MatchString(name) }

// ImageArchive is where below a directory of archives an image with this full name lies: the name's own path, with the
// tag as the file's name. It is empty for an ID or a digest, which an archive does not keep.
func ImageArchive(dir, full string) string {
	if IsImageID(full) || dir == "" || strings.Contains(full, "@") {
		return ""
	}
	i := strings.LastIndexByte(full, ':')
	// A port's colon: Podman takes what stands behind one in a file's name for a tag.
	return path.Join(dir, strings.ReplaceAll(full[:i], ":", "+"), full[i+1:]+".tar")
}
