package api

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"gputop/engine"
)

func drawTime(t *rapid.T, name string) time.Time {
	if rapid.Bool().Draw(t, name+" zero") {
		return time.Time{}
	}
	zone := time.FixedZone("", rapid.IntRange(-12, 12).Draw(t, name+" zone")*3600)
	return time.Unix(rapid.Int64Range(0, 4e9).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name+" ns")).In(zone)
}

func drawJob(t *rapid.T) Job {
	str := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"train.py", "a]b", "<&>", "\"q\\", "\x1b\n", "grüße", "bad\xff"}))
	n := rapid.IntRange(0, 1<<40)
	j := Job{
		ID: engine.JobID(n.Draw(t, "id")), Name: str.Draw(t, "name"), Owner: str.Draw(t, "owner"), UID: rapid.Uint32().Draw(t, "uid"),
		Mine: rapid.Bool().Draw(t, "mine"), Class: rapid.SampledFrom(engine.Classes).Draw(t, "class"),
		State: rapid.SampledFrom([]engine.JobState{engine.Pending, engine.Running, engine.TimedOut}).Draw(t, "state"),
		Held:  rapid.Bool().Draw(t, "held"), Position: n.Draw(t, "position"), TimeLimit: time.Duration(rapid.Int64().Draw(t, "limit")),
		Submitted: drawTime(t, "submitted"), Started: drawTime(t, "started"), Ended: drawTime(t, "ended"), Attempt: n.Draw(t, "attempt"),
		Preemptions: n.Draw(t, "preemptions"), StopReason: engine.StopReason(str.Draw(t, "stop")), Message: str.Draw(t, "message"),
		Progress: str.Draw(t, "progress"), Command: str.Draw(t, "command"),
		Request: engine.Request{GPUs: n.Draw(t, "gpus"), GPUModel: str.Draw(t, "model"), GPUMemory: engine.Bytes(n.Draw(t, "mem")), Memory: engine.Bytes(n.Draw(t, "host")),
			GPUFraction: engine.Fraction(rapid.Float64Range(0, 1).Draw(t, "fraction")), CPUs: engine.CPUs(rapid.Float64Range(0, 4096).Draw(t, "cpus"))},
	}
	if rapid.Bool().Draw(t, "reason") {
		j.Reason = &engine.Reason{Code: engine.ReasonCode(str.Draw(t, "code")), Needed: rapid.Int64().Draw(t, "needed"), Free: int64(n.Draw(t, "free")),
			Unit: str.Draw(t, "unit"), Job: engine.JobID(n.Draw(t, "rjob")), Until: drawTime(t, "until"), Detail: str.Draw(t, "detail")}
	}
	j.ExpectedStart, j.Group, j.URL = drawTime(t, "expected"), str.Draw(t, "group"), str.Draw(t, "url")
	j.Stdin, j.Tty = rapid.Bool().Draw(t, "stdin"), rapid.Bool().Draw(t, "tty")
	if rapid.Bool().Draw(t, "element") {
		j.Element = &engine.Element{Array: engine.JobID(n.Draw(t, "array")), Index: n.Draw(t, "array index"), Of: n.Draw(t, "of"), Parallel: n.Draw(t, "parallel")}
	}
	if rapid.Bool().Draw(t, "running") {
		used, code := engine.Bytes(n.Draw(t, "used")), rapid.IntRange(-1, 255).Draw(t, "exit")
		j.GPUMemoryUsed, j.ExitCode = &used, &code
		j.Grants = []Grant{{Device: engine.DeviceID(str.Draw(t, "device")), Index: rapid.IntRange(-1, 7).Draw(t, "index"), Memory: used, Fraction: 0.5}}
	}
	return j
}

// What appendJob writes, encoding/json reads as it reads its own; and the reader makes the same of it.
func TestJobCodecAgreesWithJSON(t *testing.T) {
	reader := newJobReader()
	drawn := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		j := drawJob(t)
		for f, v := range reflect.ValueOf(j).Fields() {
			drawn[f.Name] = drawn[f.Name] || !v.IsZero()
		}
		std, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		fast := appendJob(nil, &j)
		var want, viaJSON, viaReader, readStd Job
		if err := json.Unmarshal(std, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(fast, &viaJSON); err != nil {
			t.Fatalf("%s: %v", fast, err)
		}
		if err := reader.read(append(fast, '\n'), &viaReader); err != nil {
			t.Fatalf("%s: %v", fast, err)
		}
		if err := reader.read(std, &readStd); err != nil {
			t.Fatal(err)
		}
		for name, got := range map[string]Job{"appendJob": viaJSON, "reader": viaReader, "reader on json": readStd} {
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("%s\ngot  %+v\nwant %+v\nfrom %s", name, got, want, fast)
			}
		}
	})
	// A field that is not drawn is one that nobody has compared.
	for f := range reflect.TypeFor[Job]().Fields() {
		if f.Tag.Get("json") != "-" && !drawn[f.Name] {
			t.Errorf("drawJob never sets %s", f.Name)
		}
	}
}

// The quick path is really taken for an ordinary job.
func TestJobReaderIsQuick(t *testing.T) {
	for _, j := range []Job{someJobs(1)[0], {ID: 1, Class: engine.Low, Grants: []Grant{{Device: "GPU-1"}}, Request: engine.Request{GPUFraction: 0.25}}} {
		c := cursor{b: appendJob(nil, &j)}
		var got Job
		if err := newJobReader().job(&c, &got); err != nil || !c.end() {
			t.Errorf("left to encoding/json: %s", c.b)
		}
	}
}

// Whatever comes in, the reader says the same as encoding/json.
func FuzzJobReader(f *testing.F) {
	j := someJobs(2)[1]
	f.Add(string(appendJob(nil, &j)))
	f.Add(`{"id":1,"class":"low","request":{"gpus":1},"reason":{"code":"x"}}`)
	f.Add(`{ "id": 1 }`)
	f.Add(`{"id":01}`)
	f.Fuzz(func(t *testing.T, s string) {
		var fast, std Job
		errFast := newJobReader().read([]byte(s), &fast)
		errStd := json.Unmarshal([]byte(s), &std)
		if (errFast == nil) != (errStd == nil) {
			t.Fatalf("%q: %v against %v", s, errFast, errStd)
		}
	})
}

func someJobs(n int) []Job {
	jobs := make([]Job, n)
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC)
	for i := range jobs {
		jobs[i] = Job{ID: engine.JobID(i + 1), Name: fmt.Sprintf("train-%d.py", i%50), Owner: "alice", UID: 1000, Mine: i%2 == 0, Class: engine.Medium,
			State: engine.Pending, Reason: &engine.Reason{Code: engine.WaitingForDevice, Needed: 1}, Position: i + 1,
			Request: engine.Request{GPUs: 1}, TimeLimit: 24 * time.Hour, Submitted: at.Add(time.Duration(i) * time.Second),
			Command: "python train.py --lr 0.001"}
	}
	return jobs
}

func BenchmarkList(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := start(b, &fake{jobs: someJobs(n)}, ServerOptions{})
			for b.Loop() {
				jobs, err := c.List(context.Background(), false, n)
				if err != nil || len(jobs) != n {
					b.Fatal(len(jobs), err)
				}
			}
		})
	}
}
