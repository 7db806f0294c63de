package daemon

import (
	"testing"

	"gputop/engine/scheduler"
)

func (d *Daemon) snapshotForTest(t *testing.T) scheduler.Snapshot {
	t.Helper()
	var s scheduler.Snapshot
	if err := d.do(t.Context(), func() { s = d.snapshot() }); err != nil {
		t.Fatal(err)
	}
	return s
}
