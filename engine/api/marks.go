package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// markedLog is the media type of output in pieces, each after a line with its length and the mark behind it. A client
// that takes whole pieces can go on after a break without losing or repeating a byte.
const markedLog = "application/vnd.gputop.log"

// maxPiece bounds one piece, in bytes.
const maxPiece = 16 << 20

func (m LogMark) String() string { return fmt.Sprintf("%d.%d.%d", m.Attempt, m.Offset, m.File) }

func parseMark(s string) (LogMark, error) {
	var m LogMark
	if s == "" {
		return m, nil
	}
	n, err := fmt.Sscanf(s, "%d.%d.%d", &m.Attempt, &m.Offset, &m.File)
	if err != nil || n != 3 || m.String() != s || m.Attempt < 1 || m.Offset < 0 {
		return LogMark{}, &Error{Code: CodeInvalid, Message: fmt.Sprintf("place in the output %q: want ATTEMPT.OFFSET.FILE", s)}
	}
	return m, nil
}

// markedStream sends each write as a piece.
type markedStream struct {
	*stream
	mark LogMark
	buf  []byte
}

// Mark sets what place comes behind the next write.
func (s *markedStream) Mark(m LogMark) { s.mark = m }

func (s *markedStream) Write(p []byte) (int, error) {
	s.buf = append(fmt.Appendf(s.buf[:0], "%d %s\n", len(p), s.mark), p...)
	if _, err := s.stream.Write(s.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// copyMarked writes the pieces to w and keeps *at behind the last whole one.
func copyMarked(w io.Writer, from io.Reader, at *LogMark) error {
	r := bufio.NewReaderSize(from, 64<<10)
	var buf []byte
	for {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
		}
		var n int
		length, place, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if _, err := fmt.Sscanf(length, "%d", &n); err != nil || n < 0 || n > maxPiece {
			return fmt.Errorf("a piece of %.20q bytes", length)
		}
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return fmt.Errorf("%w: %w", io.ErrUnexpectedEOF, err)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if m, err := parseMark(place); err == nil {
			*at = m
		}
	}
}
