// Package account says who the user is and with which environment that user's Podman runs, so that the agent and the
// user's own command line see the same containers. It must stay free of Podman's libraries: the client links it.
package account

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gputop/engine"
)

// Path is where an ordinary account's Podman and its parts are looked for.
const Path = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// lookupTimeout bounds a question to the name service, which may be a directory server that does not answer.
const lookupTimeout = 10 * time.Second

// Account is a user with what the passwd entry says of home and shell.
type Account struct {
	engine.User
	Home  string
	Shell string
}

// Current is the account this process runs as. It asks the name service, so that accounts from LDAP or SSSD are found.
func Current(ctx context.Context) (Account, error) {
	return Lookup(ctx, strconv.Itoa(os.Getuid()))
}

// Lookup finds an account by uid or name.
func Lookup(ctx context.Context, key string) (Account, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "getent", "passwd", key).Output()
	if err == nil {
		return parsePasswd(strings.TrimSpace(string(out)))
	}
	// No getent on this machine, or no answer: the local file still knows the local accounts.
	data, ferr := os.ReadFile("/etc/passwd")
	if ferr != nil {
		return Account{}, fmt.Errorf("look up account %s: %w", key, errors.Join(err, ferr))
	}
	for line := range strings.Lines(string(data)) {
		if a, perr := parsePasswd(strings.TrimSpace(line)); perr == nil && (a.Name == key || strconv.Itoa(int(a.UID)) == key) {
			return a, nil
		}
	}
	return Account{}, fmt.Errorf("account %s is not known on this machine: %w", key, err)
}

func parsePasswd(line string) (Account, error) {
	f := strings.Split(line, ":")
	if len(f) < 7 {
		return Account{}, fmt.Errorf("passwd entry %q: want seven fields", line)
	}
	uid, err := strconv.ParseUint(f[2], 10, 32)
	if err != nil {
		return Account{}, fmt.Errorf("passwd entry %q: uid: %w", line, err)
	}
	gid, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		return Account{}, fmt.Errorf("passwd entry %q: gid: %w", line, err)
	}
	a := Account{User: engine.User{UID: uint32(uid), GID: uint32(gid), Name: f[0]}, Home: f[5], Shell: f[6]}
	if a.Shell == "" {
		a.Shell = "/bin/sh"
	}
	return a, nil
}

// PodmanEnv is the whole environment of the account's Podman: what the user's own podman has in a login session, and
// nothing of the process that starts it. XDG_RUNTIME_DIR is set only where the login manager made that directory for
// this user: a Podman with another one sees other containers.
func PodmanEnv(a Account) []string {
	env := []string{"HOME=" + a.Home, "USER=" + a.Name, "LOGNAME=" + a.Name, "PATH=" + Path}
	if d := RuntimeDir(a.UID); d != "" {
		env = append(env, "XDG_RUNTIME_DIR="+d)
	}
	return env
}

// RuntimeDir is /run/user/UID where it exists and belongs to that user, else empty.
func RuntimeDir(uid uint32) string {
	d := filepath.Join("/run/user", strconv.Itoa(int(uid)))
	if Owned(d, uid) {
		return d
	}
	return ""
}

// Owned says whether path is a directory (no link) of that user.
func Owned(path string, uid uint32) bool {
	fi, err := os.Lstat(path)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && st.Uid == uid
}
