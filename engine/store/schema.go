package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// applicationID marks the file as gputop's ("gptp" in its header).
const applicationID = 0x67707470

// migrations bring a file from version n to n+1; entry 0 makes a new one. A released entry never changes. What is
// queried has a column; the body is the noun as JSON, and is what is read back.
var migrations = []string{schemaV1, schemaV2, schemaV3, schemaV4, schemaV5, schemaV6}

// AUTOINCREMENT keeps ids from being used again after rows are deleted. Foreign keys are checked at commit, so that the
// order of changes within one call does not matter. Times are milliseconds since 1970.
const schemaV1 = `
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE job (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	state     TEXT    NOT NULL,
	final     INTEGER NOT NULL,
	uid       INTEGER NOT NULL,
	owner     TEXT    NOT NULL,
	class     INTEGER NOT NULL,
	submitted INTEGER,
	ended     INTEGER,
	body      TEXT    NOT NULL
);
CREATE INDEX job_live  ON job(id) WHERE final = 0;
CREATE INDEX job_ended ON job(id) WHERE final = 1;
CREATE TABLE attempt (
	job    INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
	number INTEGER NOT NULL,
	holds  INTEGER NOT NULL,
	body   TEXT    NOT NULL,
	PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE INDEX attempt_holding ON attempt(job) WHERE holds = 1;
CREATE TABLE event (
	job  INTEGER NOT NULL REFERENCES job(id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
	n    INTEGER NOT NULL,
	body TEXT    NOT NULL,
	PRIMARY KEY (job, n)
) WITHOUT ROWID;
`

// The audit trail outlives the jobs it speaks of, so that it has no foreign key. Its rows leave by their age alone, or
// when there are too many: nothing changes one.
const schemaV2 = `
CREATE TABLE audit (
	id        INTEGER PRIMARY KEY AUTOINCREMENT,
	time      INTEGER NOT NULL,
	uid       INTEGER NOT NULL,
	name      TEXT    NOT NULL,
	owner_uid INTEGER NOT NULL,
	owner     TEXT    NOT NULL,
	body      TEXT    NOT NULL
);
CREATE INDEX audit_user  ON audit(uid, id);
CREATE INDEX audit_owner ON audit(owner_uid, id);
CREATE TRIGGER audit_append_only BEFORE UPDATE ON audit
	BEGIN SELECT RAISE(ABORT, 'the audit trail is append-only'); END;
`

// What a job's owner keeps of it (logs, checkpoints) goes when the owner's agent is next there: forget remembers that
// until it is done, also when the job itself has gone.
const schemaV3 = `
CREATE TABLE forget (
	job   INTEGER PRIMARY KEY,
	uid   INTEGER NOT NULL,
	owner TEXT    NOT NULL
);
CREATE INDEX forget_owner ON forget(uid, owner, job);
ALTER TABLE job ADD COLUMN forgotten INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_logs ON job(ended) WHERE final = 1 AND forgotten = 0;
`

// AUTOINCREMENT keeps the number of a reservation that is over from being another's.
const schemaV4 = `
CREATE TABLE reservation (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL);
`

// Notices outlive their jobs, for their own time. shown is 0 for one that its owner does not want to see; due has a bit
// for each way by which it has still to be sent. What a user has read is known by the highest id.
const schemaV5 = `
CREATE TABLE notice (
	id    INTEGER PRIMARY KEY AUTOINCREMENT,
	time  INTEGER NOT NULL,
	uid   INTEGER NOT NULL,
	owner TEXT    NOT NULL,
	job   INTEGER NOT NULL,
	kind  TEXT    NOT NULL,
	key   TEXT    NOT NULL,
	shown INTEGER NOT NULL,
	due   INTEGER NOT NULL,
	body  TEXT    NOT NULL
);
CREATE UNIQUE INDEX notice_once ON notice(job, kind, key);
CREATE INDEX notice_user ON notice(uid, owner, id);
CREATE INDEX notice_due  ON notice(id) WHERE due <> 0;
CREATE TABLE notice_read (
	uid     INTEGER NOT NULL,
	owner   TEXT    NOT NULL,
	through INTEGER NOT NULL,
	PRIMARY KEY (uid, owner)
) WITHOUT ROWID;
`

// What somebody has used outlives their jobs: as one sum that decays, and by days of UTC, counted from 1970.
const schemaV6 = `
CREATE TABLE usage (
	uid         INTEGER NOT NULL,
	owner       TEXT    NOT NULL,
	gpu_seconds REAL    NOT NULL,
	at          TEXT    NOT NULL,
	PRIMARY KEY (uid, owner)
) WITHOUT ROWID;
CREATE TABLE used (
	day                     INTEGER NOT NULL,
	uid                     INTEGER NOT NULL,
	owner                   TEXT    NOT NULL,
	class                   INTEGER NOT NULL,
	gpu_seconds             REAL    NOT NULL,
	gpu_memory_byte_seconds REAL    NOT NULL,
	cpu_seconds             REAL    NOT NULL,
	attempts                INTEGER NOT NULL,
	PRIMARY KEY (day, uid, owner, class)
) WITHOUT ROWID;
`

// checkHeader reads what the file says of itself before SQLite opens it, for opening alone already writes: a newer
// gputop's file and another program's database stay as they are. A file without SQLite's header is left to SQLite to
// refuse or, after a crash while it was made, to mend.
func checkHeader(path string, known int) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err)
	}
	defer f.Close()
	header := make([]byte, 100) // its layout: sqlite.org/fileformat.html
	if _, err := io.ReadFull(f, header); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	} else if err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	if string(header[:16]) != "SQLite format 3\x00" {
		return nil
	}
	field := func(at int) int { return int(binary.BigEndian.Uint32(header[at:])) }
	pages, version, application := field(28), field(60), field(68)
	if application != applicationID {
		if pages > 1 {
			return fmt.Errorf("%w: it is another program's database; move it away", ErrDamaged)
		}
		return nil // made, and not filled yet
	}
	return checkVersion(version, known)
}

func checkVersion(found, known int) error {
	if found > known {
		return fmt.Errorf("%w (schema %d, this one knows %d): nothing was changed; start the newer version again, "+
			"or put back the backup it left beside the file", ErrNewerSchema, found, known)
	}
	return nil
}

func pragma(ctx context.Context, conn *sql.Conn, name string) (int, error) {
	var n int
	if err := conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&n); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, explain(err))
	}
	return n, nil
}

// migrate brings the file to the newest schema, after a backup if it holds anything.
func migrate(ctx context.Context, conn *sql.Conn, path string, o Options) error {
	version, err := pragma(ctx, conn, "user_version")
	if err != nil {
		return err
	}
	// Again, for a newer version whose daemon died before the header was written.
	if err := checkVersion(version, len(o.migrations)); err != nil {
		return err
	}
	if version == len(o.migrations) {
		return nil
	}
	if version > 0 {
		backup := fmt.Sprintf("%s.v%d.bak", path, version)
		if err := backUp(ctx, conn, backup); err != nil {
			return fmt.Errorf("back up to %s before bringing the state to schema %d: %w", backup, len(o.migrations), err)
		}
		o.Log.Info("state backed up before a schema change", "backup", backup, "from", version, "to", len(o.migrations))
	}
	for ; version < len(o.migrations); version++ {
		step := fmt.Sprintf("BEGIN IMMEDIATE; %s; PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT",
			o.migrations[version], applicationID, version+1)
		if _, err := conn.ExecContext(ctx, step); err != nil {
			conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return fmt.Errorf("bring the state to schema %d: %w", version+1, explain(err))
		}
	}
	// Into the file itself, so that the version in its header is true for checkHeader.
	if _, err := conn.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
		return fmt.Errorf("write the new schema to the file: %w", explain(err))
	}
	return nil
}

// backUp writes a complete copy, what is still in the write-ahead log included, and only then gives it its name.
func backUp(ctx context.Context, conn *sql.Conn, to string) error {
	tmp := to + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return explain(err)
	}
	if err := createFile(tmp); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "VACUUM INTO ?", tmp); err != nil {
		return explain(err)
	}
	if err := syncPath(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, to); err != nil {
		return explain(err)
	}
	return syncPath(filepath.Dir(to))
}
