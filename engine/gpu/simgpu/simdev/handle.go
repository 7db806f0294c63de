package simdev

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gputop/engine"
)

// ErrOutOfMemory is returned by Alloc and Open when the device has not that much free. The caller may free and try
// again.
var ErrOutOfMemory = errors.New("out of memory")

// turnTimeout bounds the wait for another process's allocation.
const turnTimeout = 10 * time.Second

// Handle is a process's hold on one simulated device. Everything it holds ends with the process.
type Handle struct {
	mu     sync.Mutex
	f      *os.File
	key    fileKey
	header Header
	slot   int64
	held   engine.Bytes
}

type fileKey struct{ dev, ino uint64 }

// open remembers the files this process has open: closing any descriptor of a file drops all locks of the process on
// it, so a second handle would end the first one's hold. It also keeps a forgotten Handle from being collected.
var open = struct {
	sync.Mutex
	files map[fileKey]*Handle
}{files: map[fileKey]*Handle{}}

// Open takes hold of the device and of the memory of a context on it. A real device node is refused with
// ErrNotSimulated and never opened; a process opens a device once.
func Open(path string) (*Handle, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nil, fmt.Errorf("open simulated GPU %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("%s: %w: it is a real device or no file at all, and is left alone", path, ErrNotSimulated)
	}
	key := fileKey{uint64(st.Dev), st.Ino}
	open.Lock()
	defer open.Unlock()
	if open.files[key] != nil {
		return nil, fmt.Errorf("open simulated GPU %s: this process has it open already", path)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open simulated GPU: %w", err)
	}
	h := &Handle{f: f, key: key}
	if h.header, err = readHeader(f); err == nil {
		err = h.claim()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	open.files[key] = h
	return h, nil
}

// claim takes a free slot and the context's memory.
func (h *Handle) claim() error {
	return h.inTurn(func() error {
		if err := h.fits(h.header.Context); err != nil {
			return err
		}
		for range 1000 {
			h.slot = rand.Int64N(slots)
			err := setLock(h.f, unix.F_WRLCK, h.memoryStart(), int64(h.header.Context))
			if err == nil {
				h.held = h.header.Context
				return nil
			}
			if !taken(err) {
				return fmt.Errorf("lock simulated GPU %s: %w", h.f.Name(), err)
			}
		}
		return fmt.Errorf("simulated GPU %s: no free slot; too many processes use it", h.f.Name())
	})
}

func (h *Handle) memoryStart() int64 { return memoryBase + h.slot*memoryStride }
func (h *Handle) smStart() int64     { return smBase + h.slot*smStride }

// inTurn runs fn while no other process allocates on this device.
func (h *Handle) inTurn(fn func() error) error {
	for end := time.Now().Add(turnTimeout); ; time.Sleep(time.Millisecond) {
		err := setLock(h.f, unix.F_WRLCK, turnOffset, 1)
		if err == nil {
			break
		}
		if !taken(err) {
			return fmt.Errorf("lock simulated GPU %s: %w", h.f.Name(), err)
		}
		if time.Now().After(end) {
			return fmt.Errorf("simulated GPU %s: another process has been allocating for %s", h.f.Name(), turnTimeout)
		}
	}
	err := fn()
	return errors.Join(err, setLock(h.f, unix.F_UNLCK, turnOffset, 1))
}

// fits checks that n more bytes fit beside what all processes hold.
func (h *Handle) fits(n engine.Bytes) error {
	others, err := Holders(h.f)
	if err != nil {
		return err
	}
	free := h.header.Capacity - h.held
	for _, o := range others {
		free -= o.Memory
	}
	if n > free {
		return fmt.Errorf("%w on SIMULATED %s: tried to allocate %s; %s in all, %s free, %d other processes on it",
			ErrOutOfMemory, h.header.Model, n, h.header.Capacity, max(free, 0), len(others))
	}
	return nil
}

// Header is what the file says of the device.
func (h *Handle) Header() Header { return h.header }

// Held is what this process holds, its context included, in bytes.
func (h *Handle) Held() engine.Bytes {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.held
}

// Alloc takes n more bytes of the device's memory, or returns ErrOutOfMemory and takes none.
func (h *Handle) Alloc(n engine.Bytes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return os.ErrClosed
	}
	if n < 0 || int64(n) >= memoryStride-int64(h.held) {
		return fmt.Errorf("%w on SIMULATED %s: %d bytes is no sensible amount", ErrOutOfMemory, h.header.Model, int64(n))
	}
	if n == 0 {
		return nil
	}
	return h.inTurn(func() error {
		if err := h.fits(n); err != nil {
			return err
		}
		if err := setLock(h.f, unix.F_WRLCK, h.memoryStart(), int64(h.held+n)); err != nil {
			return fmt.Errorf("lock simulated GPU %s: %w", h.f.Name(), err)
		}
		h.held += n
		return nil
	})
}

// Free gives n bytes back, at most what was allocated; the context stays until Close.
func (h *Handle) Free(n engine.Bytes) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return os.ErrClosed
	}
	n = min(n, h.held-h.header.Context)
	if n <= 0 {
		return nil
	}
	if err := setLock(h.f, unix.F_UNLCK, h.memoryStart()+int64(h.held-n), int64(n)); err != nil {
		return fmt.Errorf("unlock simulated GPU %s: %w", h.f.Name(), err)
	}
	h.held -= n
	return nil
}

// SetSM says which share of the SMs this process keeps at work, 0 to 1, kept to a thousandth.
func (h *Handle) SetSM(share float64) error {
	if math.IsNaN(share) || share < 0 || share > 1 {
		return fmt.Errorf("SM share %v: must be from 0 to 1", share)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return os.ErrClosed
	}
	n := int64(math.Round(share * 1000))
	if n > 0 {
		if err := setLock(h.f, unix.F_WRLCK, h.smStart(), n); err != nil {
			return fmt.Errorf("lock simulated GPU %s: %w", h.f.Name(), err)
		}
	}
	if err := setLock(h.f, unix.F_UNLCK, h.smStart()+n, smStride-n); err != nil {
		return fmt.Errorf("unlock simulated GPU %s: %w", h.f.Name(), err)
	}
	return nil
}

// Close gives everything back.
func (h *Handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.f == nil {
		return nil
	}
	open.Lock()
	defer open.Unlock()
	delete(open.files, h.key)
	err := h.f.Close()
	h.f = nil
	return err
}
