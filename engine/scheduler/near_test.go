package scheduler

import "testing"

// pairs are four cards, 0 with 2 and 1 with 3 by NVLink; 0 with 1 and 2 with 3 behind one PCIe switch.
const pairs = `
	gpu 0 40 near=1:5,2:41,3:1
	gpu 1 40 near=0:5,2:1,3:41
	gpu 2 40 near=0:41,1:1,3:5
	gpu 3 40 near=0:1,1:41,2:5`

func TestConnectedSets(t *testing.T) {
	checkRowsUnder(t, DefaultPolicy(), []row{
		{"two cards with NVLink between them", pairs + `
			job 1 medium gpus=2`, `
			1 start 0=40GiB* 2=40GiB*`},
		{"the pair that is whole", pairs + `
			held 9 2=40w
			job 1 medium gpus=2`, `
			1 start 1=40GiB* 3=40GiB*`},
		{"one card takes the one whose peer is gone", pairs + `
			held 9 2=40w
			job 1 medium gpus=1`, `
			1 start 0=40GiB*`},
		{"three by what joins them best", pairs + `
			job 1 medium gpus=3`, `
			1 start 0=40GiB* 1=40GiB* 2=40GiB*`},
		{"of equals the cooler", `
			gpu 0 40 heat=71
			gpu 1 40 heat=38
			job 1 medium gpus=1`, `
			1 start 1=40GiB*`},
		{"but not for a few degrees", `
			gpu 0 40 heat=38
			gpu 1 40 heat=31
			job 1 medium gpus=1`, `
			1 start 0=40GiB*`},
		{"a better connection goes before a cooler card", `
			gpu 0 40 heat=71 near=1:41,2:1
			gpu 1 40 heat=71 near=0:41,2:1
			gpu 2 40 heat=30 near=0:1,1:1
			job 1 medium gpus=2`, `
			1 start 0=40GiB* 1=40GiB*`},
	})
}
