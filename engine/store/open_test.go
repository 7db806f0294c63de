package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gputop/engine"
)

// fails opens and wants the sentinel and the words.
func fails(t *testing.T, dir string, o Options, want error, words ...string) {
	t.Helper()
	s, err := Open(context.Background(), dir, o)
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

func TestSecondDaemonIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	apply(t, s, PutJob(job(1, engine.Pending)))
	fails(t, dir, Options{}, ErrLocked, dir, fmt.Sprintf("pid %d", os.Getpid()))
	apply(t, s, PutJob(job(2, engine.Pending))) // the first is not disturbed
	if err := os.Remove(filepath.Join(dir, "pid")); err != nil {
		t.Fatal(err)
	}
	fails(t, dir, Options{}, ErrLocked, "pid is not known")
	// Without a pid it may be ending: the next one waits for that.
	ended := make(chan error)
	go func() { ended <- s.Close() }()
	s = open(t, dir, Options{})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A pid file that a crash left behind does not matter: the lock owns the directory.
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	open(t, dir, Options{})
}

func TestNetworkFileSystemsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name  string
		magic uint32
		mount string
		want  string // empty: accepted
	}{
		{"ext4", 0xEF53, "", ""},
		{"tmpfs", 0x01021994, "", ""},
		{"NFS", 0x6969, "", "NFS"},
		{"SMB", 0xFE534D42, "", "SMB"},
		{"CIFS", 0xFF534D42, "", "CIFS"},
		{"9p", 0x01021997, "", "9p"},
		{"Lustre", 0x0BD00BD0, "", "Lustre"},
		{"GPFS", 0x47504653, "", "GPFS"},
		{"sshfs", magicFUSE, "fuse.sshfs", "fuse.sshfs"},
		{"FUSE that tells nothing", magicFUSE, "", "FUSE of unknown type"},
		{"NTFS on a local disk", magicFUSE, "fuseblk", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			o := Options{
				magic: func(string) (uint32, error) { return c.magic, nil },
				mountType: func(string) (string, error) {
					if c.mount == "" {
						return "", errors.New("no answer")
					}
					return c.mount, nil
				},
			}
			if c.want == "" {
				open(t, dir, o)
				return
			}
			fails(t, dir, o, ErrNetworkFS, dir, "("+c.want+")", "--state-dir")
			if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory was made all the same: %v", err)
			}
		})
	}
}

func TestMountType(t *testing.T) {
	got, err := mountType("/proc")
	equal(t, "type of /proc", got, "proc")
	equal(t, "error", err, nil)
}

func TestNotWritable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fails(t, filepath.Join(file, "state"), Options{}, ErrNotWritable, file, "another state directory")
	fails(t, "/sys/gputop-state", Options{}, ErrNotWritable) // nobody, root included, may make directories there
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	for name, make := range map[string]func(t *testing.T, path string){
		"text": func(t *testing.T, path string) {
			if err := os.WriteFile(path, bytes.Repeat([]byte("not a database\n"), 1000), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"another program's database": func(t *testing.T, path string) { sqlFile(t, path, "CREATE TABLE a(b)") },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fileName)
			make(t, path)
			before := read(t, path)
			fails(t, dir, Options{}, ErrDamaged, path)
			equal(t, "file changed", bytes.Equal(read(t, path), before), true)
		})
	}
}

func sqlFile(t *testing.T, path, statements string) {
	t.Helper()
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(statements); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestNewerSchemaIsRefusedAndNotTouched(t *testing.T) {
	newer := t.TempDir()
	s := open(t, newer, Options{migrations: append(migrations[:len(migrations):len(migrations)], "CREATE TABLE later(x)")})
	apply(t, s, PutJob(job(1, engine.Pending)))
	dir := t.TempDir() // as a newer version leaves it that was killed: with its write-ahead log
	files := map[string][]byte{}
	for _, name := range []string{fileName, fileName + "-wal"} {
		files[name] = read(t, filepath.Join(newer, name))
		if err := os.WriteFile(filepath.Join(dir, name), files[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fails(t, dir, Options{}, ErrNewerSchema, fmt.Sprintf("schema %d", len(migrations)+1), fmt.Sprintf("knows %d", len(migrations)), "nothing was changed")
	entries, err := os.ReadDir(dir)
	equal(t, "error", err, nil)
	for _, e := range entries {
		if want, ok := files[e.Name()]; ok {
			equal(t, e.Name()+" unchanged", bytes.Equal(read(t, filepath.Join(dir, e.Name())), want), true)
		} else if e.Name() != "lock" {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// A newer version that died before its version reached the header is seen once the database is open.
func TestNewerSchemaIsSeenInTheDatabase(t *testing.T) {
	s := open(t, t.TempDir(), Options{})
	if err := s.writer.exec("PRAGMA user_version = 9"); err != nil {
		t.Fatal(err)
	}
	err := migrate(context.Background(), s.writer.conn, "unused", Options{}.withDefaults())
	if !errors.Is(err, ErrNewerSchema) {
		t.Errorf("got %v", err)
	}
}

func TestMigrationBacksUpFirst(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, Options{})
	apply(t, s, PutJob(job(1, engine.Pending)))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := func(m string) Options { return Options{migrations: append(slices.Clone(migrations), m)} }

	// A migration that fails changes nothing, and the backup is there already.
	if _, err := Open(context.Background(), dir, next("CREATE TABLE later(x); SELECT nonsense")); err == nil {
		t.Fatal("a broken migration was accepted")
	}
	s = open(t, dir, Options{})
	equal(t, "state after a failed migration", len(load(t, s).Jobs), 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = open(t, dir, next("ALTER TABLE job ADD COLUMN later TEXT"))
	equal(t, "state after the migration", load(t, s), Live{Jobs: []engine.Job{job(1, engine.Pending)}})
	backup := filepath.Join(dir, fmt.Sprintf("gputop.db.v%d.bak", len(migrations)))
	fi, err := os.Stat(backup)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "mode of the backup", fi.Mode(), os.FileMode(0o600))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fails(t, dir, Options{}, ErrNewerSchema)

	// The backup is a state file of the old version.
	old := t.TempDir()
	if err := os.Rename(backup, filepath.Join(old, fileName)); err != nil {
		t.Fatal(err)
	}
	equal(t, "backup", load(t, open(t, old, Options{})), Live{Jobs: []engine.Job{job(1, engine.Pending)}})
}
