package gpu

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

func TestPeers(t *testing.T) {
	b := newBench(t, "rtx4090:5")
	s := b.sample()
	path := map[int]engine.PeerPath{1: engine.PathSwitch, 2: engine.PathNode, 3: engine.PathNode, 4: engine.PathSystem}
	for i, p := range s.GPUs[0].Peers {
		if p.Device != s.GPUs[i+1].UUID || p.NVLinks != 0 || p.Path != path[i+1] {
			t.Errorf("card 0 and card %d: %+v", i+1, p)
		}
	}
	if len(s.GPUs[0].Peers) != 4 || s.GPUs[0].Peers[0].Closeness() <= s.GPUs[0].Peers[1].Closeness() {
		t.Errorf("card 0: %+v", s.GPUs[0].Peers)
	}
	// By way of a switch a card's links reach every other one.
	b = newBench(t, "a100-40gb:2,t4")
	s = b.sample()
	if p := s.GPUs[0].Peers; len(p) != 2 || p[0].NVLinks != 12 || p[1].NVLinks != 0 {
		t.Errorf("an A100 beside an A100 and a T4: %+v", p)
	}
	// It is asked once of a set of cards, and again of another.
	b.faults(refusing(nvml.ERROR_NOT_SUPPORTED, "topology"))
	if p := b.sample().GPUs[0].Peers; len(p) != 2 || p[0].Path == "" {
		t.Errorf("a second later: %+v", p)
	}
}

// Without the functions there is nothing to tell, and nothing is called that is not there.
func TestNoPeers(t *testing.T) {
	b := newBench(t, "a100-40gb:2")
	b.c.lib = &changed{Interface: b.c.lib, lacks: map[string]bool{"nvmlDeviceGetTopologyCommonAncestor": true, "nvmlDeviceGetNvLinkRemotePciInfo_v2": true}}
	if p := b.sample().GPUs[0].Peers; p != nil {
		t.Errorf("%+v", p)
	}
}
