package deliver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"gputop/engine/termsafe"
)

const (
	// outputBytes is how much is kept of what a program prints, for the log.
	outputBytes = 2 << 10
	// lateOutput is how long output is read after a program's end, should it have left something behind that holds it.
	lateOutput = time.Second
)

// programPath is the search path of what is started.
const programPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Run runs a program to its end or ctx's, in a session of its own, with hardly an environment. As root it runs as the
// account that the program says, with that account's group alone, and never as root. Under systemd root's daemon may not
// change its user: there systemd starts the program, outside the daemon's sandbox.
func Run(ctx context.Context, p Program) error {
	argv, cred := p.Argv, (*syscall.Credential)(nil)
	if os.Geteuid() == 0 {
		id, err := accountID(p.As)
		if err != nil {
			return err
		}
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			argv = systemdRun(id, argv)
		} else {
			cred = &id
		}
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + programPath, "LANG=C.UTF-8"}
	cmd.Stdin = bytes.NewReader(p.Stdin)
	out := &head{most: outputBytes}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: cred}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // all of its session that stayed
	cmd.WaitDelay = lateOutput
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it has ended well, and left something running
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("ended after its time of %s", runTime)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s", p.Argv[0], err, termsafe.Line(string(out.kept)))
	}
	return nil
}

// accountID is who a program runs as. Root is refused.
func accountID(name string) (syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return syscall.Credential{}, fmt.Errorf("the account that notices are sent as: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	switch {
	case err1 != nil || err2 != nil:
		return syscall.Credential{}, fmt.Errorf("account %s: %w", name, errors.Join(err1, err2))
	case uid == 0 || gid == 0:
		return syscall.Credential{}, fmt.Errorf("account %s: programs for notices never run as root", name)
	}
	return syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// systemdRun has the system's manager run a program as somebody and pass its input and end on.
func systemdRun(id syscall.Credential, argv []string) []string {
	return append([]string{"systemd-run", "--quiet", "--collect", "--wait", "--pipe", "--description", "gputop notice",
		"--property", fmt.Sprintf("User=%d", id.Uid), "--property", fmt.Sprintf("Group=%d", id.Gid),
		"--property", fmt.Sprintf("RuntimeMaxSec=%d", int(runTime.Seconds())), "--"}, argv...)
}

// head keeps the beginning of what is written to it.
type head struct {
	kept []byte
	most int
}

func (h *head) Write(b []byte) (int, error) {
	h.kept = append(h.kept, b[:min(len(b), h.most-len(h.kept))]...)
	return len(b), nil
}
