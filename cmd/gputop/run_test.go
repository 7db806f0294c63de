package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine/api"
	"gputop/engine/draft"
)

// boxed is a cli before a box.
func boxed(t *testing.T) (*cli, *box) {
	b := newBox()
	socket, stop := serve(t, b)
	t.Cleanup(stop)
	return &cli{socket: socket, out: io.Discard, err: io.Discard}, b
}

// TestAttachEnds tells leaving a job from its end, and both from a podman that failed.
func TestAttachEnds(t *testing.T) {
	c, b := boxed(t)
	client, err := c.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	bin := t.TempDir()
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	for _, tc := range []struct {
		code  int
		runs  bool
		left  bool
		error string
	}{
		{0, true, true, ""},
		{0, false, false, ""},
		{3, false, false, ""},
		{125, true, false, "job 1 goes on, but podman attach failed: exit status 125; come back with: gputop attach 1"},
	} {
		script := fmt.Sprintf("#!/bin/sh\n[ $1 = container ] && echo %t || exit %d\n", tc.runs, tc.code)
		if err := os.WriteFile(filepath.Join(bin, "podman"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		left, err := c.attach(t.Context(), client, b.jobs[0])
		if left != tc.left || fmt.Sprint(err) != map[bool]string{true: "<nil>", false: tc.error}[tc.error == ""] {
			t.Errorf("podman ends with %d, the container runs %t: %t, %v", tc.code, tc.runs, left, err)
		}
	}
}

// TestRunRefused is what the daemon alone checks of a job with a terminal.
func TestRunRefused(t *testing.T) {
	c, _ := boxed(t)
	err := c.run(t.Context(), draft.Fields{Command: []string{"sh"}, Workdir: t.TempDir(), Retries: "2"}, runFlags{tty: true})
	var refused *api.Error
	if !errors.As(err, &refused) || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "leave out --retries and --restart") {
		t.Errorf("got %v", err)
	}
}
