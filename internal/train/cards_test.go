package train

import (
	"strings"
	"testing"

	"mt/actors"
	"mt/internal/config"
	"mt/plan"
	"mt/plan/rates"
)

// TestPassingBetweenDevicesThatDiffer: what passes between two devices goes directly if both copy to others.
func TestPassingBetweenDevicesThatDiffer(t *testing.T) {
	for want, peers := range map[string][]float64{throughHost: {20, 0, 0}, partly: {0, 20, 30}, directly: {20, 20, 30}} {
		m := &rates.Machine{Link: rates.Link{Peer: peers[0]}}
		for _, p := range peers[1:] {
			m.More = append(m.More, rates.Card{Link: rates.Link{Peer: p}})
		}
		j := &Inputs{c: config.Default(), lanes: 3, profile: m}
		if got, err := passing(j); err != nil || got != want {
			t.Errorf("devices that copy at %v GB/s: %s, want %s (%v)", peers, got, want, err)
		}
	}
}

// TestFasterLinks: copies between devices are twice as fast where they go over the links.
func TestFasterLinks(t *testing.T) {
	m := &rates.Machine{Link: rates.Link{Up: 10, Peer: 8}, More: []rates.Card{{Link: rates.Link{Up: 20, Peer: 100, Wires: true}}}}
	f := fasterLinks(m)
	if a, b := f.Link, f.More[0].Link; a.Up != 20 || a.Peer != 16 || b.Up != 40 || b.Peer != 100 {
		t.Errorf("links that are twice as fast: %+v and %+v", a, b)
	}
}

// TestTrialsNameEachDevice: rates of fewer devices than the run has are refused, unless they are of one.
func TestTrialsNameEachDevice(t *testing.T) {
	for lanes, says := range map[int]string{2: "", 3: "the rates are those of 2 devices, and the run has 3"} {
		j := &Inputs{c: config.Default(), lanes: lanes}
		j.c.Device = "cpu"
		m := &rates.Machine{Device: rates.Device{Kind: "cpu"}, More: make([]rates.Card, 1)}
		if _, err := (&Trials{in: j}).Machine(m); says == "" && err != nil || says != "" && (!config.IsUsage(err) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%d devices: %v", lanes, err)
		}
		m.More = nil
		if _, err := (&Trials{in: j}).Machine(m); err != nil {
			t.Errorf("%d devices that are alike: %v", lanes, err)
		}
	}
}

// TestScalingInWords: a speedup that is not known is not shown, and no more is said of the host than is
// known.
func TestScalingInWords(t *testing.T) {
	p := &Predicted{Step: 1, TokensPerSecond: 2}
	s := &scaling{Counts: []scaled{{Devices: 1, swept: swept{What: "1", Problem: "too little memory"}}, {Devices: 2, swept: swept{What: "2", Predicted: p}, Limit: "links"}}}
	var text strings.Builder
	if err := s.write(&text); err != nil {
		t.Fatal(err)
	}
	if got := text.String(); strings.Contains(got, "0.00") || !strings.Contains(got, "with 2 devices the host is not the limit") || !strings.HasSuffix(got, ": nothing that mt tried\n") {
		t.Errorf("%s", got)
	}
}

// TestDepthsAgainstPassage: more activation slots are tried where devices wait for each other.
func TestDepthsAgainstPassage(t *testing.T) {
	tried := depths(plan.Request{}, actors.StallPassage)
	if len(tried) == 0 || !strings.HasPrefix(tried[0].what, "activation_slots: ") {
		t.Errorf("tried against waits for what other devices pass on: %v", tried)
	}
}

// TestRatesOfGivenCards: rates that lack a dtype are named by the flag that gave them, which does not go
// together with the key.
func TestRatesOfGivenCards(t *testing.T) {
	m := &rates.Machine{More: make([]rates.Card, 1)}
	for key, says := range map[string]string{"auto": "--gpu: no rate of products in bf16", "h100": "leave out one of the two"} {
		j := &opening{Inputs: Inputs{c: config.Default(), lanes: 2}}
		j.c.ComputeDType, j.c.DeviceRates = "bf16", key
		if err := j.weighDevices(m); !config.IsUsage(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("device_rates: %s: %v, want %s", key, err, says)
		}
	}
}
