package scheduler

import "testing"

func TestBackfill(t *testing.T) {
	checkRows(t, []row{
		{"only what ends before the blocked job can start", `
			gpu 0 40
			gpu 1 40
			held 9 0=40w end=2h
			job 1 high gpus=2
			job 2 medium gpus=1 limit=3h
			job 3 medium gpus=1
			job 4 medium gpus=1 limit=2h`, `
			1 WaitingForDevice 2/1 devices until 2h0m0s
			2 BlockedByPriority behind 1 until 2h0m0s
			3 BlockedByPriority behind 1 until 2h0m0s
			4 start 1=40GiB*`},
		{"or what leaves the blocked job its place", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			held 8 0=40w end=2h
			held 9 1=40w end=2h
			job 1 high gpus=2
			job 2 medium gpus=1
			job 3 medium gpus=1`, `
			1 WaitingForDevice 2/1 devices until 2h0m0s
			2 start 2=40GiB*
			3 WaitingForDevice 1/0 devices`},
		{"a share takes another card than the best one when that is promised", `
			gpu 0 40
			gpu 1 80
			held 7 0=10 end=9h
			held 8 1=30 end=9h
			held 9 0=20 end=1h
			job 1 high mem=60
			job 2 medium mem=10
			job 3 medium mem=10`, `
			1 WaitingForDevice 60GiB/50GiB until 9h0m0s
			2 start 0=10GiB
			3 start 1=10GiB`},
		{"an end that is unknown: nothing passes on cards it could use", `
			gpu 0 40
			gpu 1 40
			gpu 2 16
			held 9 0=40w
			job 1 high gpus=3
			job 2 medium mem=1 limit=1s
			job 3 medium gpus=1 limit=1s`, `
			1 WaitingForDevice 3/2 devices
			2 BlockedByPriority behind 1
			3 BlockedByPriority behind 1`},
		{"an end that is unknown: a card too small for it is free", `
			gpu 0 40
			gpu 1 16
			held 9 0=40w
			job 1 high mem=30
			job 2 medium gpus=1`, `
			1 WaitingForDevice 30GiB/0B
			2 start 1=16GiB*`},
		{"what is stopping, releasing or overdue frees its cards for the job in front", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			gpu 3 40
			held 7 0=40w stopping end=9h
			held 8 1=40w releasing end=9h
			held 9 2=40w end=-1h
			job 1 high gpus=4
			job 2 medium gpus=1 limit=1m`, `
			1 WaitingForDevice 4/1 devices
			2 BlockedByPriority behind 1`},
		{"strangers in the way: nothing is kept idle for it", `
			gpu 0 40 foreign=10
			gpu 1 40
			job 1 high gpus=2
			job 2 medium gpus=1`, `
			1 WaitingForDevice 2/1 devices (1 GPU is in use by processes outside the queue)
			2 start 1=40GiB*`},
		{"an end that is unknown: the host part is kept too", `
			host 16 64
			gpu 0 40
			held 9 0=40w cpus=8 mem=8
			job 1 high gpus=1 cpus=8
			job 2 low cpus=2 ram=4`, `
			1 WaitingForDevice 1/0 devices
			2 BlockedByPriority behind 1`},
		{"jobs without a GPU pass", `
			host 16 64
			gpu 0 40
			held 9 0=40w
			job 1 high gpus=1
			job 2 low cpus=2 ram=4
			job 3 low`, `
			1 WaitingForDevice 1/0 devices
			2 start cpus=2 mem=4GiB
			3 start cpus=1 mem=2GiB`},
		{"jobs without a GPU pass, unless they take the host part kept", `
			host 16 64
			gpu 0 40
			held 9 0=40w cpus=8 mem=8 end=1h
			job 1 high gpus=1 cpus=8
			job 2 low cpus=8 ram=4
			job 3 low cpus=1 ram=4`, `
			1 WaitingForDevice 1/0 devices until 1h0m0s
			2 start cpus=8 mem=4GiB
			3 WaitingForHost 1/0 cores until 1h0m0s`},
		{"a large job without a GPU is not starved by small ones", `
			host 16 64
			gpu 0 40
			held 9 - cpus=8 end=1h
			job 1 high cpus=16
			job 2 low cpus=1 limit=2h
			job 3 low gpus=1 cpus=1
			job 4 low cpus=1 limit=1h`, `
			1 WaitingForHost 16/8 cores until 1h0m0s
			2 BlockedByPriority behind 1 until 1h0m0s
			3 BlockedByPriority behind 1 until 1h0m0s
			4 start cpus=1 mem=2GiB`},
		{"what passed once counts for the next", `
			gpu 0 40
			gpu 1 40
			gpu 2 40
			gpu 3 40
			held 8 0=40w end=2h
			held 9 1=40w end=2h
			job 1 high gpus=3
			job 2 medium gpus=1
			job 3 medium gpus=1`, `
			1 WaitingForDevice 3/2 devices until 2h0m0s
			2 start 3=40GiB*
			3 BlockedByPriority behind 1 until 2h0m0s`},
		{"a default host share shrinks rather than keep the job out", `
			host 2 4
			gpu 0 40
			held 9 0=40w cpus=1 end=1h
			job 1 high gpus=1 cpus=1.8 ram=1
			job 2 low`, `
			1 WaitingForDevice 1/0 devices until 1h0m0s
			2 start cpus=0.125 mem=256MiB`},
		{"whole cards are taken where the blocked job has no place", `
			host 64 64
			gpu 0 80
			gpu 1 40
			held 9 - mem=40 end=1h
			job 1 high mem=60 ram=30
			job 2 medium gpus=1 cpus=1 ram=1`, `
			1 WaitingForHost 30GiB/24GiB until 1h0m0s
			2 start 1=40GiB* cpus=1 mem=1GiB`},
	})
}

func TestBackfillDepth(t *testing.T) {
	s := box(t, `
		gpu 0 40
		gpu 1 40
		held 9 0=40w end=2h
		job 1 high gpus=2
		job 2 medium gpus=1 limit=3h
		job 3 medium gpus=1 limit=1h
		job 4 medium`)
	p := DefaultPolicy()
	p.BackfillDepth = 1
	want := lines(`
		1 WaitingForDevice 2/1 devices until 2h0m0s
		2 BlockedByPriority behind 1 until 2h0m0s
		3 BlockedByPriority behind 1 until 2h0m0s
		4 start`)
	if got := show(Compute(s, p, epoch)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
