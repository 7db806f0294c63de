package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/draft"
)

// The exit codes, as gputop help exit-codes tells them.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitNotFound    = 4
	exitForbidden   = 5
	exitConflict    = 6

	exitTimedOut       = 124
	exitInfrastructure = 125
	exitCancelled      = 130
)

func exitCodesTopic() *cobra.Command {
	return &cobra.Command{
		Use:   "exit-codes",
		Short: "What gputop's exit codes mean",
		Long: `gputop ends with

  0    done
  1    the request failed; the message says why and what was kept
  2    wrong usage or input: nothing was sent, or the daemon refused it as it is
  3    no daemon answers
  4    no such job
  5    not allowed
  6    not in this state: the job has ended, or does not run

gputop wait ends as the job did

  N    the exit code of the job's program (128+N when signal N killed it)
  124  the job reached its time limit
  125  the machine failed, not the program: the job is lost or could not be started
  130  the job was cancelled

With several jobs gputop wait ends with the first of these that is not 0, in the order given.
gputop exec ends with the code of the command, or of podman.`,
	}
}

// usageError is what the user has to write otherwise.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// codeError ends gputop with a code of its own.
type codeError struct {
	code int
	text string
}

func (e *codeError) Error() string { return e.text }

func exitCode(err error) int {
	var ce *codeError
	var ue *usageError
	var ae *api.Error
	switch {
	case errors.As(err, &ce):
		return ce.code
	case errors.As(err, &ue), len(draft.FieldErrors(err)) > 0:
		return exitUsage
	case errors.As(err, &ae):
		switch ae.Code {
		case api.CodeInvalid:
			return exitUsage
		case api.CodeNotFound:
			return exitNotFound
		case api.CodeForbidden:
			return exitForbidden
		case api.CodeConflict:
			return exitConflict
		}
	case errors.Is(err, api.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.Canceled):
		return exitCancelled
	}
	return exitFailed
}

// waitCode is how gputop wait ends for a job that has ended.
func waitCode(j api.Job) int {
	switch j.State {
	case engine.Succeeded:
		return exitOK
	case engine.TimedOut:
		return exitTimedOut
	case engine.Cancelled:
		return exitCancelled
	case engine.Failed:
		if j.ExitCode != nil && *j.ExitCode != 0 {
			return *j.ExitCode & 0xff
		}
	}
	return exitInfrastructure
}
