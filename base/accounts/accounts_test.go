package accounts

import (
	"fmt"
	"testing"
)

// TestCount: subtracting freed memory changes Now and not the peaks. Staging memory is in no total.
func TestCount(t *testing.T) {
	var u Used
	u.Count(Weights, 8)
	u.Count(Planes, 4)
	u.Count(HostStaging, 100)
	u.Count(Weights, -8)
	u.Count(Weights, 2)
	want := Used{Total: 6, PeakTotal: 12}
	want.Now[Weights], want.Now[Planes], want.Now[HostStaging] = 2, 4, 100
	want.Peak[Weights], want.Peak[Planes], want.Peak[HostStaging] = 8, 4, 100
	if u != want {
		t.Errorf("%+v, want %+v", u, want)
	}
}

// TestPurposes: every purpose has its own name, and is a purpose either of device memory, of host
// staging or of a host arena.
func TestPurposes(t *testing.T) {
	seen := map[string]bool{}
	for p := range NumPurposes {
		if name := p.String(); name == "" || seen[name] {
			t.Errorf("purpose %d is %q", uint8(p), name)
		}
		seen[p.String()] = true
		if p != HostStaging && p.OfDevice() == p.OfArena() {
			t.Errorf("%s is of the device: %t, of an arena: %t", p, p.OfDevice(), p.OfArena())
		}
	}
	if Weights.String() != "weights" || NumPurposes.String() != fmt.Sprintf("Purpose(%d)", uint8(NumPurposes)) {
		t.Errorf("names are %q and %q", Weights, NumPurposes)
	}
	if HostStaging.OfDevice() || HostStaging.OfArena() || NumPurposes.OfArena() {
		t.Error("staging is of neither")
	}
}
