package scheduler

import (
	"fmt"
	"testing"
	"time"

	"gputop/engine"
)

// BenchmarkCompute plans for a full box of eight cards with a queue of mixed jobs. Most of them are tried, none starts:
// the common case of a busy lab. The aim is 10 000 within 10 ms, and growth no worse than n log n.
func BenchmarkCompute(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000, 100_000} {
		s := busyBox(b, n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compute(s, DefaultPolicy(), epoch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/job")
		})
	}
}

// BenchmarkComputeQuota is BenchmarkCompute with a quota for each of a hundred people and one for all together, and a
// card that is promised to some of them.
func BenchmarkComputeQuota(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		s := busyBox(b, n)
		for i := range 101 {
			s.Accounts = append(s.Accounts, Account{Name: "x", Quota: engine.Quota{GPUs: ref(float64(i % 5)), Jobs: ref(10)}})
		}
		for i := range s.Pending {
			s.Pending[i].Owner, s.Pending[i].Accounts = uint32(i%100), []int{i % 100, 100}
		}
		s.Devices[0].Windows = []Window{{Name: "course", From: epoch.Add(time.Hour), To: epoch.Add(3 * time.Hour), For: map[uint32]bool{7: true}}}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compute(s, DefaultPolicy(), epoch)
			}
		})
	}
}

// BenchmarkComputeBackfill has half the cards free and kept for a blocked job, so that every job behind it is a what-if.
func BenchmarkComputeBackfill(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		s := busyBox(b, n)
		s.Held = s.Held[:4]
		s.Pending[0].Class, s.Pending[0].Request = engine.Critical, engine.Request{GPUs: 8}
		s.Pending[0].Queued = epoch.Add(-1000 * time.Hour)
		p := DefaultPolicy()
		p.BackfillDepth = n
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compute(s, p, epoch)
			}
		})
	}
}

func busyBox(t testing.TB, n int) Snapshot {
	s := Snapshot{DevicesKnown: true, HostCPUs: 128, HostMemory: 1024 * engine.GiB}
	for i := range 8 {
		d := device(fmt.Sprint(i))
		s.Devices = append(s.Devices, Device{ID: d, Index: i, Usable: 80 * engine.GiB})
		s.Held = append(s.Held, Held{Job: engine.JobID(i + 1), End: epoch.Add(time.Duration(i+1) * time.Hour),
			Allocation: engine.Allocation{State: engine.Active, CPUs: 14, Memory: 112 * engine.GiB,
				Grants: []engine.Grant{{Device: d, Memory: 80 * engine.GiB, Whole: true, Fraction: 1}}}})
	}
	requests := []engine.Request{{GPUs: 1}, {GPUs: 2}, {GPUMemory: 20 * engine.GiB}, {GPUFraction: 0.25}, {GPUs: 8},
		{GPUs: 1, CPUs: 4, Memory: 16 * engine.GiB}}
	for i := range n {
		s.Pending = append(s.Pending, Pending{Job: engine.JobID(i + 100), Class: engine.Classes[i*7%4],
			Queued: epoch.Add(-time.Duration(i*7919%100_000) * time.Second), Request: requests[i%len(requests)],
			TimeLimit: 24 * time.Hour})
	}
	return s
}

// BenchmarkComputePreempt has eight cards in seven shares each, jobs on them that may be stopped, and a hundred people
// whose critical and high jobs, half of the queue, look for victims: in vain, which takes longest, and with success.
func BenchmarkComputePreempt(b *testing.B) {
	for _, loss := range []float64{0, -1} {
		for _, n := range []int{1000, 10_000, 100_000} {
			s := busyBox(b, n)
			s.Held, s.Shares = nil, map[uint32]Share{}
			for i := range 56 {
				s.Held = append(s.Held, Held{Job: engine.JobID(i + 1), Class: engine.Low, End: epoch.Add(time.Duration(i+10) * time.Hour),
					Started: epoch.Add(-time.Duration(i+1) * time.Hour), Allocation: engine.Allocation{State: engine.Active, CPUs: 1,
						Grants: []engine.Grant{{Device: device(fmt.Sprint(i % 8)), Memory: 11 * engine.GiB, Fraction: 1. / 7}}}})
			}
			for i := range s.Pending {
				s.Pending[i].Owner = uint32(i % 100)
				s.Shares[uint32(i%100)] = Share{Usage: float64(i % 7 * 1000)}
			}
			p := preempting()
			p.Loss, p.LossPerWait = loss, 0
			b.Run(fmt.Sprintf("loss%g/%d", loss, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					Compute(s, p, epoch)
				}
			})
		}
	}
}
