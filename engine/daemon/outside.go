package daemon

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"gputop/cdi/gate"
	"gputop/engine"
	"gputop/engine/api"
	"gputop/engine/store"
)

// maxOutside bounds how many pairs of user and card are counted: uids of containers are many.
const maxOutside = 4096

// actionOutside is the audit trail's word for use of a card outside the queue.
const actionOutside = "outside-use"

// stranger is a process on a card that no attempt has.
type stranger struct {
	device engine.DeviceID
	index  int
	engine.GPUProcess
}

type strangerKey struct {
	pid    int
	start  uint64
	device engine.DeviceID
}

type outsideKey struct {
	uid    uint32
	device engine.DeviceID
}

// outside is who uses the cards outside the queue, since the daemon began. It is the loop's.
type outside struct {
	since time.Time
	// boot is when it was counted last, CLOCK_BOOTTIME nanoseconds.
	boot int64
	seen map[strangerKey]bool
	use  map[outsideKey]*api.OutsideUse
	told refusals
}

// countOutside takes in the strangers of a sample.
func (d *Daemon) countOutside(list []stranger) {
	o := &d.outside
	now, boot := d.o.System.Now(), d.o.System.Boottime()
	// A gap in the samples is not time in which anybody was seen.
	step := min(time.Duration(boot-o.boot), staleAfter)
	if o.seen == nil {
		o.since, step, o.use = now, 0, map[outsideKey]*api.OutsideUse{}
	}
	o.boot = boot
	for _, u := range o.use {
		u.Now, u.Memory = 0, 0
	}
	seen := make(map[strangerKey]bool, len(list))
	for _, s := range list {
		k := strangerKey{s.PID, s.Start, s.device}
		if seen[k] {
			continue
		}
		seen[k] = true
		ok := outsideKey{s.UID, s.device}
		u := o.use[ok]
		if u == nil && len(o.use) < maxOutside {
			u = &api.OutsideUse{UID: s.UID, User: d.userName(s.UID), Device: s.device}
			o.use[ok] = u
		}
		fresh := !o.seen[k]
		if u != nil {
			if fresh {
				u.Processes++
			} else if u.Now == 0 {
				u.For += step // of several at once the time counts once
			}
			u.Now, u.Index, u.Last = u.Now+1, s.index, now
			u.Memory += bytesOf(s.Memory)
			u.Peak = max(u.Peak, u.Memory)
		}
		if fresh {
			d.outsideUse(s)
		}
	}
	o.seen = seen
}

// outsideUse is called once for each process that is found on a card and is no job's. From the mode warn on it is told:
// to its user, the log and the audit trail, up to a limit for each user.
func (d *Daemon) outsideUse(s stranger) {
	mode := d.policy().Gate
	if mode == gate.Observe || d.o.Mode != Shared || s.UID == 0 { // root's are display servers and tools of the driver
		return
	}
	write, unwritten := d.outside.told.take(s.UID, d.o.System.Now())
	if !write {
		return
	}
	user := engine.User{UID: s.UID, Name: firstOf(d.userName(s.UID), fmt.Sprint(s.UID))}
	text := fmt.Sprintf("GPU %d (%s) outside the queue: process %d", s.index, s.device, s.PID)
	if s.Memory != nil {
		text += fmt.Sprintf(", %s", *s.Memory)
	}
	if unwritten > 0 {
		text += fmt.Sprintf("; %d more before it were not written down", unwritten)
	}
	d.log.Warn("a card is used outside the queue", "user", user.Name, "uid", s.UID, "gpu", s.index, "device", s.device, "pid", s.PID)
	e := engine.AuditEntry{Time: d.o.System.Now(), User: user, PID: s.PID, Action: actionOutside, Allowed: true, Text: text}
	n := &store.Notice{Notice: engine.Notice{Time: e.Time, Kind: engine.NoticeOutside, Owner: user,
		Key:    fmt.Sprintf("%s.%d.%d.%s", d.o.System.BootID, s.PID, s.Start, s.device),
		Text:   fmt.Sprintf("GPU %d is used outside the queue", s.index),
		Detail: fmt.Sprintf("your process %d; others cannot reckon with it. Give the work to the queue: gputop submit -- COMMAND", s.PID)}}
	if d.o.Deliver != nil {
		n.Due = d.o.Deliver.Ways()
	}
	d.tellNow([]*store.Notice{n}, store.AddAudit(e))
}

// outsideView lists who uses or has used the cards outside the queue, who does now first.
func (d *Daemon) outsideView() []api.OutsideUse {
	list := make([]api.OutsideUse, 0, len(d.outside.use))
	for _, u := range d.outside.use {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b api.OutsideUse) int {
		return cmp.Or(-cmp.Compare(min(a.Now, 1), min(b.Now, 1)), cmp.Compare(a.Index, b.Index), -cmp.Compare(a.For, b.For), cmp.Compare(a.UID, b.UID),
			cmp.Compare(a.Device, b.Device))
	})
	return list
}
