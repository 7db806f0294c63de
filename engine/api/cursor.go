package api

import (
	"encoding/json"
	"errors"
	"time"
	"unicode/utf8"

	"gputop/engine"
)

var errOther = errors.New("not the form that appendJob writes")

// cursor walks over JSON without spaces. Anything else makes it bad, and every later read a no-op.
type cursor struct {
	b   []byte
	i   int
	bad bool
}

func (c *cursor) fail() { c.bad = true }

func (c *cursor) end() bool {
	for c.i < len(c.b) && (c.b[c.i] == '\n' || c.b[c.i] == '\r') {
		c.i++
	}
	return !c.bad && c.i == len(c.b)
}

func (c *cursor) take(b byte) bool {
	if !c.bad && c.i < len(c.b) && c.b[c.i] == b {
		c.i++
		return true
	}
	return false
}

func (c *cursor) need(b byte) {
	if !c.take(b) {
		c.fail()
	}
}

// object calls field for each key, to read its value.
func (c *cursor) object(field func(key []byte)) error {
	c.need('{')
	if !c.take('}') {
		for !c.bad {
			key := c.raw()
			c.need(':')
			if c.bad {
				break
			}
			field(key)
			if c.take('}') {
				return nil
			}
			c.need(',')
		}
	}
	if c.bad {
		return errOther
	}
	return nil
}

// raw is a string without escapes, as bytes of the line.
func (c *cursor) raw() []byte {
	c.need('"')
	if c.bad {
		return nil
	}
	start, high := c.i, false
	for ; c.i < len(c.b); c.i++ {
		switch b := c.b[c.i]; {
		case b == '"':
			s := c.b[start:c.i]
			c.i++
			if high && !utf8.Valid(s) {
				c.fail()
			}
			return s
		case b == '\\' || b < ' ':
			c.fail()
			return nil
		case b >= utf8.RuneSelf:
			high = true
		}
	}
	c.fail()
	return nil
}

func (c *cursor) token() []byte {
	start := c.i
	for c.i < len(c.b) && c.b[c.i] != ',' && c.b[c.i] != '}' && c.b[c.i] != ']' {
		c.i++
	}
	return c.b[start:c.i]
}

// int reads numbers of up to 18 digits by itself.
func (c *cursor) int() int64 {
	if c.bad {
		return 0
	}
	t := c.token()
	digits, negative := t, len(t) > 0 && t[0] == '-'
	if negative {
		digits = t[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(digits) > 1 {
		c.fail()
		return 0
	}
	var n int64
	for _, d := range digits {
		if d < '0' || d > '9' {
			c.fail()
			return 0
		}
		n = n*10 + int64(d-'0')
	}
	if negative {
		return -n
	}
	return n
}

func (c *cursor) class() engine.Class {
	switch string(c.raw()) {
	case "low":
		return engine.Low
	case "medium":
		return engine.Medium
	case "high":
		return engine.High
	case "critical":
		return engine.Critical
	}
	c.fail()
	return 0
}

func (c *cursor) float() float64 {
	if c.bad {
		return 0
	}
	t := c.token()
	var n float64
	// encoding/json knows which spellings are numbers in JSON; shares are rare enough.
	if json.Unmarshal(t, &n) != nil {
		c.fail()
	}
	return n
}

func (c *cursor) bool() bool {
	if c.bad {
		return false
	}
	switch string(c.token()) {
	case "true":
		return true
	case "false":
	default:
		c.fail()
	}
	return false
}

func (c *cursor) time() time.Time {
	s := c.raw()
	var t time.Time
	if c.bad || t.UnmarshalText(s) != nil {
		c.fail()
	}
	return t
}

// array is the text of an array of flat objects whose strings hold no brackets.
func (c *cursor) array() []byte {
	start := c.i
	c.need('[')
	for !c.bad && c.i < len(c.b) {
		if c.b[c.i] == ']' {
			c.i++
			return c.b[start:c.i]
		}
		c.i++
	}
	c.fail()
	return nil
}
