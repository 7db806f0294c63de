package api

import (
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestService is the service that TestActivatedListener starts, which says what it found; alone it does nothing.
func TestService(*testing.T) {
	if os.Getenv("TEST_SERVICE") == "" {
		return
	}
	l, err := ActivatedListener()
	switch {
	case err != nil:
		os.Stdout.WriteString(err.Error())
	case l == nil:
		os.Stdout.WriteString("none")
	default:
		os.Stdout.WriteString(l.Addr().String() + " " + os.Getenv("LISTEN_FDS"))
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}
	os.Exit(0)
}

func TestActivatedListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	unixSocket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer unixSocket.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	for _, c := range []struct {
		name, env string
		socket    interface{ File() (*os.File, error) }
		want      string
	}{
		{"ours", "LISTEN_PID=$$ LISTEN_FDS=1", unixSocket, path + " "},
		{"another process's", "LISTEN_PID=1 LISTEN_FDS=1", unixSocket, "none"},
		{"two", "LISTEN_PID=$$ LISTEN_FDS=2", unixSocket, "systemd handed over 2 sockets"},
		{"no Unix socket", "LISTEN_PID=$$ LISTEN_FDS=1", tcp.(*net.TCPListener), "the socket from systemd is tcp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := c.socket.File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			// The PID is known to the shell that becomes the service.
			cmd := exec.Command("sh", "-c", c.env+` TEST_SERVICE=1 exec "$0" -test.run='^TestService$'`, os.Args[0])
			cmd.ExtraFiles = []*os.File{f} // as 3
			var out strings.Builder
			cmd.Stdout, cmd.Stderr = &out, os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if c.name == "ours" {
				if said := hello(t, path); said != "hello" {
					t.Errorf("through the socket came %q", said)
				}
			}
			if err := cmd.Wait(); err != nil || !strings.HasPrefix(out.String(), c.want) {
				t.Errorf("got %q, %v, want %q", out.String(), err, c.want)
			}
			if c.name == "ours" && out.String() != c.want {
				t.Errorf("got %q: children would take the socket for theirs", out.String())
			}
		})
	}
}

// hello reads what the service says: the connection waits in the socket until it accepts.
func hello(t *testing.T, path string) string {
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
