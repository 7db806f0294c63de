package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxArray is how many elements an array may have, and maxArrayIndex the largest index of one.
const (
	MaxArray      = 10_000
	maxArrayIndex = 1_000_000_000
)

// Array is a job that is run once for each of its indices.
type Array struct {
	Indices []int
	// Parallel is how many of its elements run at once; 0 is no bound.
	Parallel int
}

// ParseArray reads indices as people write them, in the form of Slurm's --array: "0-999", "1,3,5-7", "0-15:4" (every
// fourth), each with "%8" behind it for at most eight at once.
func ParseArray(s string) (a Array, err error) {
	bad := func(what string) (Array, error) {
		return Array{}, fmt.Errorf("array %q: %s: write it as 0-9, 1,3,5 or 0-15:4, and %%8 behind it for at most 8 at once", s, what)
	}
	list, most, bounded := strings.Cut(strings.TrimSpace(s), "%")
	if bounded {
		if a.Parallel, err = strconv.Atoi(most); err != nil || a.Parallel < 1 {
			return bad(fmt.Sprintf("%q is no number of jobs", most))
		}
	}
	for part := range strings.SplitSeq(list, ",") {
		part, every, stepped := strings.Cut(part, ":")
		low, high, ranged := strings.Cut(part, "-")
		first, err1 := arrayIndex(low)
		last, err2 := first, error(nil)
		if ranged {
			last, err2 = arrayIndex(high)
		}
		step := 1
		if stepped {
			step, err = arrayIndex(every)
		}
		switch {
		case err1 != nil, err2 != nil, err != nil, step < 1, stepped && !ranged:
			return bad(fmt.Sprintf("%q is no index and no range from 0 to %d", part, maxArrayIndex))
		case last < first:
			return bad(fmt.Sprintf("%q ends before it begins", part))
		case len(a.Indices)+(last-first)/step+1 > MaxArray:
			return bad(fmt.Sprintf("at most %d elements are allowed", MaxArray))
		}
		for i := first; i <= last; i += step {
			a.Indices = append(a.Indices, i)
		}
	}
	slices.Sort(a.Indices)
	for i := 1; i < len(a.Indices); i++ {
		if a.Indices[i] == a.Indices[i-1] {
			return bad(fmt.Sprintf("index %d is there twice", a.Indices[i]))
		}
	}
	return a, nil
}

func arrayIndex(s string) (int, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31)
	if err == nil && n > maxArrayIndex {
		err = strconv.ErrRange
	}
	return int(n), err
}

// ArrayAccount begins the name of the account that bounds how many elements of an array run at once.
const ArrayAccount = "array "

// Element is a job's place in an array.
type Element struct {
	// Array is the id of its first job, which stands for all of it.
	Array JobID `json:"array"`
	Index int   `json:"index"`
	// Of is how many elements there are, and Parallel how many of them run at once; 0 is no bound.
	Of       int `json:"of"`
	Parallel int `json:"parallel,omitempty"`
}
