package gpu

import (
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// paths are NVML's levels of a common ancestor.
var paths = map[nvml.GpuTopologyLevel]engine.PeerPath{
	nvml.TOPOLOGY_INTERNAL: engine.PathBoard, nvml.TOPOLOGY_SINGLE: engine.PathSwitch, nvml.TOPOLOGY_MULTIPLE: engine.PathSwitches,
	nvml.TOPOLOGY_HOSTBRIDGE: engine.PathBridge, nvml.TOPOLOGY_NODE: engine.PathNode, nvml.TOPOLOGY_SYSTEM: engine.PathSystem,
}

// peers fills in how the cards are connected. That does not change while they are there: it is asked when another set of
// cards is.
func (c *Collector) peers(gpus []engine.GPU) {
	var set strings.Builder
	for i := range gpus {
		if gpus[i].Health == engine.HealthOK {
			set.WriteString(string(gpus[i].UUID) + "\n")
		}
	}
	if c.near.set != set.String() {
		c.near = neighbourhood{set.String(), c.connected(gpus)}
	}
	for i := range gpus {
		gpus[i].Peers = c.near.peers[gpus[i].UUID]
	}
}

// neighbourhood is how a set of cards is connected.
type neighbourhood struct {
	set   string
	peers map[engine.DeviceID][]engine.Peer
}

// connected asks of all pairs of healthy cards. A pair of which nothing is said is left out.
func (c *Collector) connected(gpus []engine.GPU) map[engine.DeviceID][]engine.Peer {
	out := map[engine.DeviceID][]engine.Peer{}
	var cards []*engine.GPU
	var handles []nvml.Device
	for i := range gpus {
		if gpus[i].Health != engine.HealthOK {
			continue
		}
		if d := c.handles[gpus[i].UUID]; d != nil {
			cards, handles = append(cards, &gpus[i]), append(handles, d)
		}
	}
	if len(cards) < 2 {
		return out
	}
	links := make([]remoteLinks, len(cards))
	for i, d := range handles {
		links[i] = c.remote(d)
	}
	for i, a := range cards {
		for k, b := range cards {
			if i == k {
				continue
			}
			p := engine.Peer{Device: b.UUID, NVLinks: links[i].to[strings.ToLower(b.PCIBusID)]}
			if p.NVLinks == 0 {
				p.NVLinks = min(links[i].switched, links[k].switched)
			}
			if c.has("nvmlDeviceGetTopologyCommonAncestor") {
				if level, r := handles[i].GetTopologyCommonAncestor(handles[k]); r == nvml.SUCCESS {
					p.Path = paths[level]
				}
			}
			if p.NVLinks > 0 || p.Path != "" {
				out[a.UUID] = append(out[a.UUID], p)
			}
		}
	}
	return out
}

// remoteLinks are where a card's NVLinks lead: to other cards, by their bus id, and to switches, which reach all cards.
type remoteLinks struct {
	to       map[string]int
	switched int
}

func (c *Collector) remote(d nvml.Device) remoteLinks {
	out := remoteLinks{to: map[string]int{}}
	if !c.hasAll([]string{"nvmlDeviceGetNvLinkState", "nvmlDeviceGetNvLinkRemotePciInfo_v2"}) {
		return out
	}
	for i := range nvml.NVLINK_MAX_LINKS {
		state, r := d.GetNvLinkState(i)
		if r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT {
			break // links are numbered without gaps
		}
		if r != nvml.SUCCESS || state != nvml.FEATURE_ENABLED {
			continue
		}
		if c.has("nvmlDeviceGetNvLinkRemoteDeviceType") {
			if kind, r := d.GetNvLinkRemoteDeviceType(i); r == nvml.SUCCESS && kind == nvml.NVLINK_DEVICE_TYPE_SWITCH {
				out.switched++
				continue
			}
		}
		if pci, r := d.GetNvLinkRemotePciInfo(i); r == nvml.SUCCESS {
			out.to[strings.ToLower(text(pci.BusId[:]))]++
		}
	}
	return out
}
