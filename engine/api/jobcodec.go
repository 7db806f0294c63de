package api

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"gputop/engine"
)

// A list of ten thousand jobs is printed while a person waits, and encoding/json takes most of that time. The two
// functions here write and read the same JSON for Job; a test holds them to it. What the reader does not know it
// leaves to encoding/json.

// appendJob appends j as json.Marshal would write it, but for the escaping of <, > and &.
func appendJob(b []byte, j *Job) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), int64(j.ID), 10)
	b = appendString(append(b, `,"name":`...), j.Name)
	b = appendString(append(b, `,"owner":`...), j.Owner)
	b = strconv.AppendUint(append(b, `,"uid":`...), uint64(j.UID), 10)
	if j.Mine {
		b = append(b, `,"mine":true`...)
	}
	b = appendString(append(b, `,"class":`...), j.Class.String())
	b = appendString(append(b, `,"state":`...), string(j.State))
	if j.Held {
		b = append(b, `,"held":true`...)
	}
	if j.Reason != nil {
		b = appendReason(append(b, `,"reason":`...), j.Reason)
	}
	b = optInt(b, `,"position":`, int64(j.Position))
	b = optTime(b, `,"expected_start":`, j.ExpectedStart)
	b = appendRequest(append(b, `,"request":`...), j.Request)
	b = strconv.AppendInt(append(b, `,"time_limit_ns":`...), int64(j.TimeLimit), 10)
	b = appendTime(append(b, `,"submitted":`...), j.Submitted)
	b = optTime(b, `,"started":`, j.Started)
	b = optTime(b, `,"ended":`, j.Ended)
	b = optInt(b, `,"attempt":`, int64(j.Attempt))
	if len(j.Grants) > 0 {
		b = append(append(b, `,"grants":`...), mustJSON(j.Grants)...)
	}
	if j.GPUMemoryUsed != nil {
		b = strconv.AppendInt(append(b, `,"gpu_memory_used_bytes":`...), int64(*j.GPUMemoryUsed), 10)
	}
	b = optInt(b, `,"preemptions":`, int64(j.Preemptions))
	b = optString(b, `,"stop_reason":`, string(j.StopReason))
	if j.ExitCode != nil {
		b = strconv.AppendInt(append(b, `,"exit_code":`...), int64(*j.ExitCode), 10)
	}
	b = optString(b, `,"message":`, j.Message)
	b = optString(b, `,"progress":`, j.Progress)
	b = optString(b, `,"command":`, j.Command)
	b = optString(b, `,"group":`, j.Group)
	b = optString(b, `,"url":`, j.URL)
	if j.Element != nil {
		b = appendElement(append(b, `,"element":`...), j.Element)
	}
	if j.Stdin {
		b = append(b, `,"stdin":true`...)
	}
	if j.Tty {
		b = append(b, `,"tty":true`...)
	}
	return append(b, '}')
}

func appendReason(b []byte, r *engine.Reason) []byte {
	b = appendString(append(b, `{"code":`...), string(r.Code))
	b = optInt(b, `,"needed":`, r.Needed)
	b = optInt(b, `,"free":`, r.Free)
	b = optString(b, `,"unit":`, r.Unit)
	b = optInt(b, `,"job":`, int64(r.Job))
	b = optTime(b, `,"until":`, r.Until)
	b = optString(b, `,"detail":`, r.Detail)
	return append(b, '}')
}

func appendElement(b []byte, e *engine.Element) []byte {
	b = strconv.AppendInt(append(b, `{"array":`...), int64(e.Array), 10)
	b = strconv.AppendInt(append(b, `,"index":`...), int64(e.Index), 10)
	b = strconv.AppendInt(append(b, `,"of":`...), int64(e.Of), 10)
	return append(optInt(b, `,"parallel":`, int64(e.Parallel)), '}')
}

func appendRequest(b []byte, r engine.Request) []byte {
	b = append(b, '{')
	start := len(b)
	b = optInt(b, `,"gpus":`, int64(r.GPUs))
	b = optInt(b, `,"gpu_memory_bytes":`, int64(r.GPUMemory))
	b = optFloat(b, `,"gpu_fraction":`, float64(r.GPUFraction))
	b = optString(b, `,"gpu_model":`, r.GPUModel)
	b = optFloat(b, `,"cpus":`, float64(r.CPUs))
	b = optInt(b, `,"memory_bytes":`, int64(r.Memory))
	if len(b) > start {
		b = append(b[:start], b[start+1:]...) // the first comma
	}
	return append(b, '}')
}

func optInt(b []byte, key string, v int64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), v, 10)
}

func optFloat(b []byte, key string, v float64) []byte {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return b
	}
	return strconv.AppendFloat(append(b, key...), v, 'g', -1, 64)
}

func optString(b []byte, key, v string) []byte {
	if v == "" {
		return b
	}
	return appendString(append(b, key...), v)
}

func optTime(b []byte, key string, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendTime(append(b, key...), t)
}

func appendTime(b []byte, t time.Time) []byte {
	return append(t.AppendFormat(append(b, '"'), time.RFC3339Nano), '"')
}

func appendString(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return append(b, mustJSON(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// jobReader reads jobs. Words that come again in every line are kept once.
type jobReader struct {
	words map[string]string
}

func newJobReader() *jobReader { return &jobReader{words: map[string]string{}} }

// maxWords bounds the words kept.
const maxWords = 4096

// read decodes one line into j.
func (r *jobReader) read(line []byte, j *Job) error {
	*j = Job{}
	c := cursor{b: line}
	if r.job(&c, j) == nil && c.end() {
		return nil
	}
	*j = Job{}
	return json.Unmarshal(line, j)
}

func (r *jobReader) word(c *cursor) string {
	s := c.raw()
	if w, ok := r.words[string(s)]; ok {
		return w
	}
	w := string(s)
	if len(r.words) < maxWords {
		r.words[w] = w
	}
	return w
}

func (r *jobReader) job(c *cursor, j *Job) error {
	return c.object(func(key []byte) {
		switch string(key) {
		case "id":
			j.ID = engine.JobID(c.int())
		case "name":
			j.Name = r.word(c)
		case "owner":
			j.Owner = r.word(c)
		case "uid":
			n := c.int()
			if n < 0 || n > math.MaxUint32 {
				c.fail()
			}
			j.UID = uint32(n)
		case "mine":
			j.Mine = c.bool()
		case "class":
			j.Class = c.class()
		case "state":
			j.State = engine.JobState(r.word(c))
		case "held":
			j.Held = c.bool()
		case "reason":
			j.Reason = &engine.Reason{}
			r.reason(c, j.Reason)
		case "position":
			j.Position = int(c.int())
		case "expected_start":
			j.ExpectedStart = c.time()
		case "element":
			j.Element = new(engine.Element)
			r.element(c, j.Element)
		case "request":
			r.request(c, &j.Request)
		case "time_limit_ns":
			j.TimeLimit = time.Duration(c.int())
		case "submitted":
			j.Submitted = c.time()
		case "started":
			j.Started = c.time()
		case "attempt":
			j.Attempt = int(c.int())
		case "preemptions":
			j.Preemptions = int(c.int())
		default:
			r.rest(c, string(key), j)
		}
	})
}

// rest are the fields that few jobs of a long list have.
func (r *jobReader) rest(c *cursor, key string, j *Job) {
	switch key {
	case "ended":
		j.Ended = c.time()
	case "gpu_memory_used_bytes":
		n := engine.Bytes(c.int())
		j.GPUMemoryUsed = &n
	case "exit_code":
		n := int(c.int())
		j.ExitCode = &n
	case "stop_reason":
		j.StopReason = engine.StopReason(r.word(c))
	case "message":
		j.Message = string(c.raw())
	case "progress":
		j.Progress = string(c.raw())
	case "command":
		j.Command = r.word(c)
	case "group":
		j.Group = r.word(c)
	case "url":
		j.URL = string(c.raw())
	case "grants":
		if json.Unmarshal(c.array(), &j.Grants) != nil {
			c.fail()
		}
	default:
		c.fail()
	}
}

func (r *jobReader) element(c *cursor, e *engine.Element) {
	_ = c.object(func(key []byte) {
		switch string(key) {
		case "array":
			e.Array = engine.JobID(c.int())
		case "index":
			e.Index = int(c.int())
		case "of":
			e.Of = int(c.int())
		case "parallel":
			e.Parallel = int(c.int())
		default:
			c.fail()
		}
	})
}

func (r *jobReader) reason(c *cursor, x *engine.Reason) {
	_ = c.object(func(key []byte) {
		switch string(key) {
		case "code":
			x.Code = engine.ReasonCode(r.word(c))
		case "needed":
			x.Needed = c.int()
		case "free":
			x.Free = c.int()
		case "unit":
			x.Unit = r.word(c)
		case "job":
			x.Job = engine.JobID(c.int())
		case "until":
			x.Until = c.time()
		case "detail":
			x.Detail = r.word(c)
		default:
			c.fail()
		}
	})
}

func (r *jobReader) request(c *cursor, x *engine.Request) {
	_ = c.object(func(key []byte) {
		switch string(key) {
		case "gpus":
			x.GPUs = int(c.int())
		case "gpu_memory_bytes":
			x.GPUMemory = engine.Bytes(c.int())
		case "gpu_fraction":
			x.GPUFraction = engine.Fraction(c.float())
		case "gpu_model":
			x.GPUModel = r.word(c)
		case "cpus":
			x.CPUs = engine.CPUs(c.float())
		case "memory_bytes":
			x.Memory = engine.Bytes(c.int())
		default:
			c.fail()
		}
	})
}
