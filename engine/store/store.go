// Package store keeps jobs, attempts, their events and the audit trail on disk, in one SQLite file that one daemon owns. What Apply
// acknowledged survives a crash of the daemon and of the machine. The package decides nothing: it must not know the
// state machine beyond which states are final, publish changes, or be opened by anything but the daemon.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"

	"gputop/engine"
)

var (
	// ErrLocked means that another daemon owns the directory: use that one, or stop it first.
	ErrLocked = errors.New("another gputop daemon uses this state directory")
	// ErrNetworkFS means that the directory lies on a file system whose locks and shared memory SQLite can't trust:
	// set the state directory to a local disk.
	ErrNetworkFS = errors.New("the state directory is on a network file system")
	// ErrNotWritable means that the directory or its files can't be made or written: mend permissions or choose another.
	ErrNotWritable = errors.New("the state directory is not writable")
	// ErrNewerSchema means that a newer gputop wrote the file: install that version or restore the backup made beside it.
	ErrNewerSchema = errors.New("the state file was written by a newer gputop")
	// ErrFull means that the disk or the quota is used up: nothing of that call was kept; free space and repeat it.
	ErrFull = errors.New("the disk with gputop's state is full: nothing was kept; free some space and try again")
	// ErrDamaged means that the file is no state file of gputop's or is broken: move it away or restore a backup.
	ErrDamaged = errors.New("the state file is damaged or is not gputop's")
	// ErrNotFound means that no job has that id.
	ErrNotFound = errors.New("no such job")
	// ErrClosed means that the store was closed: nothing was kept.
	ErrClosed = errors.New("the state store is closed")
)

const (
	fileName = "gputop.db"
	// readers is how many queries run side by side; each is one connection with a cache of its own.
	readers = 4
)

// Options are what a store takes from outside. The zero value works.
type Options struct {
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log gets migrations and trouble; nil discards.
	Log *slog.Logger

	// What follows is for tests; nil or 0 is the real thing.
	magic      func(path string) (uint32, error)
	mountType  func(path string) (string, error)
	migrations []string
	maxPages   int
}

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.magic == nil {
		o.magic = statfsMagic
	}
	if o.mountType == nil {
		o.mountType = mountType
	}
	if o.migrations == nil {
		o.migrations = migrations
	}
	return o
}

// Store is an open state file. Its methods may be called from any goroutine.
type Store struct {
	instance string
	lastJob  atomic.Int64
	owned    *ownedDir
	write    *sql.DB
	read     *sql.DB
	writer   *writer

	writes   chan *write
	quit     chan struct{}
	stopped  chan struct{} // closed when the writer goroutine has ended
	closing  sync.Once
	closeErr error
}

// Open takes the directory for this process, makes it (mode 0700) if it is missing, brings the file to this version's
// schema and starts the writer. The errors are the sentinels above, wrapped with what a person needs.
func Open(ctx context.Context, dir string, o Options) (*Store, error) {
	o = o.withDefaults()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	owned, err := takeDir(dir, o)
	if err != nil {
		return nil, err
	}
	s := &Store{owned: owned, writes: make(chan *write), quit: make(chan struct{}), stopped: make(chan struct{})}
	reserve := &reserve{path: filepath.Join(dir, reserveName), now: o.Now, log: o.Log}
	err = s.open(ctx, filepath.Join(dir, fileName), reserve, o)
	for errors.Is(err, ErrFull) && reserve.give() {
		// A daemon that can't start can't end the job that fills the disk.
		if err = s.closeFiles(); err == nil {
			err = s.open(ctx, filepath.Join(dir, fileName), reserve, o)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", filepath.Join(dir, fileName), err), s.release())
	}
	go s.run()
	return s, nil
}

func (s *Store) open(ctx context.Context, path string, r *reserve, o Options) error {
	if err := checkHeader(path, len(o.migrations)); err != nil {
		return err
	}
	if err := s.owned.writePID(); err != nil {
		o.Log.Warn("pid not written to the state directory; everything else works", "err", err)
	}
	if err := createFile(path); err != nil {
		return err
	}
	var err error
	if s.write, err = openDB(path, 1, ""); err != nil {
		return err
	}
	conn, err := s.write.Conn(ctx)
	if err != nil {
		return explain(err)
	}
	if err := migrate(ctx, conn, path, o); err != nil {
		return errors.Join(err, conn.Close())
	}
	if s.instance, err = identify(ctx, conn, o.Now()); err != nil {
		return errors.Join(err, conn.Close())
	}
	last, err := highestJob(ctx, conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.lastJob.Store(last)
	if s.writer, err = newWriter(ctx, conn, r, o); err != nil {
		return err
	}
	if s.read, err = openDB(path, readers, "&_query_only=on&_stmt_cache_size=16"); err != nil {
		return err
	}
	r.rebuild(true)
	return nil
}

// openDB sets the PRAGMAs in the DSN because they belong to a connection and the pool makes connections as it likes.
// synchronous=FULL: in WAL mode anything less loses acknowledged commits in a power cut.
func openDB(path string, conns int, more string) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Path: path,
		RawQuery: "_journal_mode=WAL&_synchronous=FULL&_busy_timeout=5000&_foreign_keys=on" + more}
	db, err := sql.Open("sqlite3", dsn.String())
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

const selectInstance = `SELECT value FROM meta WHERE key = 'instance'`

// identify reads the instance id, making it the first time.
func identify(ctx context.Context, conn *sql.Conn, now time.Time) (string, error) {
	var id string
	if conn.QueryRowContext(ctx, selectInstance).Scan(&id) == nil {
		return id, nil // without a write: the disk may be full
	}
	var random [4]byte
	rand.Read(random[:]) // never fails: it ends the process instead
	_, err := conn.ExecContext(ctx, `INSERT INTO meta(key, value) VALUES ('instance', ?), ('created', ?)
		ON CONFLICT DO NOTHING`, hex.EncodeToString(random[:]), now.UTC().Format(time.RFC3339))
	if err != nil {
		return "", fmt.Errorf("store the instance id: %w", explain(err))
	}
	if err := conn.QueryRowContext(ctx, selectInstance).Scan(&id); err != nil {
		return "", fmt.Errorf("read the instance id: %w", explain(err))
	}
	return id, nil
}

// highestJob is the highest job id ever stored, deleted jobs included: AUTOINCREMENT keeps it in sqlite_sequence.
func highestJob(ctx context.Context, conn *sql.Conn) (int64, error) {
	var n int64
	err := conn.QueryRowContext(ctx, `SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'job'), 0),
		coalesce((SELECT max(id) FROM job), 0))`).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("read the highest job id: %w", explain(err))
	}
	return n, nil
}

// Instance is this state's own name: 8 random hex digits, made once. Containers carry it.
func (s *Store) Instance() string { return s.instance }

// NextJobID gives an id that no stored job has or had, and that no other call gets. An id is kept by the Apply that
// stores its job: one that was handed out and never stored may be given again after a crash, for nobody has seen it.
func (s *Store) NextJobID() engine.JobID { return engine.JobID(s.lastJob.Add(1)) }

// NextJobIDs gives n ids that follow each other, and returns the first.
func (s *Store) NextJobIDs(n int) engine.JobID {
	return engine.JobID(s.lastJob.Add(int64(n)) - int64(n) + 1)
}

// Close ends the writer after the calls it has taken, keeps the job counter, and gives the directory back. Calls that
// come later get ErrClosed.
func (s *Store) Close() error {
	s.closing.Do(func() {
		close(s.quit)
		<-s.stopped
		s.closeErr = errors.Join(s.writer.keepCounter(s.lastJob.Load()), s.release())
	})
	return s.closeErr
}

// release undoes as much of Open as was done.
func (s *Store) release() error { return errors.Join(s.closeFiles(), s.owned.release()) }

func (s *Store) closeFiles() error {
	var errs []error
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.close())
	}
	if s.write != nil {
		errs = append(errs, s.write.Close())
	}
	s.read, s.writer, s.write = nil, nil, nil
	return errors.Join(errs...)
}

// explain puts the sentinel that fits in front of what SQLite or the system says.
func explain(err error) error {
	var s sqlite3.Error
	errors.As(err, &s)
	is := func(codes ...sqlite3.ErrNo) bool {
		for _, c := range codes {
			if s.Code == c {
				return true
			}
		}
		return false
	}
	no := s.SystemErrno
	if no == 0 {
		errors.As(err, &no)
	}
	switch {
	case err == nil:
		return nil
	case is(sqlite3.ErrFull), no == syscall.ENOSPC, no == syscall.EDQUOT:
		return fmt.Errorf("%w (%w)", ErrFull, err)
	case is(sqlite3.ErrCorrupt, sqlite3.ErrNotADB):
		return fmt.Errorf("%w: move it away or restore a backup (%w)", ErrDamaged, err)
	case is(sqlite3.ErrReadonly, sqlite3.ErrPerm, sqlite3.ErrCantOpen), no == syscall.EROFS, no == syscall.ENOTDIR,
		errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%w: check its owner and mode, or set another state directory (%w)", ErrNotWritable, err)
	}
	return err
}
