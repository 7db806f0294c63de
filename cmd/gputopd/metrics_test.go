package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServeMetrics(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	log := &bytes.Buffer{}
	answer := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metrics") })
	run := func() (stop func() error) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- serveMetrics(ctx, address, answer, slog.New(slog.NewTextHandler(log, nil))) }()
		return func() error { cancel(); return <-done }
	}
	stop := run()
	time.Sleep(50 * time.Millisecond)
	if err := stop(); err != nil || !strings.Contains(log.String(), "metrics are not served") {
		t.Errorf("an address that is taken: %v, %s", err, log)
	}
	taken.Close()
	stop = run()
	get := func(path string) (code int, body string) {
		for range 100 {
			r, err := http.Get("http://" + address + path)
			if err != nil {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			b, _ := io.ReadAll(r.Body)
			r.Body.Close()
			return r.StatusCode, string(b)
		}
		return 0, ""
	}
	if code, body := get("/metrics"); code != http.StatusOK || body != "metrics" {
		t.Errorf("/metrics: %d %s", code, body)
	}
	if code, _ := get("/v1/jobs"); code != http.StatusNotFound {
		t.Errorf("another path: %d", code)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}
