package doctor

import (
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gputop/engine"
	"gputop/engine/api"
)

func TestDeviceGate(t *testing.T) {
	const observes = "ok: does not close the cards (gate: observe)"
	enforced := func(n api.GateNode) api.GateDiagnosis {
		n.Path = "/dev/nvidia0"
		return api.GateDiagnosis{Mode: "enforce", Nodes: []api.GateNode{n}}
	}
	outside := func(mode string, u api.OutsideUse) api.GateDiagnosis {
		return api.GateDiagnosis{Mode: mode, Outside: []api.OutsideUse{u}}
	}
	open := []Node{{"/dev/nvidia0", 0o666, "root", true}, {"/dev/nvidiactl", 0o666, "video", true}}
	for name, tc := range map[string]struct {
		gate  api.GateDiagnosis
		view  GateView
		nodes []Node
		want  []string // LEVEL: words of the message
	}{
		"observes":      {api.GateDiagnosis{Mode: "observe"}, GateView{ModifyDeviceFiles: "0"}, open, []string{observes}},
		"a desktop":     {api.GateDiagnosis{Mode: "observe"}, GateView{Displays: []string{"Xorg of gdm"}}, open, []string{observes, "warning: Xorg of gdm runs: with gate: enforce"}},
		"a group":       {api.GateDiagnosis{Mode: "observe"}, GateView{}, []Node{{"/dev/nvidia0", 0o660, "video", false}}, []string{observes, "warning: /dev/nvidia0 belongs to the group video"}},
		"rules":         {api.GateDiagnosis{Mode: "observe"}, GateView{Rules: []string{"/etc/udev/rules.d/70-n.rules"}}, open, []string{observes, "ok: is set back with gate: enforce: /etc/udev/rules.d/70-n.rules"}},
		"module before": {api.GateDiagnosis{Mode: "observe"}, GateView{ModifyDeviceFiles: "1"}, open, []string{observes, "ok: before gate: enforce, NVIDIA's module has to be told"}},
		"outside": {outside("observe", api.OutsideUse{User: "bob", Index: 1, Now: 2, Memory: engine.GiB, For: 90 * time.Second}), GateView{}, open,
			[]string{observes, "warning: bob is on GPU 1 outside the queue: 2 processes with 1GiB, for 1m30s in all; with gate: enforce this would not start again"}},
		"outside before": {outside("observe", api.OutsideUse{UID: 7, Index: 1, Processes: 2, Peak: engine.GiB, For: time.Hour}), GateView{}, open,
			[]string{observes, "ok: 7 on GPU 1 (2 processes, up to 1GiB, 1h0m0s)"}},
		"holds": {enforced(api.GateNode{Closed: true}), GateView{ModifyDeviceFiles: "0", Displays: []string{"Xorg of root"}}, nil, []string{"ok: enforced: 1 device nodes"}},
		"module": {enforced(api.GateNode{Closed: true}), GateView{ModifyDeviceFiles: "1"}, nil,
			[]string{"ok: enforced", "problem: NVreg_ModifyDeviceFiles is not 0"}},
		"no ACLs":                     {api.GateDiagnosis{Mode: "enforce", Problem: "no POSIX ACLs"}, GateView{ModifyDeviceFiles: "1"}, nil, []string{"problem: can only observe: no POSIX ACLs"}},
		"open":                        {enforced(api.GateNode{Open: "mode 0666"}), GateView{}, nil, []string{"problem: /dev/nvidia0 is open to others (mode 0666)"}},
		"closed to a job":             {enforced(api.GateNode{Missing: []string{"bob"}}), GateView{}, nil, []string{"problem: /dev/nvidia0 is closed to bob, who holds a grant"}},
		"one too many":                {enforced(api.GateNode{Surplus: []string{"bob"}}), GateView{}, nil, []string{"problem: /dev/nvidia0 is open to bob, who holds no grant"}},
		"not looked at":               {enforced(api.GateNode{Problem: "left alone"}), GateView{}, nil, []string{"problem: /dev/nvidia0 is not gated: left alone"}},
		"had it open when it closed":  {outside("enforce", api.OutsideUse{User: "bob", Now: 1}), GateView{}, nil, []string{"ok: enforced", "warning: who has a card open keeps it"}},
		"no gate in personal mode":    {},
		"SIMULATED cards, no drivers": {api.GateDiagnosis{Mode: "observe"}, GateView{Displays: []string{"Xorg of gdm"}, ModifyDeviceFiles: "1"}, nil, []string{observes}},
	} {
		t.Run(name, func(t *testing.T) {
			v := good()
			v.Gate, v.Nodes = tc.view, tc.nodes
			if tc.gate.Mode != "" {
				v.Daemon.Gate = &tc.gate
			}
			v.Daemon.Simulated = strings.HasPrefix(name, "SIMULATED")
			got := deviceGate(v)
			ok := len(got) == len(tc.want)
			for i := range min(len(got), len(tc.want)) {
				level, words, _ := strings.Cut(tc.want[i], ": ")
				ok = ok && string(got[i].Level) == level && strings.Contains(got[i].Message, words) && (got[i].Level != Problem || tc.gate.Problem != "" || got[i].Fix != "")
			}
			if !ok {
				t.Errorf("got %+v\nwant %q", got, tc.want)
			}
		})
	}
}

// What the gate has closed is no problem of who has no grant; what it should have closed and has not is told once.
func TestNodesOfAGate(t *testing.T) {
	v := good()
	v.Daemon.Gate = &api.GateDiagnosis{Mode: "enforce", Nodes: []api.GateNode{{Path: "/dev/nvidia0", Closed: true}}}
	v.Nodes[0].Opens, v.Nodes[0].Group = false, "root"
	for _, mode := range []uint32{0o660, 0o666} {
		v.Nodes[0].Mode = fs.FileMode(mode)
		if got := nodes(v); len(got) != 1 || got[0].Level != OK {
			t.Errorf("mode %04o: %+v", mode, got)
		}
	}
	v.Daemon.Gate.Problem = "no ACLs"
	if got := nodes(v); got[0].Level != Problem {
		t.Errorf("closed by somebody else: %+v", got)
	}
	v = good()
	v.Daemon.Gate, v.Nodes[0].Mode = &api.GateDiagnosis{Mode: "observe"}, 0o666
	if got := fmt.Sprint(nodes(v)); !strings.Contains(got, "gate: enforce") {
		t.Errorf("the way to close them is not told: %s", got)
	}
}

func TestLookAtWhatBearsOnTheGate(t *testing.T) {
	m := machine(t, map[string]string{
		"proc/driver/nvidia/params":           "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 0\nDeviceFileUID: 0\n",
		"proc/7/comm":                         "Xorg\n",
		"proc/8/comm":                         "bash\n",
		"etc/udev/rules.d/70-nvidia.rules":    "# a comment\nKERNEL==\"nvidia[0-9]*\", MODE=\"0660\", GROUP=\"video\"\n",
		"usr/lib/udev/rules.d/60-n.rules":     "# KERNEL==\"nvidia\", MODE=\"0666\"\n",
		"usr/lib/udev/rules.d/50-video.rules": "KERNEL==\"video[0-9]*\", GROUP=\"video\"\n",
		"lib/udev/rules.d/70-nvidia.rules":    "ACTION==\"add\", DEVPATH==\"/module/nvidia\", RUN+=\"nvidia-modprobe\"\n",
	}, nil)
	got := m.gate()
	if got.ModifyDeviceFiles != "0" || !reflect.DeepEqual(got.Rules, []string{"/etc/udev/rules.d/70-nvidia.rules"}) ||
		len(got.Displays) != 1 || !strings.HasPrefix(got.Displays[0], "Xorg of ") {
		t.Errorf("%+v", got)
	}
	if none := machine(t, nil, nil).gate(); none.ModifyDeviceFiles != "" || slices.Concat(none.Displays, none.Rules) != nil {
		t.Errorf("of an empty machine: %+v", none)
	}
}
