package scheduler

import (
	"testing"

	"gputop/engine"
)

func TestModel(t *testing.T) {
	checkRowsUnder(t, DefaultPolicy(), []row{
		{"the card of the model, though another is first", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			job 1 medium gpus=1 model=a100`, `
			1 start 1=40GiB*`},
		{"a share there, and not on the card that it would fit best", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			job 1 medium mem=10 model=A100`, `
			1 start 1=10GiB`},
		{"who waits for one model is in nobody's way on another", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			held 9 1=40w
			job 1 medium gpus=1 model=a100 age=2h
			job 2 medium gpus=1 age=1h
			job 3 low gpus=1`, `
			1 WaitingForDevice 1/0 devices
			2 start 0=24GiB*
			3 WaitingForDevice 1/0 devices`},
		{"and keeps its place where it could run", `
			gpu 0 40 model=NVIDIA-A100-SXM4-40GB
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			held 9 1=40w end=1h
			job 1 medium gpus=2 model=a100 age=2h
			job 2 medium gpus=1 limit=2h age=1h`, `
			1 WaitingForDevice 2/1 devices until 1h0m0s
			2 BlockedByPriority behind 1 until 1h0m0s`},
		{"more of a model than there are", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			job 1 medium gpus=2 model=a100`, `
			1 BlockedBySize 2/1 devices`},
		{"a share larger than the cards of its model", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			job 1 medium mem=30 model=4090`, `
			1 BlockedBySize 30GiB/24GiB`},
		{"victims on a card of the model alone", `
			gpu 0 24 model=NVIDIA-GeForce-RTX-4090
			gpu 1 40 model=NVIDIA-A100-SXM4-40GB
			held 8 0=24w low ran=6m end=20h checkpoints
			held 9 1=40w low ran=40m end=20h checkpoints
			job 1 high gpus=1 model=a100 age=10m`, `
			stop 9 for 1
			1 WaitingForPreempted behind 9 until 30s`},
	})
	s := box(t, "gpu 0 24 model=NVIDIA-GeForce-RTX-4090\ngpu 1 40 model=NVIDIA-A100-SXM4-40GB")
	for model, want := range map[string]string{
		"a10":     `asks for a GPU of model "a10"; this box has: NVIDIA-A100-SXM4-40GB, NVIDIA-GeForce-RTX-4090`,
		"A100":    "",
		"4090":    "",
		"40gb":    "",
		"rtx4090": "",
		"h100":    `asks for a GPU of model "h100"; this box has: NVIDIA-A100-SXM4-40GB, NVIDIA-GeForce-RTX-4090`,
	} {
		got := ""
		if err := Possible(s, engine.Request{GPUs: 1, GPUModel: model}); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", model, got, want)
		}
	}
	if err := Possible(s, engine.Request{GPUs: 2, GPUModel: "a100"}); err == nil || err.Error() != "asks for 2 GPUs of model a100; this box has 1" {
		t.Errorf("two of one: %v", err)
	}
}
