package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containers/podman/v5/pkg/bindings/containers"

	"gputop/engine"
	"gputop/engine/agentrpc"
)

// maxKept bounds how many jobs are named at a time.
const maxKept = 10_000

// kept lists the jobs of which something is here, lowest first.
func (a *Agent) kept() (agentrpc.KeptJobs, error) {
	found := map[engine.JobID]bool{}
	for _, part := range []string{"logs", "output", "checkpoints"} {
		entries, err := os.ReadDir(filepath.Join(a.o.StateDir, part))
		if err != nil {
			return agentrpc.KeptJobs{}, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: "list what is kept: " + err.Error()}
		}
		for _, e := range entries {
			name, _, _ := strings.Cut(e.Name(), ".")
			if id, err := engine.ParseJobID(name); err == nil && id.String() == name {
				found[id] = true
			}
		}
	}
	var out agentrpc.KeptJobs
	for id := range found {
		out.Jobs = append(out.Jobs, id)
	}
	slices.Sort(out.Jobs)
	out.Jobs = out.Jobs[:min(len(out.Jobs), maxKept)]
	return out, nil
}

// unused refuses a job that has a container, whoever made it: its log is open and its checkpoints are mounted.
func (a *Agent) unused(ctx context.Context, job engine.JobID) error {
	var names []string
	err := a.podman.call(ctx, "list containers of job "+job.String(), func(ctx context.Context) error {
		list, err := containers.List(ctx, new(containers.ListOptions).WithAll(true).
			WithFilters(map[string][]string{"label": {LabelJob + "=" + job.String()}}))
		names = nil
		for _, c := range list {
			names = append(names, c.Names...)
		}
		return err
	})
	if err == nil && len(names) > 0 {
		err = &agentrpc.Error{Code: agentrpc.CodeConflict, Message: fmt.Sprintf("job %s still has a container: %s", job, strings.Join(names, ", "))}
	}
	return err
}

// forget drops what is kept of a job beyond its containers.
func (a *Agent) forget(ctx context.Context, p agentrpc.ForgetArgs) (none, error) {
	if p.Job <= 0 {
		return nil, invalid("job %d does not exist", p.Job)
	}
	if err := a.unused(ctx, p.Job); err != nil {
		return nil, err
	}
	if err := a.drop(ctx, p.Job); err != nil {
		return nil, &agentrpc.Error{Code: agentrpc.CodeFailed, Message: fmt.Sprintf("forget job %s: %v", p.Job, err)}
	}
	return nil, nil
}

// drop removes the files of a job.
func (a *Agent) drop(ctx context.Context, job engine.JobID) error {
	var errs []error
	for _, part := range []string{"logs", "output"} {
		dir := filepath.Join(a.o.StateDir, part)
		entries, err := os.ReadDir(dir)
		errs = append(errs, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), job.String()+".") {
				errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
			}
		}
	}
	dir := a.checkpointDir(job)
	if err := os.RemoveAll(dir); err != nil {
		// Files of other users inside the container belong to subordinate ids out here.
		cmd := a.podman.command("unshare", "rm", "-rf", "--", dir)
		if out, uerr := runBounded(ctx, cmd); uerr != nil {
			errs = append(errs, fmt.Errorf("%w; podman unshare: %w: %s", err, uerr, out))
		}
	}
	return errors.Join(errs...)
}
