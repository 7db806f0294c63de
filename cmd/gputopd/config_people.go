package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gputop/engine"
	"gputop/engine/draft"
	"gputop/engine/quota"
)

// fileRule is what the configuration says of somebody, or of everybody in a group.
type fileRule struct {
	GPUs         *float64 `yaml:"max_gpus"`
	Running      *int     `yaml:"max_running"`
	CPUs         *float64 `yaml:"max_cpus"`
	Memory       string   `yaml:"max_memory"`
	Pending      *int     `yaml:"max_pending"`
	Weight       *float64 `yaml:"weight"`
	GPUHours     string   `yaml:"max_gpu_hours"`
	HighGPUHours string   `yaml:"max_high_gpu_hours"`
	Classes      []string `yaml:"classes"`
	Class        string   `yaml:"default_class"`
	TimeLimit    string   `yaml:"default_time_limit"`
	MaxTimeLimit string   `yaml:"max_time_limit"`
	Images       []string `yaml:"images"`
	Mounts       []string `yaml:"mounts"`
}

// fileUser is a rule for one user, by name.
type fileUser struct {
	Name string   `yaml:"name"`
	Rule fileRule `yaml:",inline"`
}

// fileGroup is a rule for the members of a Unix group; together is for all of them at once.
type fileGroup struct {
	Name     string    `yaml:"name"`
	Together fileTotal `yaml:"together"`
	Rule     fileRule  `yaml:",inline"`
}

type fileTotal struct {
	GPUs    *float64 `yaml:"max_gpus"`
	Running *int     `yaml:"max_running"`
	CPUs    *float64 `yaml:"max_cpus"`
	Memory  string   `yaml:"max_memory"`
}

// keyError is what is wrong with the value of a key, named by its path in the file: $.groups[1].max_gpus.
type keyError struct {
	path string
	err  error
}

func (e *keyError) Error() string { return strings.TrimPrefix(e.path, "$.") + ": " + e.err.Error() }
func (e *keyError) Unwrap() error { return e.err }

func badKey(path, key string, err error) error { return &keyError{path + "." + key, err} }

// people reads the rules; groupID is asked for the number of a group.
func (f fileConfig) people(groupID func(string) (uint32, error)) (p quota.Policy, unknown []string, err error) {
	if p.Everyone, err = f.Everyone.rule("$.everyone"); err != nil {
		return p, nil, err
	}
	names := map[string]bool{}
	named := func(path, kind, name string) error {
		switch {
		case strings.TrimSpace(name) == "" || name != strings.TrimSpace(name):
			return badKey(path, "name", fmt.Errorf("want the name of a %s", kind))
		case names[kind+name]:
			return badKey(path, "name", fmt.Errorf("there is a second rule for %s %s", kind, name))
		}
		names[kind+name] = true
		return nil
	}
	for i, g := range f.Groups {
		path := fmt.Sprintf("$.groups[%d]", i)
		if err := named(path, "group", g.Name); err != nil {
			return p, nil, err
		}
		r := quota.Group{Name: g.Name}
		if r.Rule, err = g.Rule.rule(path); err != nil {
			return p, nil, err
		}
		t := g.Together
		if r.Together, err = quotaOf(path+".together", t.GPUs, t.Running, t.CPUs, t.Memory); err != nil {
			return p, nil, err
		}
		if gid, err := groupID(g.Name); err == nil {
			r.GID, r.Known = gid, true
		} else {
			unknown = append(unknown, g.Name)
		}
		p.Groups = append(p.Groups, r)
	}
	for i, u := range f.Users {
		path := fmt.Sprintf("$.users[%d]", i)
		if err := named(path, "user", u.Name); err != nil {
			return p, nil, err
		}
		r, err := u.Rule.rule(path)
		if err != nil {
			return p, nil, err
		}
		if p.Users == nil {
			p.Users = map[string]quota.Rule{}
		}
		p.Users[u.Name] = r
	}
	return p, unknown, nil
}

// errCriticalDefault is for a default that nobody but admins may use.
var errCriticalDefault = errors.New("critical is for admins, who name it: want high, medium or low")

// A weight beyond these says something else: who should have nothing needs max_running: 0.
const leastWeight, mostWeight = 0.001, 1000.0

func (f fileRule) rule(path string) (r quota.Rule, err error) {
	if r.Quota, err = quotaOf(path, f.GPUs, f.Running, f.CPUs, f.Memory); err != nil {
		return r, err
	}
	if f.Pending != nil && *f.Pending < 0 {
		return r, badKey(path, quota.KeyPending, fmt.Errorf("%d is negative", *f.Pending))
	}
	r.MaxPending = f.Pending
	if w := f.Weight; w != nil && !(*w >= leastWeight && *w <= mostWeight) {
		return r, badKey(path, quota.KeyWeight, fmt.Errorf("%g: want a number from %g to %g", *w, leastWeight, mostWeight))
	}
	r.Weight = f.Weight
	for _, b := range []struct {
		key, text string
		into      **engine.Budget
	}{{quota.KeyGPUHours, f.GPUHours, &r.GPUHours}, {quota.KeyHighGPUHours, f.HighGPUHours, &r.HighGPUHours}} {
		if b.text == "" {
			continue
		}
		v, err := engine.ParseBudget(b.text)
		if err != nil {
			return r, badKey(path, b.key, err)
		}
		*b.into = &v
	}
	for i, word := range f.Classes {
		c, err := engine.ParseClass(word)
		if err == nil && c == engine.Critical {
			err = fmt.Errorf("critical is for admins: name high, medium or low")
		}
		if err != nil {
			return r, badKey(path, fmt.Sprintf("%s[%d]", quota.KeyClasses, i), err)
		}
		r.Classes = append(r.Classes, c)
	}
	if f.Classes != nil && len(f.Classes) == 0 {
		return r, badKey(path, quota.KeyClasses, fmt.Errorf("with no class nobody could submit: to shut somebody out, use max_running: 0"))
	}
	if f.Class != "" {
		if r.Class, err = engine.ParseClass(f.Class); err != nil {
			return r, badKey(path, quota.KeyClass, err)
		}
		if r.Class == engine.Critical {
			return r, badKey(path, quota.KeyClass, errCriticalDefault)
		}
		if r.Classes != nil && !slices.Contains(r.Classes, r.Class) {
			return r, badKey(path, quota.KeyClass, fmt.Errorf("%s is not one of the classes of this rule", r.Class))
		}
	}
	if err := f.times(path, &r); err != nil {
		return r, err
	}
	for i, pattern := range f.Images {
		if strings.TrimSpace(pattern) == "" || strings.ContainsAny(pattern, " \t\n") {
			return r, badKey(path, fmt.Sprintf("%s[%d]", quota.KeyImages, i), fmt.Errorf("%q is no pattern for images: want for example quay.io/lab/*; for any image leave the key out", pattern))
		}
	}
	r.Images = f.Images
	for i, text := range f.Mounts {
		m, err := draft.Caller{}.ParseMount(text)
		if err == nil && (!filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target)) {
			err = fmt.Errorf("%q: want absolute paths, for example /data:/data:ro", text)
		}
		if err != nil {
			return r, badKey(path, fmt.Sprintf("%s[%d]", quota.KeyMounts, i), err)
		}
		r.Mounts = append(r.Mounts, m)
		if err := draft.CheckMounts(r.Mounts); err != nil {
			return r, badKey(path, fmt.Sprintf("%s[%d]", quota.KeyMounts, i), err)
		}
	}
	return r, nil
}

func (f fileRule) times(path string, r *quota.Rule) error {
	for _, d := range []struct {
		key, text string
		into      *time.Duration
	}{{quota.KeyTimeLimit, f.TimeLimit, &r.TimeLimit}, {quota.KeyMaxTimeLimit, f.MaxTimeLimit, &r.MaxTimeLimit}} {
		if d.text == "" {
			continue
		}
		v, err := engine.ParseDuration(d.text)
		if err == nil && v <= 0 {
			err = fmt.Errorf("must be more than zero")
		}
		if err != nil {
			return badKey(path, d.key, err)
		}
		*d.into = v
	}
	if r.MaxTimeLimit > 0 && r.TimeLimit > r.MaxTimeLimit {
		return badKey(path, quota.KeyTimeLimit, fmt.Errorf("%s is longer than %s of the same rule, %s", r.TimeLimit, quota.KeyMaxTimeLimit, r.MaxTimeLimit))
	}
	return nil
}

func quotaOf(path string, gpus *float64, running *int, cpus *float64, memory string) (q engine.Quota, err error) {
	for _, n := range []struct {
		key string
		v   *float64
	}{{quota.KeyGPUs, gpus}, {quota.KeyCPUs, cpus}} {
		if n.v != nil && (math.IsNaN(*n.v) || math.IsInf(*n.v, 0) || *n.v < 0) {
			return q, badKey(path, n.key, fmt.Errorf("%g: want a number from 0", *n.v))
		}
	}
	if running != nil && *running < 0 {
		return q, badKey(path, quota.KeyJobs, fmt.Errorf("%d is negative", *running))
	}
	q.GPUs, q.Jobs = gpus, running
	if cpus != nil {
		c := engine.CPUs(*cpus)
		q.CPUs = &c
	}
	if memory != "" {
		m, err := engine.ParseBytes(memory)
		if err != nil {
			return q, badKey(path, quota.KeyMemory, err)
		}
		q.Memory = &m
	}
	return q, nil
}
