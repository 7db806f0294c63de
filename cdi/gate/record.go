package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// RecordName is the name of the record in the daemon's state directory.
const RecordName = "gate.json"

// recordVersion is what this program writes, and all that it reads.
const recordVersion = 1

// record is what nodes were before they were closed.
type record struct {
	Version int     `json:"version"`
	Nodes   []entry `json:"nodes"`
}

type entry struct {
	Node
	// Boot and Inode tell a node from one that was made anew under its name.
	Boot  string     `json:"boot"`
	Inode uint64     `json:"inode"`
	Was   attributes `json:"was"`
}

// another says whether a node is not the one that was recorded.
func (e *entry) another(h *handle, boot string) bool { return e.Boot != boot || e.Inode != h.ino }

// load reads the record; none is an empty one.
func (g *Gate) load() (record, error) {
	r := record{Version: recordVersion}
	b, err := os.ReadFile(g.record)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err == nil && r.Version != recordVersion {
		err = fmt.Errorf("it is of version %d: use the gputopd that wrote it", r.Version)
	}
	if err != nil {
		return r, fmt.Errorf("what device nodes were before the gate, %s: %w", g.record, err)
	}
	return r, nil
}

// remember records what a node is now, unless it is recorded already or closed; it says whether that is news.
func (r *record) remember(n Node, h *handle, now attributes, boot string) bool {
	fresh := entry{Node: n, Boot: boot, Inode: h.ino, Was: now}
	for i := range r.Nodes {
		e := &r.Nodes[i]
		if e.Path != n.Path {
			continue
		}
		if !e.another(h, boot) || now.ours() {
			return false
		}
		*e = fresh
		return true
	}
	if now.ours() {
		fresh.Was = byDriver() // closed by us, and the record of it is lost
	}
	r.Nodes = append(r.Nodes, fresh)
	return true
}

// byDriver is how the driver makes a card's node unless it is told otherwise, and the file of a SIMULATED card is made.
func byDriver() attributes {
	return attributes{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), Mode: 0o666}
}

// save replaces the record whole, or removes it when there is nothing in it.
func (r *record) save(path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep what device nodes were before the gate: %w", err)
		}
	}()
	if len(r.Nodes) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return syncDir(filepath.Dir(path))
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	temp := path + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // the error told is the one before
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
