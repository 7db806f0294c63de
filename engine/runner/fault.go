package runner

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"github.com/containers/podman/v5/pkg/errorhandling"

	"gputop/engine/agentrpc"
)

// maxMessage bounds what of Podman's words is passed on, in bytes.
const maxMessage = 2000

func invalid(format string, args ...any) error {
	return &agentrpc.Error{Code: agentrpc.CodeInvalid, Message: fmt.Sprintf(format, args...)}
}

// fault sorts an error of Podman's by what the engine does about it. An answer is Podman's word; anything else leaves
// the outcome unknown.
func fault(what string, err error) error {
	if err == nil {
		return nil
	}
	var done *agentrpc.Error
	if errors.As(err, &done) {
		return err
	}
	code := agentrpc.CodeUnavailable
	if status, ok := answered(err); ok {
		code = codeOf(status, err.Error())
	}
	msg := what + ": " + err.Error()
	if len(msg) > maxMessage {
		msg = msg[:maxMessage] + "…"
	}
	if full(err) {
		msg += fullAdvice
	}
	return &agentrpc.Error{Code: code, Message: msg}
}

// answered is the HTTP status if Podman itself refused.
func answered(err error) (int, bool) {
	var p *errorhandling.ErrorModel
	if errors.As(err, &p) {
		return p.ResponseCode, true
	}
	var v errorhandling.ErrorModel
	if errors.As(err, &v) {
		return v.ResponseCode, true
	}
	return 0, false
}

func codeOf(status int, text string) agentrpc.Code {
	switch {
	case status == http.StatusNotFound, strings.Contains(text, "no such container"), strings.Contains(text, "no such image"),
		strings.Contains(text, "image not known"):
		return agentrpc.CodeNotFound
	case strings.Contains(text, "is already in use"):
		return agentrpc.CodeConflict
	case status == http.StatusBadRequest:
		return agentrpc.CodeInvalid
	}
	return agentrpc.CodeFailed
}

// fullAdvice is said of a disk, or a quota, that is used up: usually the one with the user's home.
const fullAdvice = "; the disk with your containers is full or your quota is used up: free some space (see df -h ~ and podman system df)"

func full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) ||
		strings.Contains(err.Error(), syscall.ENOSPC.Error()) || strings.Contains(err.Error(), syscall.EDQUOT.Error())
}

// locked says whether Podman's database was busy: worth another try at once.
func locked(err error) bool { return err != nil && strings.Contains(err.Error(), "database is locked") }

// lookedTooLate says whether an inspect failed because the program ended while Podman read its /proc, as 4.3 does.
func lookedTooLate(err error) bool {
	return err != nil && strings.Contains(err.Error(), "/proc/") && strings.Contains(err.Error(), "no such process")
}
