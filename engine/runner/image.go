package runner

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/images"
	"github.com/containers/podman/v5/pkg/errorhandling"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// resolveImage says what a name means on this machine. It never pulls.
func (a *Agent) resolveImage(ctx context.Context, p agentrpc.ResolveImageArgs) (agentrpc.Image, error) {
	img, err := a.lookUpImage(ctx, p.Image)
	if err == nil && !img.Found {
		names, _ := engine.ImageNames(p.Image) // looked up just now
		_, img.Archived = archiveOf(p.Archives, names)
	}
	return img, err
}

func imageNames(name string) ([]string, error) {
	if name == "" {
		return nil, invalid("no image named")
	}
	names, err := engine.ImageNames(name)
	if err != nil {
		return nil, invalid("%v", err)
	}
	return names, nil
}

// lookUpImage looks for an image by each of its names in full. What else Podman would take a short name for does not count.
func (a *Agent) lookUpImage(ctx context.Context, name string) (agentrpc.Image, error) {
	names, err := imageNames(name)
	if err != nil {
		return agentrpc.Image{}, err
	}
	for _, full := range names {
		var img agentrpc.Image
		err := a.podman.call(ctx, "look up image "+name, func(ctx context.Context) error {
			r, err := images.GetImage(ctx, full, nil)
			if err != nil {
				return err
			}
			img = agentrpc.Image{Found: true, ID: r.ID, Digest: string(r.Digest), Name: full}
			return nil
		})
		if err == nil || agentrpc.CodeOf(err) != agentrpc.CodeNotFound {
			return img, err
		}
	}
	return agentrpc.Image{}, nil
}

// prepare makes ready what needs no device.
func (a *Agent) prepare(ctx context.Context, p agentrpc.PrepareArgs) (agentrpc.Image, error) {
	if _, err := a.check(ctx, p); err != nil {
		return agentrpc.Image{}, err
	}
	if p.HostEnv {
		return a.prepareHostEnv(ctx, p)
	}
	img, err := a.lookUpImage(ctx, p.Image)
	if err != nil || img.Found {
		return img, err
	}
	names, err := imageNames(p.Image)
	if err != nil {
		return img, err
	}
	if file, ok := archiveOf(p.Archives, names); ok {
		return a.load(ctx, p, file)
	}
	full := names[len(names)-1]
	if engine.IsImageID(full) { // Podman would search registries for an image of that name
		return img, invalid("image %s is not in your local store, and an ID cannot be pulled: write a name, for example docker.io/library/python:3.12", full)
	}
	return a.pull(ctx, p, full)
}

// check looks, as the user, at what a job wants of the host: what cannot be is refused before it waits.
func (a *Agent) check(_ context.Context, p agentrpc.PrepareArgs) (none, error) {
	p.Mounts = present(p.Mounts)
	if err := checkMounts(p.Workdir, p.Mounts); err != nil {
		return nil, err
	}
	if err := checkOutput(p.Workdir, p.Output); err != nil {
		return nil, err
	}
	if !p.HostEnv || p.Program == "" {
		return nil, nil
	}
	return nil, a.jobView(p.Workdir, p.Mounts, p.Path).check(p.Program, p.Later)
}

func (a *Agent) pull(ctx context.Context, p agentrpc.PrepareArgs, full string) (agentrpc.Image, error) {
	a.progress(p.Job, "pulling "+full)
	w := &progressWriter{send: func(text string) { a.progress(p.Job, text) }, now: time.Now}
	var ids []string
	err := a.podman.call(ctx, "pull", func(ctx context.Context) (err error) {
		ids, err = pullStream(ctx, full, w)
		return err
	})
	if err != nil {
		return agentrpc.Image{}, pullFault(full, err)
	}
	name := full
	if len(ids) > 0 {
		name = ids[len(ids)-1]
	}
	img, err := a.lookUpImage(ctx, name)
	if err == nil && !img.Found {
		err = &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "image " + full + " is not there after pulling it"}
	}
	img.Name = full
	return img, err
}

// pullStream asks Podman to pull. No credentials go along: the service runs as the user and reads the user's own, while
// the bindings insist on reading them here, from places that an account without a login session may not look into.
func pullStream(ctx context.Context, image string, w io.Writer) ([]string, error) {
	conn, err := bindings.GetClient(ctx)
	if err != nil {
		return nil, err
	}
	query := url.Values{"reference": {image}, "policy": {"missing"}}
	resp, err := conn.DoRequest(ctx, nil, http.MethodPost, "/images/pull", query, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if !resp.IsSuccess() {
		return nil, resp.Process(nil)
	}
	var ids []string
	for dec := json.NewDecoder(resp.Body); ; {
		var m struct {
			Stream, Error, ID string
			Images            []string
		}
		err := dec.Decode(&m)
		switch {
		case errors.Is(err, io.EOF):
			return ids, nil
		case err != nil:
			return nil, err
		case m.Error != "":
			return nil, &errorhandling.ErrorModel{Message: m.Error, ResponseCode: http.StatusInternalServerError}
		}
		if len(m.Images) > 0 {
			ids = m.Images
		}
		_, _ = io.WriteString(w, m.Stream) // a progressWriter never fails
	}
}

// pullFault sorts a failed pull: a name that no registry knows is the owner's to mend; a registry that cannot be reached
// is worth another try.
func pullFault(image string, err error) error {
	if agentrpc.CodeOf(err) == agentrpc.CodeUnavailable {
		return err
	}
	text := strings.TrimPrefix(err.Error(), "pull: ")
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	code, hint := agentrpc.CodeFailed, ""
	switch {
	case has("manifest unknown", "name unknown", "repository name not known", "does not exist", "invalid reference", "invalid repository name"):
		code = agentrpc.CodeInvalid
	case has("unauthorized", "requested access to the resource is denied", "authentication required", "access forbidden"):
		code, hint = agentrpc.CodeInvalid, "; log in with: gputop images login "+registryOf(image)
	}
	if len(text) > maxMessage {
		text = text[:maxMessage] + "…"
	}
	return &agentrpc.Error{Code: code, Message: "image " + image + " is not on this machine and could not be pulled: " + text + hint}
}

func registryOf(full string) string {
	registry, _, _ := strings.Cut(full, "/")
	return registry
}

func (a *Agent) progress(job engine.JobID, text string) {
	a.note(agentrpc.NoteProgress, agentrpc.Progress{Job: job, Text: text})
}

// progressWriter passes on whole lines of Podman's progress, at most one a second.
type progressWriter struct {
	send func(string)
	now  func() time.Time
	mu   sync.Mutex
	line []byte
	last time.Time
}

func (w *progressWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range b {
		if c != '\n' && c != '\r' {
			if len(w.line) < 200 {
				w.line = append(w.line, c)
			}
			continue
		}
		if text := strings.TrimSpace(string(w.line)); text != "" && w.now().Sub(w.last) >= time.Second {
			w.last = w.now()
			w.send(text)
		}
		w.line = w.line[:0]
	}
	return len(b), nil
}
