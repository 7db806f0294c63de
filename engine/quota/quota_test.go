package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

func ref[T any](v T) *T { return &v }

func site() Policy {
	return Policy{
		Everyone: Rule{Quota: engine.Quota{GPUs: ref(1.0), Jobs: ref(10)}, Classes: []engine.Class{engine.Low, engine.Medium},
			Class: engine.Medium, TimeLimit: 24 * time.Hour},
		Groups: []Group{
			{Name: "students", GID: 10, Known: true, Rule: Rule{Quota: engine.Quota{GPUs: ref(0.5)}, Classes: []engine.Class{engine.Low}, MaxTimeLimit: time.Hour}},
			{Name: "vision", GID: 11, Known: true, Rule: Rule{Quota: engine.Quota{GPUs: ref(4.0)}, Images: []string{"localhost/*"}},
				Together: engine.Quota{GPUs: ref(6.0)}},
			{Name: "gone", Rule: Rule{Quota: engine.Quota{GPUs: ref(100.0)}}, Together: engine.Quota{Jobs: ref(1)}},
		},
		Users: map[string]Rule{"ada": {Quota: engine.Quota{GPUs: ref(8.0)}}},
	}
}

func TestTerms(t *testing.T) {
	for _, c := range []struct {
		user   string
		groups []uint32
		want   string
	}{
		{"eve", nil, "1 GPU, 10 jobs [low medium] medium 24h0m0s classes=everyone default_class=everyone default_time_limit=everyone max_gpus=everyone max_running=everyone"},
		{"eve", []uint32{0}, "1 GPU, 10 jobs [low medium] medium 24h0m0s classes=everyone default_class=everyone default_time_limit=everyone max_gpus=everyone max_running=everyone"},
		{"eve", []uint32{11, 10}, "0.5 GPUs, 10 jobs [low] low 1h0m0s together vision 6 GPUs classes=group students default_class=everyone default_time_limit=everyone images=group vision max_gpus=group students max_running=everyone max_time_limit=group students"},
		{"ada", []uint32{11}, "8 GPUs, 10 jobs [low medium] medium 24h0m0s together vision 6 GPUs classes=everyone default_class=everyone default_time_limit=everyone images=group vision max_gpus=user ada max_running=everyone"},
	} {
		got := site().For(c.user, c.groups)
		class, limit := got.Default()
		s := fmt.Sprintf("%s %v %v %v", got.Quota, got.Classes, class, limit)
		for _, g := range got.Groups {
			s += fmt.Sprintf(" together %s %s", g.Name, g.Together)
		}
		for _, k := range slices.Sorted(maps.Keys(got.From)) {
			s += " " + k + "=" + got.From[k]
		}
		if s != c.want {
			t.Errorf("%s %v:\ngot  %s\nwant %s", c.user, c.groups, s, c.want)
		}
	}
}

func TestDefaultClassIsAllowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		classes := rapid.SliceOfNDistinct(rapid.SampledFrom(engine.Classes[1:]), 1, 3, rapid.ID).Draw(t, "classes")
		terms := Terms{Rule: Rule{Classes: classes, Class: rapid.SampledFrom(engine.Classes).Draw(t, "class"), TimeLimit: time.Hour}}
		got, _ := terms.Default()
		if !terms.MayUse(got) {
			t.Fatalf("%v of %v", got, classes)
		}
		if terms.MayUse(terms.Class) && got != terms.Class {
			t.Fatalf("%v is allowed, got %v", terms.Class, got)
		}
	})
}

func TestImages(t *testing.T) {
	for _, c := range []struct {
		patterns, image string
		want            bool
	}{
		{"docker.io/nvidia/*", "docker.io/nvidia/cuda:12", true},
		{"docker.io/nvidia/*", "docker.io/nvidia", false},
		{"docker.io/nvidia/*", "evil.io/docker.io/nvidia/cuda", false},
		{"*/pytorch:*", "quay.io/lab/pytorch:2.1", true},
		{"*/pytorch:2*1", "quay.io/lab/pytorch:2.1", true},
		{"*/pytorch:2*1", "quay.io/lab/pytorch:3.1", false},
		{"a*a", "a", false},
		{"localhost/x", "localhost/x", true},
		{"localhost/x", "localhost/xy", false},
		{"localhost/x", "localhost/x:2", true},
		{"localhost/x:1", "localhost/x:2", false},
		{"quay.io:5000/x", "quay.io:5000/x@sha256:00", true},
		{"quay.io", "quay.io:5000/x", false},
		{"*", "anything", true},
		{"b c", "c", true},
	} {
		terms := Terms{Rule: Rule{Images: strings.Fields(c.patterns)}}
		if got := terms.Allows(c.image); got != c.want {
			t.Errorf("%s allows %s: %v", c.patterns, c.image, got)
		}
	}
	if !(Terms{}).Allows("x") || (Terms{Rule: Rule{Images: []string{}}}).Allows("x") {
		t.Error("no list allows all, an empty one nothing")
	}
}
