package scheduler

import (
	"testing"
	"time"

	"gputop/engine"
)

func TestOrder(t *testing.T) {
	checkRows(t, []row{
		{"class, then age, then id", `
			gpu 0 40
			held 1 0=40w
			job 9 low gpus=1 age=5h
			job 8 medium gpus=1 age=1h
			job 7 medium gpus=1 age=2h
			job 6 high gpus=1
			job 5 critical gpus=1
			job 4 medium gpus=1 age=1h`, `
			5 WaitingForDevice 1/0 devices
			6 WaitingForDevice 1/0 devices
			7 WaitingForDevice 1/0 devices
			4 WaitingForDevice 1/0 devices
			8 WaitingForDevice 1/0 devices
			9 WaitingForDevice 1/0 devices`},
		{"ageing lifts a class at a time; past high only critical goes before, and age alone counts", `
			gpu 0 40
			share 5 usage=1000
			job 1 critical gpus=1
			job 2 high gpus=1
			job 3 low gpus=1 age=48h
			job 4 medium gpus=1 age=47h
			job 5 low gpus=1 age=47h
			job 6 low gpus=1 age=288h
			job 7 medium gpus=1 age=999h of=5
			job 8 high gpus=1 age=24h
			job 9 critical gpus=1 age=999h of=5`, `
			1 start 0=40GiB*
			9 WaitingForDevice 1/0 devices
			7 WaitingForDevice 1/0 devices
			8 WaitingForDevice 1/0 devices
			6 WaitingForDevice 1/0 devices
			2 WaitingForDevice 1/0 devices
			3 WaitingForDevice 1/0 devices
			4 WaitingForDevice 1/0 devices
			5 WaitingForDevice 1/0 devices`},
		{"a clock set back does not age", `
			gpu 0 40
			job 1 low gpus=1 age=-1h
			job 2 low gpus=1`, `
			2 start 0=40GiB*
			1 WaitingForDevice 1/0 devices`},
	})
}

func TestPlacement(t *testing.T) {
	checkRows(t, []row{
		{"whole cards by index, whatever the order of the sample", `
			gpu 3 40
			gpu 1 40
			gpu 2 40
			held 9 1=40w
			job 1 medium gpus=2`, `1 start 2=40GiB* 3=40GiB*`},
		{"a share goes on the fullest broken card", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			held 8 1=10
			held 9 2=20
			job 1 medium mem=10
			job 2 medium mem=10
			job 3 medium mem=10
			job 4 medium gpus=1`, `
			1 start 2=10GiB
			2 start 2=10GiB
			3 start 1=10GiB
			4 start 0=40GiB*`},
		{"a large broken card before a small whole one", `
			gpu 0 16
			gpu 1 80
			held 9 1=10
			job 1 medium mem=8`, `1 start 1=8GiB`},
		{"fractions are of usable, rounded down to MiB, and fill a card", `
			gpu 0 40
			job 1 medium frac=0.5
			job 2 medium frac=0.25
			job 3 medium frac=0.25
			job 4 medium frac=0.01`, `
			1 start 0=20GiB
			2 start 0=10GiB
			3 start 0=10GiB
			4 WaitingForDevice 409MiB/0B`},
		{"actual above the promise counts", `
			gpu 0 40
			held 9 0=10 actual=0:25
			job 1 medium mem=16
			job 2 medium mem=15`, `
			1 WaitingForDevice 16GiB/15GiB
			2 BlockedByPriority behind 1`},
		{"actual below the promise does not free it", `
			gpu 0 40
			held 9 0=30 actual=0:1 end=1h
			job 1 medium mem=11`, `1 WaitingForDevice 11GiB/10GiB until 1h0m0s`},
		{"a job on a card it was never given is a stranger there", `
			gpu 0 40
			gpu 1 40
			held 9 0=40w actual=1:2
			job 1 medium gpus=1
			job 2 medium mem=38`, `
			1 WaitingForDevice 1/0 devices (1 GPU is in use by processes outside the queue)
			2 BlockedByPriority behind 1`},
		{"a releasing allocation holds", `
			gpu 0 40
			held 9 0=40w releasing
			job 1 medium gpus=1`, `1 WaitingForDevice 1/0 devices`},
		{"a whole card is not shared", `
			gpu 0 40
			held 9 0=10w
			job 1 medium mem=1`, `1 WaitingForDevice 1GiB/0B`},
		{"a display server is no obstacle, a stranger's training is", `
			gpu 0 40 foreign=0.6
			gpu 1 40 foreign=0.5
			job 1 medium gpus=1
			job 2 medium gpus=1
			job 3 medium mem=39`, `
			1 start 1=40GiB*
			2 WaitingForDevice 1/0 devices (1 GPU is in use by processes outside the queue)
			3 start 0=39GiB`},
		{"a share fits beside a stranger, not on it", `
			gpu 0 40 foreign=10
			job 1 medium mem=30
			job 2 medium mem=1`, `
			1 start 0=30GiB
			2 WaitingForDevice 1GiB/0B (1 GPU is in use by processes outside the queue)`},
		{"personal mode: any stranger makes a card busy", `
			gpu 0 40 busy
			job 1 medium mem=1`, `1 WaitingForDevice 1GiB/0B (1 GPU is in use by processes outside the queue)`},
		{"a card that does not say its memory is given whole only", `
			gpu 0 0
			job 1 medium frac=0.5
			job 2 medium gpus=1`, `
			1 BlockedBySize (no GPU here can be shared: its memory is unknown, or its compute mode exclusive)
			2 start 0=0B*`},
	})
}

func TestReasons(t *testing.T) {
	checkRows(t, []row{
		{"no sample yet", `
			unknown
			job 1 medium gpus=1
			job 2 medium`, `
			1 DevicesUnknown (the GPUs have not been read yet)
			2 start`},
		{"no card", `job 1 medium gpus=1`, `1 DevicesUnknown (no GPU was found on this machine)`},
		{"passed through, in the order, not in the way", `
			gpu 0 40
			job 1 critical gpus=1 wait=Held
			job 2 high gpus=1 wait=Preparing
			job 3 high gpus=1 after=10m
			job 4 low gpus=1 after=-1s`, `
			1 Held
			2 Preparing
			3 NotBefore until 10m0s
			4 start 0=40GiB*`},
		{"only dead cards would do", `
			gpu 0 40
			gpu 1 80 away
			job 1 medium gpus=2
			job 2 medium mem=60
			job 3 medium mem=90
			job 4 medium gpus=3
			job 5 medium gpus=1`, `
			1 DeviceNotAnswering 2/1 devices (GPU 1 (GPU-1))
			2 DeviceNotAnswering 60GiB/0B (GPU 1 (GPU-1))
			3 BlockedBySize 90GiB/80GiB
			4 BlockedBySize 3/2 devices
			5 start 0=40GiB*`},
		{"MIG mode never serves these", `
			gpu 0 40 mig
			gpu 1 40
			held 9 1=40w end=1h
			job 1 medium gpus=2
			job 2 medium gpus=1`, `
			1 BlockedBySize 2/1 devices
			2 WaitingForDevice 1/0 devices until 1h0m0s`},
		{"cards fit, the host does not", `
			host 16 64
			gpu 0 40
			gpu 1 40
			held 9 0=40w cpus=10 mem=60 end=3h
			job 1 medium gpus=1 cpus=8
			job 2 medium gpus=1 ram=8`, `
			1 WaitingForHost 8/6 cores until 3h0m0s
			2 WaitingForHost 8GiB/4GiB`},
		{"more host than the box has", `
			host 16 64
			job 1 medium cpus=17
			job 2 medium ram=65`, `
			1 BlockedBySize 17/16 cores
			2 BlockedBySize 65GiB/64GiB`},
	})
}

func TestHostShares(t *testing.T) {
	checkRows(t, []row{
		{"by the share of all GPUs; an eighth stays for jobs without", `
			host 64 256
			gpu 0 40
			gpu 1 40
			gpu 2 40
			gpu 3 40
			job 1 medium gpus=1
			job 2 medium gpus=2
			job 3 medium frac=0.5
			job 4 medium`, `
			1 start 0=40GiB* cpus=14 mem=56GiB
			2 start 1=40GiB* 2=40GiB* cpus=28 mem=112GiB
			3 start 3=20GiB cpus=7 mem=28GiB
			4 start cpus=1 mem=2GiB`},
		{"a small box", `
			host 2 4
			gpu 0 40
			gpu 1 40
			job 1 medium gpus=1
			job 2 medium gpus=1
			job 3 medium
			job 4 medium`, `
			1 start 0=40GiB* cpus=0.875 mem=1.8GiB
			2 start 1=40GiB* cpus=0.875 mem=1.8GiB
			3 start cpus=0.25 mem=512MiB
			4 WaitingForHost 1/0 cores`},
		{"a default takes what explicit requests left", `
			host 64 256
			gpu 0 40
			held 9 - cpus=60 mem=120
			job 1 medium gpus=1`, `1 start 0=40GiB* cpus=4 mem=136GiB`},
		{"but memory not below half the share", `
			host 64 256
			gpu 0 40
			held 9 - cpus=60 mem=150
			job 1 medium gpus=1`, `1 WaitingForHost 112GiB/106GiB`},
		{"what is asked for is given exactly", `
			host 4 8
			gpu 0 40
			job 1 medium gpus=1 cpus=0.1 ram=1
			job 2 medium cpus=3.9 ram=7`, `
			1 start 0=40GiB* cpus=0.1 mem=1GiB
			2 start cpus=3.9 mem=7GiB`},
	})
}

func TestEffectiveClass(t *testing.T) {
	p := Policy{AgeingStep: map[engine.Class]time.Duration{engine.Low: time.Hour}}
	j := Pending{Class: engine.Low, Queued: epoch.Add(-99 * time.Hour)}
	if got := EffectiveClass(j, p, epoch); got != engine.Medium {
		t.Errorf("a class without a step aged: %v", got)
	}
}
