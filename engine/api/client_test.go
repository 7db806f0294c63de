package api

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestClientRefusesOthers(t *testing.T) {
	serve := func(header string) *Client {
		l, err := ListenUnix(filepath.Join(shortDir(t), "s"), 0o600)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 4096))
			fmt.Fprintf(c, "HTTP/1.1 200 OK\r\n%sContent-Length: 2\r\nConnection: close\r\n\r\n{}", header)
			c.Close()
		}()
		t.Cleanup(func() { l.Close(); <-done })
		return &Client{Socket: l.Addr().String()}
	}
	_, err := serve("Gputop-Api: 2\r\n").Info(ctx)
	if want := `the daemon speaks version "2", this gputop 1: install the same version of both`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := serve("").Info(ctx); err == nil || err.Error() != "what answers on the socket is not gputop's daemon" {
		t.Errorf("got %v", err)
	}
	if _, err := (&Client{Socket: "/nonexistent/s"}).Info(ctx); !errors.Is(err, ErrUnreachable) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := (&Client{Socket: "/" + strings.Repeat("x", 107)}).Info(ctx); err == nil || !strings.Contains(err.Error(), "has 108 bytes; Linux allows 107") {
		t.Errorf("got %v", err)
	}
}

func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	l, err := ListenUnix(path, 0o660)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o660 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	if _, err := ListenUnix(path, 0o600); !errors.Is(err, ErrInUse) {
		t.Errorf("a second daemon: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as after a kill
	l.Close()
	if l, err = ListenUnix(path, 0o600); err != nil {
		t.Fatalf("after a kill: %v", err)
	}
	l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ListenUnix(path, 0o600); err == nil || !strings.Contains(err.Error(), "no socket is there already") {
		t.Errorf("over a file: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Error("the file was touched")
	}
}
