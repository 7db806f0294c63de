package simgpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"gputop/engine"
)

// model is a kind of card. Sizes are those of the real one; what the driver reserves, contexts and heat are typical
// figures, not measurements.
type model struct {
	name     string
	total    engine.Bytes
	reserved engine.Bytes
	context  engine.Bytes // of each process
	idleW    float64
	limitW   float64
	idleC    float64
	busyC    float64
	arch     nvml.DeviceArchitecture
	cc       [2]int // CUDA compute capability
	gpm      bool   // SM activity can be measured
	migGB    []migProfile
	smMHz    int
	memMHz   int
	pcieGen  int // of 16 lanes
	nvlinks  int
	// unified: the card shares the host's memory, and the driver says nothing of it.
	unified bool
	// lacks are the fields that it answers NOT_SUPPORTED to; as in CardFaults.Fields.
	lacks []string
}

// migProfile is a MIG profile: "3g.20gb" is 3 compute slices and 4 of the 8 memory slices, and may start at some of
// them.
type migProfile struct {
	name    string
	compute int
	size    int
	starts  []int
}

func (m *model) usable() engine.Bytes { return m.total - m.reserved }

var models = map[string]*model{
	"a100-40gb": {name: "NVIDIA A100-SXM4-40GB", total: 40960 * engine.MiB, reserved: 571 * engine.MiB, context: 412 * engine.MiB,
		idleW: 52, limitW: 400, idleC: 29, busyC: 71, arch: nvml.DEVICE_ARCH_AMPERE, cc: [2]int{8, 0},
		migGB: migProfiles("5gb", "10gb", "20gb", "40gb"),
		smMHz: 1410, memMHz: 1215, pcieGen: 4, nvlinks: 12, lacks: []string{"fan"}},
	"h100-80gb": {name: "NVIDIA H100 80GB HBM3", total: 81559 * engine.MiB, reserved: 551 * engine.MiB, context: 496 * engine.MiB,
		idleW: 70, limitW: 700, idleC: 31, busyC: 74, arch: nvml.DEVICE_ARCH_HOPPER, cc: [2]int{9, 0}, gpm: true,
		migGB: migProfiles("10gb", "20gb", "40gb", "80gb"),
		smMHz: 1980, memMHz: 2619, pcieGen: 5, nvlinks: 18, lacks: []string{"fan"}},
	"h200-141gb": {name: "NVIDIA H200", total: 143771 * engine.MiB, reserved: 615 * engine.MiB, context: 500 * engine.MiB,
		idleW: 76, limitW: 700, idleC: 32, busyC: 75, arch: nvml.DEVICE_ARCH_HOPPER, cc: [2]int{9, 0}, gpm: true,
		migGB: migProfiles("18gb", "35gb", "71gb", "141gb"),
		smMHz: 1980, memMHz: 3201, pcieGen: 5, nvlinks: 18, lacks: []string{"fan"}},
	"rtx4090": {name: "NVIDIA GeForce RTX 4090", total: 24564 * engine.MiB, reserved: 347 * engine.MiB, context: 366 * engine.MiB,
		idleW: 22, limitW: 450, idleC: 34, busyC: 78, arch: nvml.DEVICE_ARCH_ADA, cc: [2]int{8, 9},
		smMHz: 3105, memMHz: 10501, pcieGen: 4},
	"l40s": {name: "NVIDIA L40S", total: 46068 * engine.MiB, reserved: 600 * engine.MiB, context: 384 * engine.MiB,
		idleW: 35, limitW: 350, idleC: 33, busyC: 76, arch: nvml.DEVICE_ARCH_ADA, cc: [2]int{8, 9},
		smMHz: 2520, memMHz: 9001, pcieGen: 4, lacks: []string{"fan"}},
	"t4": {name: "Tesla T4", total: 15360 * engine.MiB, reserved: 450 * engine.MiB, context: 300 * engine.MiB,
		idleW: 10, limitW: 70, idleC: 36, busyC: 80, arch: nvml.DEVICE_ARCH_TURING, cc: [2]int{7, 5},
		smMHz: 1590, memMHz: 5001, pcieGen: 3, lacks: []string{"fan"}},
	// A card with half the fields, as many in laptops and desktops are.
	"gtx1650": {name: "NVIDIA GeForce GTX 1650", total: 4096 * engine.MiB, reserved: 201 * engine.MiB, context: 180 * engine.MiB,
		idleW: 4, limitW: 75, idleC: 38, busyC: 76, arch: nvml.DEVICE_ARCH_TURING, cc: [2]int{7, 5}, smMHz: 2100, memMHz: 4001, pcieGen: 3,
		lacks: []string{"power_limit", "ecc", "events", "process_utilization", "gpm", "mig"}},
	// Unified memory; the capacity is what a process of the simulation may take.
	"gb10": {name: "NVIDIA GB10", total: 119 * engine.GiB, context: 300 * engine.MiB, idleW: 5, limitW: 100, idleC: 38, busyC: 72,
		arch: nvml.DEVICE_ARCH_BLACKWELL, cc: [2]int{12, 1}, smMHz: 3003, pcieGen: 1, unified: true,
		lacks: []string{"memory", "memory_v2", "power_limit", "fan", "ecc", "memory_clock"}},
}

// modelNames lists the models in order.
func modelNames() []string {
	var out []string
	for n := range models {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// migProfiles are the profiles of an 80-SM-and-up data-centre card, named by what one, two, four and eight memory
// slices are called.
func migProfiles(one, two, four, eight string) []migProfile {
	return []migProfile{
		{"1g." + one, 1, 1, []int{0, 1, 2, 3, 4, 5, 6}},
		{"1g." + two, 1, 2, []int{0, 2, 4, 6}},
		{"2g." + two, 2, 2, []int{0, 2, 4}},
		{"3g." + four, 3, 4, []int{0, 4}},
		{"4g." + four, 4, 4, []int{0}},
		{"7g." + eight, 7, 8, []int{0}},
	}
}

// slice is a MIG device as placed on a card.
type slice struct {
	profile  string
	compute  int
	start    int
	size     int
	instance int // GPU instance
	ci       int // compute instance, from 0
	ciSlices int // compute slices of the compute instance
	memory   engine.Bytes
}

// place finds where the named profiles go on the card, or says why they do not.
func (m *model) place(names []string) ([]slice, error) {
	if len(names) == 0 {
		return nil, nil
	}
	if m.migGB == nil {
		return nil, fmt.Errorf("%s has no MIG", m.name)
	}
	var want []migProfile
	var out []slice
	compute := 0
	left := 0 // compute slices of the last GPU instance that no compute instance has
	for _, name := range names {
		n, own := computeOf(name)
		i := slices.IndexFunc(m.migGB, func(p migProfile) bool { return p.name == own })
		if i < 0 || n > m.migGB[max(i, 0)].compute {
			var all []string
			for _, p := range m.migGB {
				all = append(all, p.name)
			}
			return nil, fmt.Errorf("%s has no MIG profile %q; it has %s", m.name, name, strings.Join(all, ", "))
		}
		p := m.migGB[i]
		s := slice{profile: name, compute: p.compute, ciSlices: p.compute, size: p.size}
		if n > 0 {
			s.ciSlices = n
		}
		if k := len(out) - 1; n > 0 && k >= 0 && want[len(want)-1].name == own && n <= left {
			s.instance, s.ci = out[k].instance, out[k].ci+1
			left -= n
		} else {
			want = append(want, p)
			s.instance, left = len(want), p.compute-s.ciSlices
			compute += p.compute
		}
		s.memory = m.usable() / 8 * engine.Bytes(p.size) / engine.MiB * engine.MiB
		out = append(out, s)
	}
	starts, ok := fit(want, 0)
	if !ok || compute > 7 {
		return nil, fmt.Errorf("the MIG devices %s do not fit on one %s together", strings.Join(names, "+"), m.name)
	}
	for i := range out {
		out[i].start = starts[out[i].instance-1]
	}
	return out, nil
}

// computeOf takes a name such as "1c.3g.20gb" apart: a compute instance of one slice on a GPU instance 3g.20gb, which
// the next one shares if it names the same and has room. n is 0 where the compute instance is the whole.
func computeOf(name string) (n int, profile string) {
	head, rest, ok := strings.Cut(name, "c.")
	if k, err := strconv.Atoi(head); ok && err == nil && k > 0 {
		return k, rest
	}
	return 0, name
}

// fit tries the placements in order; taken is a set of memory slices.
func fit(want []migProfile, taken uint) ([]int, bool) {
	if len(want) == 0 {
		return nil, true
	}
	for _, s := range want[0].starts {
		mask := uint(1<<want[0].size-1) << s
		if taken&mask != 0 {
			continue
		}
		if rest, ok := fit(want[1:], taken|mask); ok {
			return append([]int{s}, rest...), true
		}
	}
	return nil, false
}
