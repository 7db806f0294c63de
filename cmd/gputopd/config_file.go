package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/parser"
)

// maxConfig is the largest configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads the file. In shared mode it rules a process of root's, so that only root may be able to write it.
func readConfig(path string, guarded bool) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if guarded {
		if err := onlyMine(file.Stat()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := onlyMine(os.Stat(filepath.Dir(path))); err != nil {
			return nil, fmt.Errorf("directory of %s: %w", path, err)
		}
	}
	b, err := io.ReadAll(io.LimitReader(file, maxConfig+1))
	if len(b) > maxConfig {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxConfig)
	}
	return b, err
}

// onlyMine refuses what somebody else may change.
func onlyMine(fi os.FileInfo, err error) error {
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("nobody knows who owns it")
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("it belongs to uid %d: give it to root (chown root)", st.Uid)
	case fi.Mode().Perm()&0o022 != 0 && !(fi.IsDir() && fi.Mode()&os.ModeSticky != 0):
		return fmt.Errorf("others may write it (mode %04o), and whoever can rules the queue: chmod go-w", fi.Mode().Perm())
	}
	return nil
}

// placeOf is where in the file the value is that an error is about, as the decoder writes it.
func placeOf(b []byte, err error) string {
	var bad *keyError
	if !errors.As(err, &bad) {
		return ""
	}
	file, perr := parser.ParseBytes(b, 0)
	path, perr2 := yaml.PathString(bad.path)
	if perr != nil || perr2 != nil {
		return ""
	}
	node, ferr := path.FilterFile(file)
	if ferr != nil || node.GetToken() == nil {
		return ""
	}
	at := node.GetToken().Position
	return fmt.Sprintf("[%d:%d] ", at.Line, at.Column)
}
