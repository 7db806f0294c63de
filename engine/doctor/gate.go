package doctor

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"gputop/engine/api"
)

// GateView is what a machine has that the device gate gets on with, or not.
type GateView struct {
	// ModifyDeviceFiles is that parameter of the loaded NVIDIA module, "0" or "1"; empty when it is not loaded.
	ModifyDeviceFiles string
	// Displays are display servers and desktops that run, each as "PROGRAM of USER".
	Displays []string
	// Rules are udev's files that make, or change who may open, NVIDIA's nodes.
	Rules []string
}

// keepFiles tells NVIDIA's module to leave device nodes as they are. It is never written by us.
const keepFiles = "echo 'options nvidia NVreg_ModifyDeviceFiles=0' | sudo tee /etc/modprobe.d/gputop-gate.conf && sudo update-initramfs -u && sudo reboot"

// displays are programs that keep a card open for a screen, by the name the kernel has for them.
var displays = []string{"Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "sddm", "weston", "sway"}

// gated says whether the device gate looks after a node, in mode enforce.
func (v View) gated(path string) bool {
	g := v.gate()
	return g != nil && g.Mode == "enforce" && g.Problem == "" && slices.ContainsFunc(g.Nodes, func(n api.GateNode) bool { return n.Path == path })
}

func (v View) gate() *api.GateDiagnosis {
	if v.Daemon == nil {
		return nil
	}
	return v.Daemon.Gate
}

// deviceGate judges the gate: in mode enforce whether it holds, and else what it would break.
func deviceGate(v View) []Finding {
	g := v.gate()
	if g == nil {
		return nil
	}
	var out []Finding
	switch {
	case g.Mode == "enforce" && g.Problem != "":
		out = one("gate", Problem, "it is set to enforce and can only observe: "+g.Problem, "")
	case g.Mode == "enforce":
		out = append(gateNodes(g), gateModule(v)...)
	default:
		out = gateOutlook(v, g)
	}
	for _, u := range g.Outside {
		if u.Now > 0 {
			out = append(out, one("gate", Warning, outsideText(u, g.Mode), "")...)
		}
	}
	if past := pastUse(g); past != "" {
		out = append(out, one("gate", OK, past, "")...)
	}
	return out
}

// gateNodes judges each node of a gate that is to be closed.
func gateNodes(g *api.GateDiagnosis) (out []Finding) {
	problem := func(n api.GateNode, format string, args ...any) {
		out = append(out, one("gate", Problem, n.Path+" "+fmt.Sprintf(format, args...), "journalctl -u gputop -n 50")...)
	}
	for _, n := range g.Nodes {
		switch {
		case n.Problem != "":
			problem(n, "is not gated: %s", n.Problem)
		case n.Open != "":
			problem(n, "is open to others (%s), and is closed again within seconds", n.Open)
		case len(n.Missing) > 0:
			problem(n, "is closed to %s, who holds a grant on it", strings.Join(n.Missing, ", "))
		case !n.Closed:
			problem(n, "is open to %s, who holds no grant", strings.Join(n.Surplus, ", "))
		}
	}
	if out == nil {
		out = one("gate", OK, fmt.Sprintf("enforced: %d device nodes, each closed but to who holds a grant", len(g.Nodes)), "")
	}
	return out
}

func gateModule(v View) []Finding {
	if v.simulated() || v.Gate.ModifyDeviceFiles == "0" || v.Gate.ModifyDeviceFiles == "" {
		return nil
	}
	return one("gate", Problem, "NVIDIA's driver is told to manage device nodes itself (NVreg_ModifyDeviceFiles is not 0): any program that "+
		"starts CUDA can have it open all cards to everybody until the gate looks again, every 2 seconds", keepFiles)
}

// gateOutlook says what enforcing would break.
func gateOutlook(v View, g *api.GateDiagnosis) []Finding {
	out := one("gate", OK, fmt.Sprintf("it does not close the cards (gate: %s): use outside the queue is shown and counted", g.Mode), "")
	if v.simulated() {
		return out
	}
	for _, d := range v.Gate.Displays {
		out = append(out, one("gate", Warning, d+" runs: with gate: enforce a screen on these cards stops working at its next start, unless it runs as root", "")...)
	}
	for _, n := range v.Nodes {
		if n.Group != "" && n.Group != "root" && v.card(n.Path) {
			out = append(out, one("gate", Warning, fmt.Sprintf("%s belongs to the group %s: with gate: enforce its members have to go through the queue like everybody", n.Path, n.Group), "")...)
		}
	}
	if len(v.Gate.Rules) > 0 {
		out = append(out, one("gate", OK, "udev rules speak of NVIDIA's nodes, and what they set is set back with gate: enforce: "+shortList(v.Gate.Rules), "")...)
	}
	if v.Gate.ModifyDeviceFiles == "1" {
		out = append(out, one("gate", OK, "before gate: enforce, NVIDIA's module has to be told to leave device nodes alone: "+keepFiles, "")...)
	}
	return out
}

// card says whether a path is a card's node; the driver's other nodes stay as they are.
func (v View) card(path string) bool {
	n, ok := strings.CutPrefix(path, "/dev/nvidia")
	_, err := strconv.Atoi(n)
	return ok && err == nil
}

func outsideText(u api.OutsideUse, mode string) string {
	s := fmt.Sprintf("%s is on GPU %d outside the queue: %d processes with %s, for %s in all", firstOf(u.User, fmt.Sprint(u.UID)), u.Index, u.Now, u.Memory, u.For.Round(time.Second))
	if mode == "enforce" {
		return s + "; who has a card open keeps it, and cannot open it again"
	}
	return s + "; with gate: enforce this would not start again"
}

// pastUse is one line about who has used the cards outside the queue and does not now.
func pastUse(g *api.GateDiagnosis) string {
	var words []string
	for _, u := range g.Outside {
		if u.Now == 0 {
			words = append(words, fmt.Sprintf("%s on GPU %d (%d processes, up to %s, %s)", firstOf(u.User, fmt.Sprint(u.UID)), u.Index, u.Processes, u.Peak, u.For.Round(time.Second)))
		}
	}
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("outside the queue since %s: %s", g.Since.Local().Format("2006-01-02 15:04"), shortList(words))
}

// gate reads what bears on the device gate.
func (m Machine) gate() (g GateView) {
	params, _ := os.ReadFile(m.path("/proc/driver/nvidia/params")) // not there without the driver
	for line := range strings.Lines(string(params)) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == "ModifyDeviceFiles" {
			g.ModifyDeviceFiles = strings.TrimSpace(value)
		}
	}
	comms, _ := filepath.Glob(m.path("/proc/[0-9]*/comm")) // only a bad pattern fails
	for _, p := range comms {
		b, err := os.ReadFile(p)
		name := strings.TrimSpace(string(b))
		if err != nil || !slices.Contains(displays, name) {
			continue // gone, or something else
		}
		if d := name + " of " + ownerOf(filepath.Dir(p)); !slices.Contains(g.Displays, d) {
			g.Displays = append(g.Displays, d)
		}
	}
	for _, dir := range []string{"/etc/udev/rules.d", "/run/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d"} {
		files, _ := filepath.Glob(filepath.Join(m.path(dir), "*.rules"))
		for _, f := range files {
			// /lib may be /usr/lib: a file name counts once, as for udev.
			named := func(r string) bool { return filepath.Base(r) == filepath.Base(f) }
			if rulesOfNVIDIA(f) && !slices.ContainsFunc(g.Rules, named) {
				g.Rules = append(g.Rules, filepath.Join(dir, filepath.Base(f)))
			}
		}
	}
	return g
}

// rulesOfNVIDIA says whether a rule in the file speaks of NVIDIA's nodes and of who may open them.
func rulesOfNVIDIA(file string) bool {
	b, err := os.ReadFile(file)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(strings.TrimSpace(line), "#") || !strings.Contains(strings.ToLower(line), "nvidia") {
			continue
		}
		for _, word := range []string{"MODE", "GROUP", "OWNER", "uaccess", "mknod", "chmod", "modprobe"} {
			if strings.Contains(line, word) {
				return true
			}
		}
	}
	return false
}

func ownerOf(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return "nobody known"
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return "nobody known"
	}
	uid := strconv.Itoa(int(st.Uid))
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return "uid " + uid
}
