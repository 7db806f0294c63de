package store

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// The reserve is room on the disk that is given back in steps when there is no other, so that ends and stops can be
// stored while some job fills the disk: without them it could not be ended. What is new does not get it.
const (
	reserveName = "reserve"
	// reserveSize is what it takes of the disk, reserveStep what one call gets of it, in bytes.
	reserveSize = 1 << 20
	reserveStep = 64 << 10
	// reserveEvery is how often it is looked at, and reserveRoom what else has to be free before it is filled up again.
	reserveEvery = 10 * time.Second
	reserveRoom  = 4 * reserveSize
)

// reserve is the writer's alone.
type reserve struct {
	path   string
	now    func() time.Time
	log    *slog.Logger
	looked time.Time
}

// give shortens the reserve by a step; false when nothing is left of it.
func (r *reserve) give() bool {
	fi, err := os.Stat(r.path)
	if err != nil || fi.Size() == 0 {
		return false
	}
	if err := os.Truncate(r.path, max(fi.Size()-reserveStep, 0)); err != nil {
		r.log.Error("reserve of disk space not given", "file", r.path, "err", err)
		return false
	}
	r.log.Warn("the disk with gputop's state is full: some of the reserve is used", "file", r.path, "left", max(fi.Size()-reserveStep, 0))
	r.looked = r.now()
	return true
}

// rebuild fills the reserve up when there is room; written says that the last call found some.
func (r *reserve) rebuild(written bool) {
	now := r.now()
	if !written || !r.looked.IsZero() && now.Sub(r.looked) < reserveEvery {
		return
	}
	r.looked = now
	if fi, err := os.Stat(r.path); err == nil && fi.Size() >= reserveSize || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := r.fill(); err != nil {
		r.log.Warn("no reserve of disk space", "file", r.path, "err", err)
	}
}

func (r *reserve) fill() error {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return err
	}
	if int64(st.Bavail)*st.Bsize < reserveRoom {
		return unix.ENOSPC
	}
	if err := unix.Fallocate(int(f.Fd()), 0, 0, reserveSize); !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	_, err = f.WriteAt(make([]byte, reserveSize), 0)
	return err
}
