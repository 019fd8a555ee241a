package rates

import (
	"fmt"
	"strconv"
	"strings"
)

// networkLatency is the fixed time of an exchange, in µs, for a network whose latency is unknown. InfiniBand needs a
// few µs, TCP tens.
const networkLatency = 30

// ParseNetwork parses a rate with its unit: bits a second, as networks are sold (100Gb/s), or bytes a second
// (12.5GB/s).
func ParseNetwork(text string) (*Network, error) {
	const want = "want a rate such as 100Gb/s or 12.5GB/s"
	number := strings.TrimRight(text, "/sGMTbBit")
	rate, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || !(rate > 0) {
		return nil, fmt.Errorf("%q: %s", text, want)
	}
	perSecond := map[string]float64{"Mb/s": 1e-3 / 8, "Gb/s": 1. / 8, "Tb/s": 1e3 / 8, "MB/s": 1e-3, "GB/s": 1, "TB/s": 1e3,
		"Mbit/s": 1e-3 / 8, "Gbit/s": 1. / 8, "Tbit/s": 1e3 / 8}
	unit, known := perSecond[strings.TrimSpace(text[len(number):])]
	if !known {
		return nil, fmt.Errorf("%q: %s", text, want)
	}
	n := &Network{Rate: rate * unit, Latency: networkLatency}
	c := &checker{}
	n.check(c)
	if len(c.errs) > 0 {
		return nil, fmt.Errorf("%q: %w", text, c.errs[0])
	}
	return n, nil
}

func (n *Network) check(c *checker) {
	c.within("network.gb_per_s", "GB/s", n.Rate, networkRate)
	c.within("network.latency_us", "µs", n.Latency, micros)
}
