package api

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"gputop/engine"
)

func TestChangesRoundTrip(t *testing.T) {
	f := &fake{}
	c := start(t, f, ServerOptions{})
	if j, err := c.Hold(ctx, 5, "why"); err != nil || !j.Held || f.stop != "5 hold=true why" {
		t.Errorf("hold: %+v, %v, %s", j, err, f.stop)
	}
	if j, err := c.Release(ctx, 5, ""); err != nil || j.Held || f.stop != "5 hold=false " {
		t.Errorf("release: %+v, %v, %s", j, err, f.stop)
	}
	if r, err := c.Requeue(ctx, 5, "again"); err != nil || r.Job.ID != 6 || f.stop != "5 requeue again" {
		t.Errorf("requeue: %+v, %v, %s", r, err, f.stop)
	}
	gpus, class, limit, name := 0, engine.High, time.Hour, "n"
	want := UpdateRequest{Name: &name, Class: &class, TimeLimit: &limit, GPUs: &gpus, Reason: "r"}
	if _, err := c.Update(ctx, 5, want); err != nil || !reflect.DeepEqual(f.update, want) {
		t.Errorf("update: %v; the backend got %+v", err, f.update)
	}
	since := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, q := range []AuditQuery{{Since: since, User: "a b&c", Limit: 5}, {Limit: DefaultAudit}} {
		a, err := c.Audit(ctx, q)
		if err != nil || len(a.Entries) != 1 || !a.More || !f.query.Since.Equal(q.Since) || f.query.User != q.User || f.query.Limit != q.Limit {
			t.Errorf("audit: %+v, %v; the backend got %+v", a, err, f.query)
		}
	}
}

func TestChangesRefused(t *testing.T) {
	c := start(t, &fake{}, ServerOptions{})
	long := strings.Repeat("x", maxNote+1)
	_, held := c.Hold(ctx, 5, long)
	_, updated := c.Update(ctx, 5, UpdateRequest{Reason: long})
	_, asked := c.Audit(ctx, AuditQuery{Limit: MaxAudit + 1})
	for name, err := range map[string]error{"hold": held, "update": updated, "audit": asked} {
		var e *Error
		if !errors.As(err, &e) || e.Code != CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
