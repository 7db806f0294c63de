package engine

// PeerPath is what is between two cards on the PCI bus; empty when unknown.
type PeerPath string

// The paths, best first, as NVML tells them apart.
const (
	PathBoard    PeerPath = "board"    // on one board
	PathSwitch   PeerPath = "switch"   // one PCIe switch
	PathSwitches PeerPath = "switches" // several
	PathBridge   PeerPath = "bridge"   // the host bridge of one root complex
	PathNode     PeerPath = "node"     // host bridges of one NUMA node
	PathSystem   PeerPath = "system"   // the link between NUMA nodes
)

// Peer is how a card is connected to another one.
type Peer struct {
	Device DeviceID `json:"device"`
	// NVLinks counts those that lead there, by way of a switch too.
	NVLinks int      `json:"nvlinks,omitempty"`
	Path    PeerPath `json:"path,omitempty"`
}

// Closeness is a number to compare peers by: more is better. One NVLink is worth more than any path.
func (p Peer) Closeness() int {
	rank := map[PeerPath]int{PathBoard: 6, PathSwitch: 5, PathSwitches: 4, PathBridge: 3, PathNode: 2, PathSystem: 1}
	return 10*p.NVLinks + rank[p.Path]
}
