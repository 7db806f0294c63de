package engine

import (
	"fmt"
	"slices"
	"strings"
)

// MaxDependencies is how many jobs one may wait for.
const MaxDependencies = 1000

// DependsOn is which end of another job one waits for.
type DependsOn string

// Ends to wait for.
const (
	AfterOK     DependsOn = "ok"     // it succeeded
	AfterFailed DependsOn = "failed" // it ended any other way
	AfterAny    DependsOn = "any"    // it ended
)

// Dependency is a job that has to end before another one starts.
type Dependency struct {
	Job JobID     `json:"job"`
	On  DependsOn `json:"on"`
}

// Settled says what a state of the other job means: that the dependency is met, or can never be.
func (d Dependency) Settled(s JobState) (met, never bool) {
	if !s.Final() {
		return false, false
	}
	switch d.On {
	case AfterOK:
		met = s == Succeeded
	case AfterFailed:
		met = s != Succeeded
	case AfterAny:
		met = true
	}
	return met, !met
}

// String is what is waited for: "job 12 to succeed".
func (d Dependency) String() string {
	return fmt.Sprintf("job %s to %s", d.Job, map[DependsOn]string{AfterOK: "succeed", AfterFailed: "fail", AfterAny: "end"}[d.On])
}

// CheckDependencies refuses what means nothing.
func CheckDependencies(list []Dependency) error {
	if len(list) > MaxDependencies {
		return fmt.Errorf("%d jobs to wait for; at most %d are allowed", len(list), MaxDependencies)
	}
	seen := map[JobID]bool{}
	for _, d := range list {
		switch {
		case d.Job <= 0:
			return fmt.Errorf("%d is no job", d.Job)
		case !slices.Contains([]DependsOn{AfterOK, AfterFailed, AfterAny}, d.On):
			return fmt.Errorf("%q: want ok, failed or any", d.On)
		case seen[d.Job]:
			return fmt.Errorf("job %s is there twice", d.Job)
		}
		seen[d.Job] = true
	}
	return nil
}

// ParseDependencies reads jobs as people write them: "12", "12,14-17", "failed:12", "any:12,14".
func ParseDependencies(s string) ([]Dependency, error) {
	on, list, kind := strings.Cut(s, ":")
	if !kind {
		on, list = string(AfterOK), s
	}
	ids, err := ParseJobIDs(list)
	if err != nil {
		return nil, err
	}
	out := make([]Dependency, len(ids))
	for i, id := range ids {
		out[i] = Dependency{id, DependsOn(strings.ToLower(strings.TrimSpace(on)))}
	}
	return out, CheckDependencies(out)
}

// ParseJobIDs reads ids and ranges of them, with commas between: "42", "40-49", "40,42-44". As the screen writes it, an
// id may begin with #.
func ParseJobIDs(s string) (ids []JobID, err error) {
	for part := range strings.SplitSeq(s, ",") {
		low, high, ranged := strings.Cut(part, "-")
		first, err := ParseJobID(strings.TrimPrefix(strings.TrimSpace(low), "#"))
		if err != nil {
			return nil, err
		}
		last := first
		if ranged {
			if last, err = ParseJobID(strings.TrimPrefix(strings.TrimSpace(high), "#")); err != nil {
				return nil, err
			}
		}
		switch {
		case last < first:
			return nil, fmt.Errorf("jobs %q: the range ends before it begins", part)
		case len(ids)+int(last-first) >= MaxArray:
			return nil, fmt.Errorf("jobs %q: more than %d at once", s, MaxArray)
		}
		for id := first; id <= last; id++ {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
