package daemon

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"gputop/engine"
	"gputop/engine/api"
)

// hub passes changes on to watchers. A slow reader never holds up the loop and never misses a state: of each job it gets
// the newest, of samples just the last.
type hub struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
	closed   bool
}

type watcher struct {
	wake    chan struct{}
	jobs    map[engine.JobID]*api.Job
	removed map[engine.JobID]bool
	gpus    *api.GPUs
	user    engine.User // who watches
	notices *api.Notices
}

func newHub() *hub { return &hub{watchers: map[*watcher]struct{}{}} }

func (h *hub) job(v *api.Job) {
	h.each(func(w *watcher) {
		w.jobs[v.ID] = v
		delete(w.removed, v.ID)
	})
}

func (h *hub) removed(id engine.JobID) {
	h.each(func(w *watcher) {
		w.removed[id] = true
		delete(w.jobs, id)
	})
}

func (h *hub) gpus(v *api.GPUs) { h.each(func(w *watcher) { w.gpus = v }) }

func (h *hub) each(f func(*watcher)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.watchers {
		f(w)
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

func (h *hub) add(u engine.User) *watcher {
	w := &watcher{user: u, wake: make(chan struct{}, 1), jobs: map[engine.JobID]*api.Job{}, removed: map[engine.JobID]bool{}}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		close(w.wake)
		return w
	}
	h.watchers[w] = struct{}{}
	return w
}

func (h *hub) remove(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watchers, w)
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for w := range h.watchers {
		close(w.wake)
		delete(h.watchers, w)
	}
}

// take empties what has gathered for a watcher.
func (h *hub) take(w *watcher, c api.Caller) (api.WatchEvent, bool) {
	h.mu.Lock()
	jobs, removed, ev := w.jobs, w.removed, api.WatchEvent{GPUs: w.gpus, Notices: w.notices}
	w.jobs, w.removed, w.gpus, w.notices = map[engine.JobID]*api.Job{}, map[engine.JobID]bool{}, nil, nil
	h.mu.Unlock()
	for _, v := range jobs {
		ev.Jobs = append(ev.Jobs, redact(*v, c))
	}
	slices.SortFunc(ev.Jobs, func(a, b api.Job) int { return cmp.Compare(a.ID, b.ID) })
	for id := range removed {
		ev.Removed = append(ev.Removed, id)
	}
	slices.Sort(ev.Removed)
	return ev, ev.GPUs != nil || ev.Notices != nil || len(ev.Jobs) > 0 || len(ev.Removed) > 0
}

// Watch sends a snapshot and then every change, until ctx ends.
func (d *Daemon) Watch(ctx context.Context, c api.Caller, send func(api.WatchEvent) error) error {
	var w *watcher
	snap := &api.Snapshot{Info: d.Info(c)}
	var views []*api.Job
	err := d.do(ctx, func() {
		// In the loop: nothing can change between the snapshot and the registration.
		views = d.liveViews()
		snap.GPUs = *d.gpusView()
		w = d.hub.add(c.User)
	})
	if err != nil {
		return err
	}
	defer d.hub.remove(w)
	snap.Jobs = make([]api.Job, 0, len(views))
	for _, v := range views {
		snap.Jobs = append(snap.Jobs, redact(*v, c))
	}
	first := api.WatchEvent{Snapshot: snap}
	// Read after the registration: one that comes meanwhile is sent twice rather than not at all.
	if n, err := d.Notices(ctx, c, api.DefaultNotices); err == nil {
		first.Notices = &n
	} else {
		d.log.Error("a screen begins without notices", "user", c.Name, "err", err)
	}
	if err := send(first); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case _, open := <-w.wake:
			if !open {
				return errStopped
			}
		}
		if ev, any := d.hub.take(w, c); any {
			if err := send(ev); err != nil {
				return err
			}
		}
	}
}

// liveViews lists the views of all live jobs in the order of their ids.
func (d *Daemon) liveViews() []*api.Job {
	list := make([]*api.Job, 0, len(d.state.jobs))
	for _, e := range d.state.jobs {
		if e.view == nil {
			e.view = d.view(e)
		}
		list = append(list, e.view)
	}
	slices.SortFunc(list, func(a, b *api.Job) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
