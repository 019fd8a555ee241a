package train

import (
	"testing"

	"mt/internal/config"
	"mt/plan/rates"
)

// TestPassingBetweenDevicesThatDiffer: what passes between two devices goes directly if both copy to others.
func TestPassingBetweenDevicesThatDiffer(t *testing.T) {
	for want, peers := range map[string][]float64{throughHost: {20, 0, 0}, partly: {0, 20, 30}, directly: {20, 20, 30}} {
		m := &rates.Machine{Link: rates.Link{Peer: peers[0]}}
		for _, p := range peers[1:] {
			m.More = append(m.More, rates.Card{Link: rates.Link{Peer: p}})
		}
		j := &job{c: config.Default(), lanes: 3, profile: m}
		if got, err := j.passing(); err != nil || got != want {
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
