// Package policyfile reads a scheduling policy from YAML: a named policy and what differs from it. It must not decide
// anything: what the values mean is the scheduler's business.
package policyfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"gputop/engine"
	"gputop/engine/scheduler"
)

// File is a policy as it is written. What is not there is as in the named policy.
type File struct {
	Policy       string            `yaml:"policy"`
	Ageing       map[string]string `yaml:"ageing"`
	PreemptBy    string            `yaml:"preempt_by"`
	Preemptible  []string          `yaml:"preemptible"`
	Wait         string            `yaml:"preempt_wait"`
	WaitFree     string            `yaml:"preempt_wait_free"`
	Patience     string            `yaml:"preempt_patience"`
	Loss         string            `yaml:"preempt_loss"`
	LossPerWait  *float64          `yaml:"preempt_loss_per_wait"`
	MinRun       string            `yaml:"preempt_min_run"`
	Most         *int              `yaml:"preempt_most"`
	PerHour      *int              `yaml:"preempt_per_hour"`
	HalfLife     string            `yaml:"share_half_life"`
	ShareAhead   string            `yaml:"share_ahead"`
	Reservations *int              `yaml:"reservations"`
	Depth        *int              `yaml:"backfill_depth"`
}

// KeyError is what is wrong with the value of a key.
type KeyError struct {
	Key string
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }

// Unwrap is the error itself.
func (e *KeyError) Unwrap() error { return e.Err }

func bad(key string, err error) error { return &KeyError{key, err} }

// Read reads a policy, and says whether it names the classes that give way. Errors name the key, and the line where the text is no YAML or has an unknown key.
func Read(r io.Reader) (p scheduler.Policy, preemptible bool, err error) {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return p, false, err
	}
	var f File
	if err := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict()).Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return p, false, err
	}
	p, err = f.Resolve()
	return p, f.Preemptible != nil, err
}

// Resolve is the policy that a file describes.
func (f File) Resolve() (scheduler.Policy, error) {
	name := f.Policy
	if name == "" {
		name = scheduler.Balanced
	}
	p, ok := scheduler.NamedPolicy(name)
	if !ok {
		return p, bad("policy", fmt.Errorf("%q is none: want one of %s", name, strings.Join(scheduler.PolicyNames, ", ")))
	}
	for class, text := range f.Ageing {
		c, err := engine.ParseClass(class)
		if err == nil && c == engine.Critical {
			err = errors.New("critical does not age")
		}
		var step time.Duration
		if err == nil {
			step, err = length(text)
		}
		if err != nil {
			return p, bad("ageing", err)
		}
		p.AgeingStep[c] = step
	}
	for _, t := range []struct {
		key, text string
		to        *time.Duration
	}{
		{"preempt_wait", f.Wait, &p.Wait}, {"preempt_wait_free", f.WaitFree, &p.WaitFree},
		{"preempt_patience", f.Patience, &p.Patience}, {"preempt_min_run", f.MinRun, &p.MinRun},
		{"share_half_life", f.HalfLife, &p.HalfLife}, {"share_ahead", f.ShareAhead, &p.ShareAhead},
	} {
		if t.text == "" {
			continue
		}
		var err error
		if *t.to, err = length(t.text); err != nil {
			return p, bad(t.key, err)
		}
	}
	for _, n := range []struct {
		key   string
		n     *int
		to    *int
		least int
	}{{"preempt_most", f.Most, &p.Most, 0}, {"preempt_per_hour", f.PerHour, &p.PerHour, 0},
		{"reservations", f.Reservations, &p.Reservations, 1}, {"backfill_depth", f.Depth, &p.BackfillDepth, 0}} {
		if n.n == nil {
			continue
		}
		if *n.n < n.least {
			return p, bad(n.key, fmt.Errorf("want %d or more", n.least))
		}
		*n.to = *n.n
	}
	return p, f.preemption(&p)
}

// preemption reads who stops whom, and what that may cost.
func (f File) preemption(p *scheduler.Policy) error {
	switch f.PreemptBy {
	case "":
	case "none":
		p.By = 0
	default:
		c, err := engine.ParseClass(f.PreemptBy)
		if err != nil || c < engine.High {
			return bad("preempt_by", fmt.Errorf("%q: want high, critical or none", f.PreemptBy))
		}
		p.By = c
	}
	if f.Preemptible != nil {
		p.Of = nil
	}
	for _, word := range f.Preemptible {
		c, err := engine.ParseClass(word)
		if err == nil && c > engine.Medium {
			err = fmt.Errorf("%s does not give way: want low or medium", c)
		}
		if err != nil {
			return bad("preemptible", err)
		}
		p.Of = append(p.Of, c)
	}
	switch f.Loss {
	case "":
	case "any":
		p.Loss = -1
	default:
		most, err := length(f.Loss)
		if err != nil {
			return bad("preempt_loss", fmt.Errorf("%w; or any", err))
		}
		p.Loss = most.Seconds()
	}
	if f.LossPerWait != nil {
		if !(*f.LossPerWait >= 0 && *f.LossPerWait <= 1e6) {
			return bad("preempt_loss_per_wait", errors.New("want 0 or more"))
		}
		p.LossPerWait = *f.LossPerWait
	}
	return nil
}

// length reads a length of time that is not negative.
func length(s string) (time.Duration, error) {
	d, err := engine.ParseDuration(s)
	if err == nil && d < 0 {
		return 0, fmt.Errorf("time %q: want 0 or more", s)
	}
	return d, err
}
