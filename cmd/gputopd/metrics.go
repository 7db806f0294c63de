package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// serveMetrics answers Prometheus on a TCP address until ctx is done; an empty one is none. An address that cannot be had
// is logged, and stops nothing: jobs matter more than their graphs.
func serveMetrics(ctx context.Context, address string, metrics http.Handler, log *slog.Logger) error {
	if address == "" {
		<-ctx.Done()
		return nil
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		log.Error("metrics are not served", "address", address, "err", err)
		<-ctx.Done()
		return nil
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 5 * time.Second, WriteTimeout: 20 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	log.Info("metrics", "address", ln.Addr().String())
	if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		log.Error("metrics are not served any more", "address", address, "err", err)
	}
	<-ctx.Done()
	return nil
}
