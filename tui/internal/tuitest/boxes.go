package tuitest

import (
	"fmt"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

// Time is when the made-up machines are looked at.
var Time = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

func mem(gib float64) *engine.Bytes { return ptr(engine.Bytes(gib * float64(engine.GiB))) }

func uuid(i int) engine.DeviceID {
	return engine.DeviceID(fmt.Sprintf("GPU-%08x-5a1e-4a7c-9d3b-7c1f0e2d4b6a", 0x3f2a91c0+i))
}

func migUUID(i, k int) engine.DeviceID {
	return engine.DeviceID(fmt.Sprintf("MIG-%08x-5a1e-5a7c-9d3b-7c1f0e2d4b6a", 0x51ce0000+16*i+k))
}

func card(i int, model string, total, used, sm float64, temp int, power float64) api.GPU {
	return api.GPU{GPU: engine.GPU{UUID: uuid(i), Index: i, Minor: i, Model: model, MemoryTotal: mem(total), MemoryUsed: mem(used),
		SM: ptr(sm), SMSource: "gpm", Temperature: ptr(temp), Power: ptr(power), PowerLimit: ptr(400.0),
		ProcessesKnown: true, Health: engine.HealthOK}}
}

func info() api.Info {
	return api.Info{API: 1, Version: "0.1.0", Mode: "shared", Host: "lab-a100", PID: 4711,
		Caller:   engine.User{UID: 1000, GID: 1000, Name: "ana"},
		Defaults: api.Defaults{Profile: "default", Class: engine.Medium, GPUs: 1, TimeLimit: 24 * time.Hour},
		Profiles: []api.Profile{{Name: "default", Description: "your directory in a small image"},
			{Name: "pytorch", Description: "PyTorch with CUDA", Image: "docker.io/pytorch/pytorch"},
			{Name: "host-env", Description: "this machine's own programs and your environment"}}}
}

func grant(device engine.DeviceID, index int, gib float64, whole bool) api.Grant {
	g := api.Grant{Device: device, Index: index, Memory: *mem(gib), Fraction: engine.Fraction(gib / 40), Whole: whole}
	if whole {
		g.Fraction = 1
	}
	return g
}

func job(id engine.JobID, name, owner string, c engine.Class, st engine.JobState, ago time.Duration) api.Job {
	return api.Job{ID: id, Name: name, Owner: owner, UID: 1000 + uint32(len(owner)), Mine: owner == "ana", Class: c, State: st,
		Request: engine.Request{GPUs: 1}, TimeLimit: 24 * time.Hour, Submitted: Time.Add(-ago)}
}

func running(j api.Job, ran time.Duration, used float64, g ...api.Grant) api.Job {
	j.Started, j.Grants, j.Attempt = Time.Add(-ran), g, 1
	if used > 0 {
		j.GPUMemoryUsed = mem(used)
	}
	return j
}

func queued(j api.Job, place int, r engine.Reason, want engine.Request) api.Job {
	j.Position, j.Reason, j.Request = place, &r, want
	return j
}

func ended(j api.Job, ran, ago time.Duration, code int, message string) api.Job {
	j.Ended = Time.Add(-ago)
	j.Started, j.Attempt, j.Message = j.Ended.Add(-ran), 1, message
	if code >= 0 {
		j.ExitCode = ptr(code)
	}
	return j
}

// TwoCards is a small lab: two A100 with jobs, shares, a foreign process and a queue.
func TwoCards() api.Snapshot {
	g0 := card(0, "NVIDIA A100-SXM4-40GB", 40, 27.3, 0.87, 61, 287)
	g0.Promised, g0.Jobs = 40*engine.GiB, []engine.JobID{41}
	g1 := card(1, "NVIDIA A100-SXM4-40GB", 40, 19.6, 0.34, 54, 171)
	g1.Promised, g1.Foreign, g1.Jobs = 22*engine.GiB, *mem(5.2), []engine.JobID{43, 44}
	g1.Processes = []api.Process{
		{GPUProcess: engine.GPUProcess{PID: 20117, Memory: mem(5.2), UID: 1007, Command: "python notebook.py"}, Device: g1.UUID, User: "kim"},
		{GPUProcess: engine.GPUProcess{PID: 9120, Memory: mem(9.8)}, Device: g1.UUID, User: "bo", Job: 43}}
	j43 := running(job(43, "embed-corpus", "bo", engine.Low, engine.Running, 3*time.Hour), 2*time.Hour+13*time.Minute, 9.8, grant(g1.UUID, 1, 12, false))
	j43.Request = engine.Request{GPUMemory: 12 * engine.GiB}
	j44 := running(job(44, "probe", "ana", engine.Medium, engine.Running, 30*time.Minute), 4*time.Minute, 4.6, grant(g1.UUID, 1, 10, false))
	j44.Request, j44.TimeLimit, j44.Command = engine.Request{GPUFraction: 0.25}, 30*time.Minute, "python probe.py --layers 12"
	j41 := running(job(41, "train-llm", "ana", engine.High, engine.Running, 9*time.Hour), 8*time.Hour+41*time.Minute, 27.3, grant(g0.UUID, 0, 40, true))
	j45 := queued(job(45, "sweep-lr-3e-4", "ana", engine.High, engine.Pending, 12*time.Minute), 1,
		engine.Reason{Code: engine.WaitingForDevice, Needed: 1, Unit: "devices"}, engine.Request{GPUs: 1})
	j45.ExpectedStart = Time.Add(26 * time.Minute)
	j41.Command = "python train.py --config configs/7b.yaml"
	return api.Snapshot{Info: info(), GPUs: api.GPUs{Time: Time, Driver: "560.35.03", CUDA: "12.6", GPUs: []api.GPU{g0, g1}},
		Jobs: []api.Job{j41, j43, j44,
			j45,
			queued(job(46, "模型训练-第三次", "mei", engine.Medium, engine.Pending, 47*time.Minute), 2,
				engine.Reason{Code: engine.BlockedByPriority, Job: 45}, engine.Request{GPUs: 2}),
			queued(job(47, "evil\x1b[31m\nname 🚀👩‍🔬", "bo", engine.Low, engine.Preparing, 40*time.Second), 3,
				engine.Reason{Code: engine.ReasonPreparing, Detail: "pulling pytorch:2.9"}, engine.Request{GPUMemory: 12 * engine.GiB}),
			ended(job(40, "quick-test", "ana", engine.Medium, engine.Succeeded, 10*time.Hour), 3*time.Minute, 14*time.Minute, 0, ""),
			ended(job(39, "train-llm", "ana", engine.High, engine.Failed, 30*time.Hour), 6*time.Hour, 9*time.Hour, 1, "the program failed: exit code 1"),
			ended(job(38, "ablation", "bo", engine.Low, engine.TimedOut, 60*time.Hour), 24*time.Hour, 26*time.Hour, 143, "stopped at its time limit of 24h"),
		}}
}

// Many is n cards with k MIG devices each (0: whole cards), some busy.
func Many(n, k int, simulated bool) api.Snapshot {
	s := api.Snapshot{Info: info(), GPUs: api.GPUs{Time: Time, Driver: "570.86.10", CUDA: "12.8", Simulated: simulated}}
	owners := []string{"ana", "bo", "mei", "kim", "josé"}
	id := engine.JobID(200)
	for i := range n {
		g := card(i, "NVIDIA H100 80GB HBM3", 80, float64(i*11%70)+0.4, float64(i*17%100)/100, 38+i*6, float64(90+i*67))
		g.PowerLimit = ptr(700.0)
		if k == 0 && i%3 != 2 {
			j := running(job(id, fmt.Sprintf("run-%d", id), owners[i%5], engine.Classes[i%4], engine.Running, time.Hour*time.Duration(i+1)),
				time.Duration(i+1)*31*time.Minute, float64(i*11%70)+0.4, grant(g.UUID, i, 80, true))
			g.Promised, g.Jobs = 80*engine.GiB, []engine.JobID{id}
			s.Jobs = append(s.Jobs, j)
			id++
		}
		for m := range k {
			g.MIGMode, g.SM = true, nil
			d := engine.MIGDevice{UUID: migUUID(i, m), Profile: "1g.10gb", GPUInstance: 7 + m, PlacementStart: m, PlacementSize: 1,
				MemoryTotal: mem(9.8), MemoryUsed: mem(float64((i*7+m*3)%10) * 0.9)}
			if k == 3 {
				d.Profile, d.PlacementSize, d.MemoryTotal = []string{"3g.40gb", "2g.20gb", "2g.20gb"}[m], 2+m%2, mem(19.5)
			}
			if (i+m)%3 != 0 {
				j := running(job(id, fmt.Sprintf("slice-%d", id), owners[(i+m)%5], engine.Medium, engine.Running, time.Hour), 20*time.Minute, 3, grant(d.UUID, i, 9.8, true))
				s.Jobs = append(s.Jobs, j)
				id++
			}
			g.MIG = append(g.MIG, d)
		}
		s.GPUs.GPUs = append(s.GPUs.GPUs, g)
	}
	for q := range 5 {
		s.Jobs = append(s.Jobs, queued(job(id, fmt.Sprintf("queued-%d", q), owners[q], engine.Medium, engine.Pending, time.Duration(q+1)*7*time.Minute), q+1,
			engine.Reason{Code: engine.WaitingForDevice, Needed: 80 << 30, Free: int64(q) << 30, Unit: "bytes"}, engine.Request{GPUs: 1}))
		id++
	}
	return s
}

// Odd is what cards that do not tell look like: unknown values, unified memory, a lost card, one that hangs.
func Odd() api.Snapshot {
	a100 := card(0, "NVIDIA A100-SXM4-40GB", 40, 0, 0, 33, 52)
	a100.SM = nil
	gb10 := api.GPU{GPU: engine.GPU{UUID: uuid(1), Index: 1, Model: "NVIDIA GB10", Health: engine.HealthOK, Temperature: ptr(48)}}
	half := card(2, "NVIDIA GeForce RTX 4090", 24, 0, 0, 0, 0)
	half.MemoryUsed, half.Power, half.Temperature, half.Foreign = nil, nil, nil, 0
	lost := api.GPU{GPU: engine.GPU{UUID: uuid(3), Index: 3, Model: "Tesla T4", Health: engine.HealthLost, HealthDetail: "fell off the bus at 14:02; a reboot is needed"}}
	hangs := card(4, "NVIDIA L40S", 45, 44.1, 1, 91, 349)
	hangs.Health, hangs.HealthDetail = engine.HealthNotAnswering, "NVML has not answered for 12s"
	return api.Snapshot{Info: info(), GPUs: api.GPUs{Time: Time, Driver: "550.54", GPUs: []api.GPU{a100, gb10, half, lost, hangs}}}
}

// NoCards is a machine without a driver.
func NoCards() api.Snapshot {
	return api.Snapshot{Info: info(), GPUs: api.GPUs{Time: Time,
		Error: "No NVIDIA driver is installed: libnvidia-ml.so.1 was not found. Install the driver, or start with simulated GPUs."}}
}

// Crowd is 8 cards with 7 MIG devices each and n jobs in the queue.
func Crowd(n int) api.Snapshot {
	s := Many(8, 7, true)
	for i := range n {
		s.Jobs = append(s.Jobs, queued(job(engine.JobID(1000+i), fmt.Sprintf("job-%d", i), "bo", engine.Medium, engine.Pending, time.Hour), 6+i,
			engine.Reason{Code: engine.WaitingForDevice, Needed: 1}, engine.Request{GPUs: 1}))
	}
	return s
}

func detail(j api.Job) api.JobDetail {
	d := api.JobDetail{Job: j, Events: []engine.Event{
		{Time: j.Submitted, Job: j.ID, Kind: "submitted", Text: "by " + j.Owner},
		{Time: j.Submitted.Add(2 * time.Second), Job: j.ID, Kind: "prepared", Text: "image and mounts are good"}}}
	if j.Mine {
		d.Spec = &engine.Spec{Name: j.Name, Profile: "pytorch", Image: "docker.io/pytorch/pytorch:2.9", Workdir: "/home/ana/project",
			Command: []string{"python", "train.py", "--config", "configs/7b.yaml"}, Request: j.Request, Class: j.Class, TimeLimit: j.TimeLimit,
			Mounts: []engine.Mount{{Source: "/data", Target: "/data", ReadOnly: true}, {Source: "/home/ana/project", Target: "/home/ana/project"}}}
		d.ImageDigest = "sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0"
	}
	if !j.Started.IsZero() {
		d.Events = append(d.Events, engine.Event{Time: j.Started, Job: j.ID, Kind: "started", Text: "attempt 1"})
		d.Attempts = []api.Attempt{{Number: 1, Container: fmt.Sprintf("gputop-k3x9-%d-1", j.ID), ContainerID: "9f8e7d6c5b4a39281706f5e4d3c2b1a0",
			Allocation: engine.Active, Grants: j.Grants, CDIDevices: []string{"nvidia.com/gpu=" + string(uuid(0)), fmt.Sprintf("gputop/lease=k3x9-%d-1", j.ID)},
			Granted: j.Started.Add(-time.Second), Started: j.Started, Ended: j.Ended, ExitCode: j.ExitCode}}
		if len(j.Grants) > 0 {
			d.Attempts[0].Curve = curve(j.Started)
		}
	}
	return d
}

// curve is a training that takes its memory in the beginning, and then waits for data now and then.
func curve(start time.Time) *engine.Curve {
	c := &engine.Curve{Start: start, Step: 5 * time.Minute}
	for i := range 104 {
		c.Memory = append(c.Memory, *mem(min(27.3, float64(i)*3)))
		c.SM = append(c.SM, 870-i%13*60)
	}
	return c
}
