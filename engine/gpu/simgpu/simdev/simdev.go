// Package simdev is the file behind a SIMULATED GPU, and the client side of it: a workload holds device memory and SMs
// by POSIX record locks on the file, and whoever samples reads from the kernel which process holds how much. It knows
// nothing of NVML and must not import it, so that a small static program inside a container can use it.
package simdev

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gputop/engine"
)

// ErrNotSimulated is returned for a path that is not the file of a simulated GPU, a real device node above all. The
// caller should name another path.
var ErrNotSimulated = errors.New("not a simulated GPU")

// magic marks a file of this format; a new format gets a new word.
const magic = "gputop-simulated-gpu-1"

// maxHeader bounds what is read of a file that anybody may write to.
const maxHeader = 4096

// Header is what the file says of the simulated device. Any user may write to the file, so only clients believe it.
type Header struct {
	Magic string          `json:"magic"`
	UUID  engine.DeviceID `json:"uuid"`
	Model string          `json:"model"`
	// Capacity is what processes can hold together, contexts included, in bytes.
	Capacity engine.Bytes `json:"capacity_bytes"`
	// Context is what a process holds from opening the device on, before it allocates anything, in bytes.
	Context engine.Bytes `json:"context_bytes"`
}

// Create makes the file at path, for everybody to read and write, unless it is there already with this header. A file
// in use keeps its inode, so that the locks of running processes stay.
func Create(path string, h Header) error {
	h.Magic = magic
	if old, err := readHeaderAt(path); err == nil && old == h {
		return nil
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	} else if err == nil {
		return fmt.Errorf("simulated GPU %s: the file belongs to another device (%s); remove it when nothing uses it", path, old.UUID)
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	// A temporary name and a link: two processes that prepare at once end with one whole file.
	t, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("create simulated GPU: %w", err)
	}
	defer os.Remove(t.Name())
	_, err = t.Write(append(b, '\n'))
	err = errors.Join(err, t.Chmod(0o666), t.Close())
	if err == nil {
		err = os.Link(t.Name(), path)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create simulated GPU %s: %w", path, err)
	}
	return nil
}

func readHeaderAt(path string) (Header, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return Header{}, err
	}
	if !fi.Mode().IsRegular() {
		return Header{}, fmt.Errorf("%s: %w: it is no regular file", path, ErrNotSimulated)
	}
	// This close drops no locks: only clients hold any, and a client never prepares.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return Header{}, err
	}
	defer f.Close()
	return readHeader(f)
}

func readHeader(f *os.File) (Header, error) {
	b := make([]byte, maxHeader)
	n, err := f.ReadAt(b, 0)
	if n == 0 && err != nil {
		return Header{}, fmt.Errorf("%s: %w: it is empty or unreadable", f.Name(), ErrNotSimulated)
	}
	line, _, _ := bytes.Cut(b[:n], []byte{'\n'})
	var h Header
	if err := json.Unmarshal(line, &h); err != nil || h.Magic != magic {
		return Header{}, fmt.Errorf("%s: %w: it does not begin as one", f.Name(), ErrNotSimulated)
	}
	if h.Capacity <= 0 || h.Context < 1 || h.Context > h.Capacity {
		return Header{}, fmt.Errorf("%s: %w: its header makes no sense", f.Name(), ErrNotSimulated)
	}
	return h, nil
}
