//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gputop/engine"
	"gputop/engine/api"
)

// gated starts a shared daemon with a configuration of its own.
func gated(t *testing.T, mode string) (b *sharedBox, config string) {
	t.Helper()
	dir := t.TempDir()
	config = filepath.Join(dir, "config.yaml")
	setGate(t, config, mode)
	return sharedWith(t, "--simulate", "a100-40gb:2", "--config", config), config
}

func setGate(t *testing.T, config, mode string) {
	t.Helper()
	if err := os.WriteFile(config+".new", []byte("gate: "+mode+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(config+".new", config); err != nil {
		t.Fatal(err)
	}
}

// nodes are the files of the box's cards.
func (b *sharedBox) nodes() []string {
	b.t.Helper()
	nodes, err := filepath.Glob(filepath.Join(b.dir, "simulated", "GPU-*"))
	if err != nil || len(nodes) != 2 {
		b.t.Fatalf("cards' files: %v, %v", nodes, err)
	}
	return nodes
}

func (b *sharedBox) node(d api.JobDetail) string {
	return filepath.Join(b.dir, "simulated", string(d.Attempts[len(d.Attempts)-1].Grants[0].Device))
}

// opens says whether a person can open a node for reading and for writing, outside any container.
func (p *person) opens(node string) bool {
	p.t.Helper()
	r := p.try("bash", "-c", `exec 3<>"$0"`, node)
	if r.code != 0 && !strings.Contains(r.err, "Permission denied") {
		p.t.Fatalf("%s opens %s: %s", p.name, node, r.err)
	}
	return r.code == 0
}

func (p *person) shutOut(nodes ...string) {
	p.t.Helper()
	p.eventually(fmt.Sprintf("%s cannot open %v", p.name, nodes), func() (bool, string) {
		for _, n := range nodes {
			if p.opens(n) {
				return false, n + " opens"
			}
		}
		return true, ""
	})
}

func doctorOf(p *person) api.GateDiagnosis {
	p.t.Helper()
	var d struct{ Gate *api.GateDiagnosis }
	r := p.try("gputop", "doctor", "--json")
	if err := json.Unmarshal([]byte(r.out), &d); err != nil || d.Gate == nil {
		p.t.Fatalf("doctor: %v: %s%s", err, r.out, r.err)
	}
	return *d.Gate
}

// TestGate: nobody opens a card but who holds a grant on it, through the daemon's death and until its release; and what
// was closed is given back.
func TestGate(t *testing.T) {
	b, config := gated(t, "enforce")
	a, o := b.person(alice), b.person(bob)
	nodes := b.nodes()
	a.shutOut(nodes...)
	o.shutOut(nodes...)

	id := a.submit("--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m")
	d := a.untilState(id, engine.Running)
	mine, other := b.node(d), nodes[0]
	if other == mine {
		other = nodes[1]
	}
	a.until(id, "on its card", func(d api.JobDetail) bool { return d.GPUMemoryUsed != nil && *d.GPUMemoryUsed >= engine.GiB })
	if !a.opens(mine) || a.opens(other) {
		t.Errorf("alice opens her card: %v, the other: %v", a.opens(mine), a.opens(other))
	}
	o.shutOut(mine, other)
	// Root of bob's own container is bob.
	r := o.try("podman", "run", "--rm", "--network", "none", "-v", mine+":/dev/nvidia0", "-e", "GPUTOP_SIM_DEVICES=/dev/nvidia0", image, "simload", "--mem", "1GiB", "--for", "1s")
	if r.code == 0 || !strings.Contains(r.out+r.err, "permission denied") {
		t.Errorf("bob's container opens alice's card: exit %d: %s%s", r.code, r.out, r.err)
	}
	// A second job of another user on the other card.
	second := o.submit("--profile", "demo", "--", "simload", "--mem", "1GiB", "--for", "10m")
	if got := b.node(o.untilState(second, engine.Running)); got != other || !o.opens(other) || o.opens(mine) || a.opens(other) {
		t.Errorf("bob's job is on %s: bob opens it: %v, and alice's: %v; alice opens bob's: %v", got, o.opens(other), o.opens(mine), a.opens(other))
	}

	// Nothing opens or closes while the daemon is away; what is opened meanwhile is closed when it is back.
	b.kill()
	if !a.opens(mine) || o.opens(mine) {
		t.Errorf("without a daemon alice opens her card: %v, bob opens it: %v", a.opens(mine), o.opens(mine))
	}
	if err := os.Chmod(mine, 0o666); err != nil {
		t.Fatal(err)
	}
	b.start()
	a.untilState(id, engine.Running)
	o.shutOut(mine)
	if !a.opens(mine) {
		t.Error("alice's running job has lost its card to a restart")
	}

	// What is left when it ends: nothing.
	a.gputop("cancel", id.String())
	a.released(id)
	if a.opens(mine) {
		t.Error("alice opens the card after its release")
	}
	if !o.opens(other) {
		t.Error("bob's job has lost its card to the end of alice's")
	}
	for _, n := range doctorOf(a).Nodes {
		if !n.Closed || n.Path == other && (len(n.Users) != 1 || n.Users[0] != bob) {
			t.Errorf("doctor says %+v", n)
		}
	}

	// Back to observing, in the running daemon.
	setGate(t, config, "observe")
	a.eventually("everybody opens the cards again", func() (bool, string) { return a.opens(mine) && o.opens(mine) && a.opens(other), "" })
	for _, n := range nodes {
		if out, err := exec.Command("getfacl", "-cpn", n).CombinedOutput(); err != nil || strings.Join(strings.Fields(string(out)), " ") != "user::rw- group::rw- other::rw-" {
			t.Errorf("%s was not given back as it was: %s%v", n, out, err)
		}
	}
	if r := o.show(second); r.State != engine.Running {
		t.Errorf("bob's job is %s", r.State)
	}
	o.gputop("cancel", second.String())
	o.released(second)
}

// TestGateOfOthers: who goes round the queue is seen and counted, and told in the trail; the command that gives the nodes
// back needs no daemon.
func TestGateOfOthers(t *testing.T) {
	b, config := gated(t, "warn")
	a, o := b.person(alice), b.person(bob)
	node := b.nodes()[0]
	round := o.command(t.Context(), "simload", "--mem", "2GiB", "--for", "10m")
	round.Env = append(round.Env, "GPUTOP_SIM_DEVICES="+node)
	if err := round.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = round.Process.Kill(); _ = round.Wait() }()
	a.eventually("bob's use is counted", func() (bool, string) {
		g := doctorOf(a)
		if len(g.Outside) != 1 {
			return false, fmt.Sprintf("%+v", g)
		}
		u := g.Outside[0]
		return u.User == bob && u.Now == 1 && u.Processes == 1 && u.Memory >= 2*engine.GiB && u.For > 0, fmt.Sprintf("%+v", u)
	})
	if out := o.gputop("audit"); !strings.Contains(out, "outside-use") {
		t.Errorf("bob's trail: %s", out)
	}
	if n := strings.Count(o.gputop("audit"), "outside-use"); n != 1 {
		t.Errorf("told %d times of one process", n)
	}

	setGate(t, config, "enforce")
	o.shutOut(b.nodes()...)
	if doctorOf(a).Outside[0].Now != 1 {
		t.Error("who has the card open already has lost it")
	}
	b.kill()
	open := exec.Command(filepath.Join(bin, "gputopd"), "gate", "--open", "--state-dir", filepath.Join(b.dir, "state"))
	if out, err := open.CombinedOutput(); err != nil || strings.Count(string(out), "given back") != 2 {
		t.Errorf("gate --open: %v: %s", err, out)
	}
	for _, n := range b.nodes() {
		if !o.opens(n) {
			t.Errorf("%s is still closed", n)
		}
	}
}
