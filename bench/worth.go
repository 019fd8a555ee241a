package bench

import (
	"fmt"
	"math"
)

// Worth is what compression would buy for one kind of bytes on one way that they travel.
type Worth struct {
	Kind string `json:"kind"`
	Way  string `json:"way"` // in words
	Best string `json:"best,omitempty"`
	// Ratio and HostGBps are those of the way named in Best: the host's side of it, of all
	// cores together.
	Ratio    float64 `json:"ratio,omitempty"`
	HostGBps float64 `json:"host_gb_per_s,omitempty"`
	// PaysBelowGBps: on a link or disk of fewer GB/s the bytes arrive sooner compressed; 0:
	// on none.
	PaysBelowGBps float64 `json:"pays_below_gb_per_s"`
	// Gains are how many times as fast the bytes arrive, at reference speeds.
	Gains []Gain `json:"gains"`
}

// Gain is at one speed. At is that speed in GB/s.
type Gain struct {
	Name string  `json:"name"`
	At   float64 `json:"gb_per_s"`
	Gain float64 `json:"gain"`
}

// journey is a way that a kind of bytes travels.
type journey struct {
	kind, way string
	compress  bool // the host compresses, else it decompresses
	disk      bool
}

// journeys are all that a run has. Gradients land on the host, and weights leave it; the
// rest goes to disk and back with checkpoints.
var journeys = []journey{
	{"gradient fp32", "device to host", false, false},
	{"gradient bf16", "device to host", false, false},
	{"weight hi", "host to device", true, false},
	{"weight fp32", "host to device", true, false},
	{"update fp32", "host to device, if that kept the weights", true, false},
	{"weight hi", "to disk", true, true},
	{"weight lo", "to disk", true, true},
	{"weight fp32", "to disk", true, true},
	{"m", "to disk", true, true},
	{"v", "to disk", true, true},
	{"8-bit codes", "to disk", true, true},
}

// The speeds of reference, in GB/s: what links reach with pinned memory, and disks.
var (
	linkSpeeds = []Gain{{Name: "PCIe 3 x16", At: 12}, {Name: "PCIe 4 x16", At: 26}, {Name: "PCIe 5 x16", At: 55}}
	diskSpeeds = []Gain{{Name: "SATA", At: 0.5}, {Name: "NVMe, PCIe 3", At: 2}, {Name: "NVMe, PCIe 4", At: 7}}
)

// leastRatio is the ratio from which on a way counts: less is lost in headers and odd ends.
const leastRatio = 1.02

// worth finds for every journey the way that pays at the fastest link, and what the best
// way of all gains at the speeds of reference: min(speed·ratio, the host's codec)/speed.
func worth(sums []CompressRow, cores int) (out []Worth) {
	for _, j := range journeys {
		w := Worth{Kind: j.kind, Way: j.way, Gains: append([]Gain(nil), linkSpeeds...)}
		if j.disk {
			w.Gains = append([]Gain(nil), diskSpeeds...)
		}
		for i := range w.Gains {
			w.Gains[i].Gain = 1
		}
		found := false
		for _, x := range sums {
			// A difference needs the step before at both ends: a device and a checkpoint lack it.
			if x.Kind != j.kind || needsBefore(x.Transform) {
				continue
			}
			found = true
			speed := x.Decompress
			if j.compress {
				speed = x.Compress
			}
			speed *= float64(cores)
			if x.Ratio >= leastRatio && speed > w.PaysBelowGBps {
				w.PaysBelowGBps, w.Ratio, w.HostGBps, w.Best = speed, x.Ratio, speed, x.Transform+", "+x.Codec
			}
			for i := range w.Gains {
				g := &w.Gains[i]
				if x.Ratio >= leastRatio {
					g.Gain = math.Max(g.Gain, math.Min(g.At*x.Ratio, speed)/g.At)
				}
			}
		}
		if found {
			out = append(out, w)
		}
	}
	return out
}

func needsBefore(name string) bool {
	for _, t := range transforms {
		if t.name == name {
			return t.prev
		}
	}
	return false
}

// verdicts is the table of the conclusion.
func (r *CompressReport) verdicts() [][]string {
	rows := [][]string{{"what", "way", "pays below, GB/s", "by", "ratio", "how many times as fast, with the best way at each speed"}}
	for _, w := range r.Worth {
		below, ratio := "nowhere", ""
		if w.PaysBelowGBps > 0 {
			below, ratio = fmt.Sprintf("%.2f", w.PaysBelowGBps), fmt.Sprintf("%.2f", w.Ratio)
		}
		gains := ""
		for i, g := range w.Gains {
			if i > 0 {
				gains += ", "
			}
			gains += fmt.Sprintf("%s (%g GB/s) %.2f", g.Name, g.At, g.Gain)
		}
		rows = append(rows, []string{w.Kind, w.Way, below, w.Best, ratio, gains})
	}
	return rows
}

// worthNote says what the conclusion counts and what it leaves out.
const worthNote = `Bytes arrive at min(link × ratio, codec × cores); without compression at the link's speed. The host's
side alone is counted: the device would need codecs of its own, at least as fast, and the host's cores
are those that update weights meanwhile. Ways that need the step before are left out of the conclusion,
since neither a device nor a checkpoint has it; their ratios are above.
`
