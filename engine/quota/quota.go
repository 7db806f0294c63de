// Package quota says what each person may have of the machine: how much at once, which classes, how long, which images.
// It resolves the rules of a site for one person; it is pure, and must not ask who is in which group, nor count what
// anybody holds (the scheduler does).
package quota

import (
	"slices"
	"strings"
	"time"

	"gputop/engine"
)

// Rule is what one entry of the configuration says. What is nil, or empty, it does not speak of.
type Rule struct {
	// Quota is for each person, not for a group together.
	Quota engine.Quota
	// Weight is how much more than others, who have 1, a person may use before they go after them.
	Weight *float64
	// GPUHours is what a person may use over some days: beyond it, what waits for a GPU goes on waiting.
	GPUHours *engine.Budget
	// HighGPUHours is the same for jobs of class high.
	HighGPUHours *engine.Budget
	// MaxPending is how many jobs one person may have waiting.
	MaxPending *int
	// Classes are those that a job may be given; the class critical is for admins and never among them.
	Classes []engine.Class
	// Class and TimeLimit are what a job gets that names none; MaxTimeLimit is the longest it may name.
	Class                   engine.Class
	TimeLimit, MaxTimeLimit time.Duration
	// Images are patterns for the names of images, with * for any text.
	Images []string
	// Mounts are what each job has inside besides its own; one that its owner cannot read is left out.
	Mounts []engine.Mount
}

// Group is a rule for the members of a Unix group.
type Group struct {
	Name string
	// GID is known when Known is set: a group that does not exist, or not yet, applies to nobody.
	GID   uint32
	Known bool
	Rule
	// Together is what the members may hold together.
	Together engine.Quota
}

// Policy are the rules of a site. Of what several speak of, the person's own rule wins, then the first group in the
// order written, then Everyone.
type Policy struct {
	Everyone Rule
	Groups   []Group
	Users    map[string]Rule
}

// Terms are what holds for one person.
type Terms struct {
	Rule
	// Groups are those whose members, this person among them, share a quota.
	Groups []Group
	// From says by its key in the configuration which rule a value came from, for example "group vision".
	From map[string]string
}

// The keys of Terms.From, as the configuration writes them.
const (
	KeyGPUs         = "max_gpus"
	KeyJobs         = "max_running"
	KeyCPUs         = "max_cpus"
	KeyMemory       = "max_memory"
	KeyWeight       = "weight"
	KeyGPUHours     = "max_gpu_hours"
	KeyHighGPUHours = "max_high_gpu_hours"
	KeyPending      = "max_pending"
	KeyClasses      = "classes"
	KeyClass        = "default_class"
	KeyTimeLimit    = "default_time_limit"
	KeyMaxTimeLimit = "max_time_limit"
	KeyImages       = "images"
	KeyMounts       = "mounts"
)

// For resolves the rules for a person who is in these groups.
func (p Policy) For(user string, groups []uint32) Terms {
	t := Terms{From: map[string]string{}}
	t.take(p.Users[user], "user "+user)
	for _, g := range p.Groups {
		if !g.Known || !slices.Contains(groups, g.GID) {
			continue
		}
		t.take(g.Rule, "group "+g.Name)
		if !g.Together.IsZero() {
			t.Groups = append(t.Groups, g)
		}
	}
	t.take(p.Everyone, "everyone")
	return t
}

// take fills in what no rule before spoke of.
func (t *Terms) take(r Rule, from string) {
	fill(t, KeyGPUs, &t.Quota.GPUs, r.Quota.GPUs, r.Quota.GPUs != nil, from)
	fill(t, KeyJobs, &t.Quota.Jobs, r.Quota.Jobs, r.Quota.Jobs != nil, from)
	fill(t, KeyCPUs, &t.Quota.CPUs, r.Quota.CPUs, r.Quota.CPUs != nil, from)
	fill(t, KeyMemory, &t.Quota.Memory, r.Quota.Memory, r.Quota.Memory != nil, from)
	fill(t, KeyWeight, &t.Weight, r.Weight, r.Weight != nil, from)
	fill(t, KeyGPUHours, &t.GPUHours, r.GPUHours, r.GPUHours != nil, from)
	fill(t, KeyHighGPUHours, &t.HighGPUHours, r.HighGPUHours, r.HighGPUHours != nil, from)
	fill(t, KeyPending, &t.MaxPending, r.MaxPending, r.MaxPending != nil, from)
	fill(t, KeyClasses, &t.Classes, r.Classes, r.Classes != nil, from)
	fill(t, KeyClass, &t.Class, r.Class, r.Class != 0, from)
	fill(t, KeyTimeLimit, &t.TimeLimit, r.TimeLimit, r.TimeLimit != 0, from)
	fill(t, KeyMaxTimeLimit, &t.MaxTimeLimit, r.MaxTimeLimit, r.MaxTimeLimit != 0, from)
	fill(t, KeyImages, &t.Images, r.Images, r.Images != nil, from)
	fill(t, KeyMounts, &t.Mounts, r.Mounts, r.Mounts != nil, from)
}

func fill[T any](t *Terms, key string, to *T, v T, says bool, from string) {
	if _, done := t.From[key]; says && !done {
		*to, t.From[key] = v, from
	}
}

// MayUse says whether a job of this person may have a class.
func (t Terms) MayUse(c engine.Class) bool { return slices.Contains(t.Classes, c) }

// Default is the class and the time limit of a job that names none: those that are written, within what is allowed.
func (t Terms) Default() (engine.Class, time.Duration) {
	class, limit := t.Class, t.TimeLimit
	if !t.MayUse(class) && len(t.Classes) > 0 {
		// The highest that is not higher, else the lowest there is.
		sorted := slices.Sorted(slices.Values(t.Classes))
		class = sorted[0]
		for _, c := range sorted {
			if c <= t.Class {
				class = c
			}
		}
	}
	if t.MaxTimeLimit > 0 {
		limit = min(limit, t.MaxTimeLimit)
	}
	return class, limit
}

// Allows says whether a job may name an image, by its full name. Without a list, any. A pattern without a tag is for all
// tags.
func (t Terms) Allows(image string) bool {
	bare, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(bare, ':'); i > strings.LastIndexByte(bare, '/') {
		bare = bare[:i]
	}
	return t.Images == nil || slices.ContainsFunc(t.Images, func(p string) bool { return matches(p, image) || matches(p, bare) })
}

// matches compares a name with a pattern in which * stands for any text, slashes too.
func matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	parts := strings.Split(rest, "*")
	for _, part := range parts[:len(parts)-1] {
		_, after, found := strings.Cut(name, part)
		if !found {
			return false
		}
		name = after
	}
	return strings.HasSuffix(name, parts[len(parts)-1])
}
