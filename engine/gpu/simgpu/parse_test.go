package simgpu

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	show := func(c Config) string {
		var out []string
		for _, card := range c.Cards {
			out = append(out, strings.Join(append([]string{card.Model}, card.MIG...), " "))
		}
		return strings.Join(out, "; ")
	}
	for spec, want := range map[string]string{
		"a100-40gb":             "a100-40gb",
		"T4:2":                  "t4; t4",
		"h100-80gb:2, t4:1":     "h100-80gb; h100-80gb; t4",
		"l40s,rtx4090":          "l40s; rtx4090",
		"h200-141gb:8":          "h200-141gb" + strings.Repeat("; h200-141gb", 7),
		"a100-40gb/mig=7g.40gb": "a100-40gb 7g.40gb",
		"a100-40gb:1/mig=3g.20gb+2g.10gb+1g.5gb,t4": "a100-40gb 3g.20gb 2g.10gb 1g.5gb; t4",
		"h100-80gb/mig=1g.10gb+3g.40gb":             "h100-80gb 1g.10gb 3g.40gb",
	} {
		c, err := Parse(spec)
		if err != nil || show(c) != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", spec, show(c), err, want)
		}
	}
	const all = "a100-40gb, gb10, gtx1650, h100-80gb, h200-141gb, l40s, rtx4090, t4"
	for spec, want := range map[string]string{
		"":                  `simulated GPUs "": no model named; write MODEL or MODEL:COUNT with one of ` + all,
		"v100:2":            `simulated GPUs "v100:2": no model "v100"; write MODEL or MODEL:COUNT with one of ` + all,
		"t4:0":              `simulated GPUs "t4:0": "0" is no number of cards; write 1 to 8, for example t4:2`,
		"t4:9":              `simulated GPUs "t4:9": "9" is no number of cards; write 1 to 8, for example t4:2`,
		"t4:x":              `simulated GPUs "t4:x": "x" is no number of cards; write 1 to 8, for example t4:2`,
		"t4:5,l40s:4":       `simulated GPUs "t4:5,l40s:4": 9 cards; a machine has 1 to 8`,
		"t4/mig=1g":         `simulated GPUs "t4/mig=1g": Tesla T4 has no MIG`,
		"a100-40gb/3g.20gb": `simulated GPUs "a100-40gb/3g.20gb": "3g.20gb" after the slash; write for example a100-40gb:1/mig=3g.20gb+2g.10gb`,
		"a100-40gb/mig=3g.40gb": `simulated GPUs "a100-40gb/mig=3g.40gb": NVIDIA A100-SXM4-40GB has no MIG profile "3g.40gb"; ` +
			`it has 1g.5gb, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb`,
		"a100-40gb/mig=4g.20gb+4g.20gb": `simulated GPUs "a100-40gb/mig=4g.20gb+4g.20gb": ` +
			`the MIG devices 4g.20gb+4g.20gb do not fit on one NVIDIA A100-SXM4-40GB together`,
	} {
		if _, err := Parse(spec); err == nil || err.Error() != want {
			t.Errorf("%q:\n got %v\nwant %s", spec, err, want)
		}
	}
}

func TestPlacement(t *testing.T) {
	for names, want := range map[string]string{
		"3g.20gb 2g.10gb 1g.5gb": "0+4 4+2 6+1",
		"1g.5gb 3g.20gb":         "0+1 4+4",
		"3g.20gb 3g.20gb":        "0+4 4+4",
		"1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb": "0+1 1+1 2+1 3+1 4+1 5+1 6+1",
		"1g.5gb 4g.20gb 2g.10gb":                           "6+1 0+4 4+2",
	} {
		s, err := models["a100-40gb"].place(strings.Fields(names))
		var got []string
		for _, s := range s {
			got = append(got, string(rune('0'+s.start))+"+"+string(rune('0'+s.size)))
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: got %s, %v; want %s", names, strings.Join(got, " "), err, want)
		}
	}
}
