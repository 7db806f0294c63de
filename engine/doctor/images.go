package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gputop/engine"
	"gputop/engine/agentrpc"
	"gputop/engine/api"
)

// LookAtReady looks, as the user, at the archives of the images that an admin keeps ready.
func LookAtReady(m Machine, i api.Images) []ReadyImage {
	out := make([]ReadyImage, 0, len(i.Ready))
	for _, name := range i.Ready {
		r := ReadyImage{Name: name, Archive: engine.ImageArchive(i.Archives, name),
			Stored: slices.ContainsFunc(i.Images, func(s agentrpc.StoredImage) bool { return s.Name == name })}
		f, err := os.Open(m.path(r.Archive))
		switch {
		case err == nil:
			r.Archived = true
			f.Close()
		case !errors.Is(err, fs.ErrNotExist):
			r.Closed = true
		}
		out = append(out, r)
	}
	return out
}

// MakeArchive is the command with which an admin makes the archive of an image. The file gets its name when it is whole.
func MakeArchive(r ReadyImage) string {
	get := "podman pull " + r.Name + " && "
	if strings.HasPrefix(r.Name, "localhost/") {
		get = "" // only built or imported
	}
	// umask: users have to read it, and root's may be 077.
	return fmt.Sprintf("sudo sh -c 'umask 022; mkdir -p %s && %spodman save -o %s.new %s && mv %s.new %s'",
		filepath.Dir(r.Archive), get, r.Archive, r.Name, r.Archive, r.Archive)
}

func ready(v View) []Finding {
	var out []Finding
	good := 0
	for _, r := range v.Ready {
		switch {
		case r.Closed:
			// a+X on what is above it too, up to the first that is open anyway
			out = append(out, one("images", Warning, fmt.Sprintf("the archive %s of image %s is closed to you", r.Archive, r.Name),
				fmt.Sprintf("sudo chmod -R a+rX %s", filepath.Dir(r.Archive)))...)
		case !r.Archived && !r.Stored:
			out = append(out, one("images", Warning, fmt.Sprintf("image %s is to be kept ready, and there is no archive of it in %s", r.Name, filepath.Dir(r.Archive)), MakeArchive(r))...)
		case !r.Archived:
			out = append(out, one("images", Warning, fmt.Sprintf("image %s is in your own store; for others there is no archive of it in %s", r.Name, filepath.Dir(r.Archive)), MakeArchive(r))...)
		default:
			good++
		}
	}
	if good > 0 {
		out = append(out, one("images", OK, fmt.Sprintf("%d of %d images that are kept ready can be loaded without a registry", good, len(v.Ready)), "")...)
	}
	return out
}
