package rates

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// hostName matches the names that ParseHost accepts: kind of memory, million transfers a second, channels, and
// optionally cores and GiB.
var hostName = regexp.MustCompile(`^(ddr4|ddr5|lpddr5x?)-(\d{3,5})x(\d{1,3})((?:-\d{1,5}[cg])*)$`)

// Fractions of a host's peak memory bandwidth. STREAM's triad reaches 0.75 to 0.86 on x86 servers. An update reads and
// writes four or more arrays at once, which is a little slower.
const (
	copyPart   = 0.75
	updatePart = 0.72
	normPart   = 0.8  // the sum of squares only reads
	gatherPart = 0.25 // collecting rows from scattered addresses
	perCore    = 15   // GB/s of a single server core; a Zen 5 core reaches 40 and more
)

// hostExample ends error messages about host names: it explains how hosts are named.
const hostExample = "a host is called by its memory, TYPE-TRANSFERSxCHANNELS with cores and GiB if you like: ddr5-4800x8, ddr4-3200x2-16c-128g, " +
	"lpddr5x-8533x16 (channels of 16 bits); or grace, gb10"

// hosts has the hosts that are not named by their memory: Grace with 480 GB, and the host of GB10.
var hosts = map[string]struct {
	cores          int
	gib            float64
	peak, measured float64 // GB/s; measured by STREAM, 0: not measured
	source         string
}{
	"grace": {72, 440, 512, 486, "measured: STREAM reaches 486 of 512 GB/s (arXiv:2407.07850); an update and a copy as much less as elsewhere"},
	"gb10":  {20, 119, 273, 0, "estimate: parts of the datasheet's 273 GB/s, which the GPU shares"},
}

// ParseHost returns the host that a name stands for. ddr5-4800x8 has eight channels of DDR5 with 4,800 million
// transfers a second of 8 bytes each (LPDDR: 2 bytes). The suffixes -32c and -512g give cores and GiB. Without them a
// host has 4 cores and 64 GiB for each channel of 8 bytes.
func ParseHost(name string) (Host, error) {
	if h, ok := hosts[name]; ok {
		top := h.peak * copyPart
		if h.measured > 0 {
			top = h.measured * 0.9
		}
		return newHost(name, h.cores, h.gib, h.peak, top/copyPart, h.source), nil
	}
	m := hostName.FindStringSubmatch(name)
	if m == nil {
		return Host{}, fmt.Errorf("rates: no host is called %q: %s", name, hostExample)
	}
	transfers, channels := number(m[2]), number(m[3])
	width, perChannel := 8.0, 4
	if strings.HasPrefix(m[1], "lp") {
		width, perChannel = 2, 1
	}
	cores, gib := int(channels)*perChannel, channels*width*8
	for _, part := range strings.Split(strings.TrimPrefix(m[4], "-"), "-") {
		switch n := strings.TrimRight(part, "cg"); {
		case strings.HasSuffix(part, "c"):
			cores = int(number(n))
		case strings.HasSuffix(part, "g"):
			gib = number(n)
		}
	}
	if err := checkHost(name, transfers, channels, cores, gib); err != nil {
		return Host{}, err
	}
	peak := transfers * 1e6 * width * channels / 1e9
	return newHost(name, cores, gib, peak, min(peak, perCore*float64(cores)/updatePart),
		fmt.Sprintf("estimate: parts of the peak of %.4g GB/s, and at most %d GB/s a core", peak, perCore)), nil
}

// checkHost returns an error if a number in a host's name is beyond what any board has, which is probably a typing
// error.
func checkHost(name string, transfers, channels float64, cores int, gib float64) error {
	var errs []error
	for _, f := range []struct {
		what               string
		value, least, most float64
	}{{"million transfers a second", transfers, 800, 20000}, {"channels", channels, 1, 128}, {"cores", float64(cores), 1, 2048}, {"GiB", gib, 1, 1 << 16}} {
		if f.value < f.least || f.value > f.most {
			errs = append(errs, fmt.Errorf("rates: host %s: %g %s: between %g and %g are possible", name, f.value, f.what, f.least, f.most))
		}
	}
	return errors.Join(errs...)
}

// newHost returns a host whose rates of copies, updates and others are fixed fractions (copyPart
// and others) of top, in GB/s. peak, in GB/s, appears only in the name.
func newHost(name string, cores int, gib, peak, top float64, source string) Host {
	const wake = 20 // µs until all cores work
	sources := map[string]string{"cores": "as the name says, or what is usual", "memory_gib": "as the name says, or what is usual",
		"pack_s_per_mtoken": "measured: one core of an EPYC (Zen 5), rows of 2,048 tokens", "message_us": "measured: half a round trip between two actors"}
	for _, key := range []string{"memory_gb_per_s", "update", "norm", "gather"} {
		sources[key] = source
	}
	sources["updates"] = "that of update, and at most what was measured for one core (AVX-512) times the cores"
	return Host{Name: fmt.Sprintf("%s, %.4g GB/s at its peak", name, peak), Cores: cores, Memory: gib, Bandwidth: Round(top * copyPart),
		Update: Op{Fixed: wake, Rate: Round(top * updatePart)}, Updates: updates(cores, top*updatePart, wake), Norm: Op{Fixed: wake, Rate: Round(top * normPart)}, Gather: Op{Fixed: wake, Rate: Round(top * gatherPart)},
		Pack: packTime, Message: 1.8, Sources: sources}
}

// busyUpdates lists optimizers whose updates are limited by computation, not by memory, when there are few cores. rate
// is 10⁹ parameters a second on one core with AVX-512. bytes is the memory traffic of one parameter with an fp32
// gradient. Measured on a 2 GHz Xeon (docs/optimizers.md).
var busyUpdates = map[string]struct{ rate, bytes float64 }{
	"adamw_8bit": {0.42, 16.06},
	"adamw_4bit": {0.45, 14.13},
	"lion_8bit":  {0.83, 14.03},
}

// updates returns the costs of the optimizers in busyUpdates on a host with this many cores. No
// rate exceeds most, the GB/s that memory reaches. wake is the time in µs until all cores work.
func updates(cores int, most, wake float64) map[string]Op {
	out := map[string]Op{}
	for name, u := range busyUpdates {
		out[name] = Op{Fixed: wake, Rate: Round(min(most, float64(cores)*u.rate*u.bytes))}
	}
	return out
}

// packTime is the time for packing a million tokens into a batch, in seconds.
const packTime = 0.08

// number parses digits that hostName has matched. It panics if they are not a number, because
// hostName then has a bug.
func number(digits string) float64 {
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		panic("rates: the pattern let " + digits + " through")
	}
	return n
}
