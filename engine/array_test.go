package engine

import (
	"fmt"
	"strings"
	"testing"
)

func TestParseArray(t *testing.T) {
	for text, want := range map[string]string{
		"0-3": "[0 1 2 3] 0", "5": "[5] 0", "7,1-3": "[1 2 3 7] 0", "0-8:4": "[0 4 8] 0", "0-9:4%2": "[0 4 8] 2", " 1 - 2 ": "[1 2] 0",
	} {
		a, err := ParseArray(text)
		if got := fmt.Sprint(a.Indices, a.Parallel); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"": "no index", "3-1": "ends before it begins", "0-999999": "at most 10000 elements", "0-999999999999999999999": "no index", "-1": "no index",
		"1,1": "index 1 is there twice", "0-9%0": "no number of jobs", "0-9%": "no number of jobs", "1:2": "no index", "0-9:0": "no index",
		"0-1000000000:100000": "at most 10000 elements", "a": "no index", "1,,2": "no index",
	} {
		if a, err := ParseArray(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, a, err, want)
		}
	}
}

func TestParseDependencies(t *testing.T) {
	for text, want := range map[string]string{
		"12": "[{12 ok}]", "any:3,5-6": "[{3 any} {5 any} {6 any}]", "FAILED:#7": "[{7 failed}]",
	} {
		if got, err := ParseDependencies(text); err != nil || plain(got) != want {
			t.Errorf("%s: %s, %v; want %s", text, plain(got), err, want)
		}
	}
	for text, want := range map[string]string{
		"": "job id", "ok:": "job id", "soon:3": "want ok, failed or any", "3,3": "job 3 is there twice", "5-3": "ends before it begins", "1-99999": "more than 10000",
		"1-2000": "at most 1000", "0": "job id", "1-9223372036854775807": "more than 10000",
	} {
		if got, err := ParseDependencies(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %s", text, got, err, want)
		}
	}
}

func plain(list []Dependency) string {
	var words []string
	for _, d := range list {
		words = append(words, fmt.Sprintf("{%d %s}", d.Job, d.On))
	}
	return "[" + strings.Join(words, " ") + "]"
}

func TestSettled(t *testing.T) {
	for _, s := range []JobState{Pending, Running, Succeeded, Failed, Cancelled, TimedOut, Lost} {
		for on, want := range map[DependsOn]bool{AfterOK: s == Succeeded, AfterFailed: s != Succeeded, AfterAny: true} {
			met, never := Dependency{1, on}.Settled(s)
			if met != (want && s.Final()) || never != (!want && s.Final()) {
				t.Errorf("%s after %s: met %v, never %v", on, s, met, never)
			}
		}
	}
}
