package rates

import (
	"math"
	"strings"
	"testing"
)

// TestParseNetwork: rates in bits and in bytes are told apart, and text that is no rate is refused.
func TestParseNetwork(t *testing.T) {
	for text, want := range map[string]float64{"100Gb/s": 12.5, "12.5GB/s": 12.5, "400Gbit/s": 50, "1Tb/s": 125, "800 Mb/s": 0.1, "25GB/s": 25,
		"250MB/s": 0.25, "2TB/s": 2000, "400Mbit/s": 0.05, "0.8Tbit/s": 100} {
		n, err := ParseNetwork(text)
		if err != nil || math.Abs(n.Rate-want) > 1e-9 || n.Latency <= 0 {
			t.Errorf("%q: %+v, %v; wanted %g GB/s", text, n, err, want)
		}
	}
	for _, text := range []string{"", "fast", "100", "100G", "100Gb", "-1Gb/s", "0Gb/s", "100gb/s", "NaNGb/s", "1e9GB/s", "Gb/s"} {
		if n, err := ParseNetwork(text); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%q: %+v, %v", text, n, err)
		}
	}
}

// TestNetworkOfAMachine: a machine may have a network, and Check then checks its figures.
func TestNetworkOfAMachine(t *testing.T) {
	m, err := Find("h100-pcie")
	if err != nil || m.Network != nil {
		t.Fatalf("%+v, %v", m, err)
	}
	m.Network = &Network{Rate: 12.5, Latency: 5}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	m.Network = &Network{Latency: 5}
	if err := m.Check(); err == nil || !strings.Contains(err.Error(), "network.gb_per_s is missing") {
		t.Errorf("a network without a rate: %v", err)
	}
}
