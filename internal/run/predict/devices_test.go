package predict

import (
	"strings"
	"testing"
	"time"

	"mt/actors"
	"mt/device/virtual"
	"mt/internal/run/config"
	"mt/internal/run/open"
	"mt/internal/testkit"
	"mt/plan"
	"mt/plan/rates"
)

// TestPassingBetweenDevicesThatDiffer: activations are predicted to go directly between two devices
// if both have a peer rate, and otherwise through the host.
func TestPassingBetweenDevicesThatDiffer(t *testing.T) {
	for want, peers := range map[string][]float64{throughHost: {20, 0, 0}, partly: {0, 20, 30}, directly: {20, 20, 30}} {
		m := &rates.Machine{Link: rates.Link{Peer: peers[0]}}
		for _, p := range peers[1:] {
			m.More = append(m.More, rates.Card{Link: rates.Link{Peer: p}})
		}
		j := &open.Inputs{Config: config.Default(), Lanes: 3, Profile: m}
		if got, err := betweenDevices(j); err != nil || got != want {
			t.Errorf("devices that copy at %v GB/s: %s, want %s (%v)", peers, got, want, err)
		}
	}
}

// TestFasterLinks: doubling the rates of host links also doubles the copies between devices, unless
// those use wires of their own.
func TestFasterLinks(t *testing.T) {
	m := &rates.Machine{Link: rates.Link{Up: 10, Peer: 8}, More: []rates.Card{{Link: rates.Link{Up: 20, Peer: 100, Wires: true}}}}
	f := fasterLinks(m)
	if a, b := f.Link, f.More[0].Link; a.Up != 20 || a.Peer != 16 || b.Up != 40 || b.Peer != 100 {
		t.Errorf("links that are twice as fast: %+v and %+v", a, b)
	}
}

// TestScalingInWords: the table shows no speedup that is unknown, and the text says only what was
// predicted about the host as a limit.
func TestScalingInWords(t *testing.T) {
	p := &Predicted{Step: 1, TokensPerSecond: 2}
	s := &scaling{Counts: []scaled{{Devices: 1, Swept: Swept{What: "1", Problem: "too little memory"}}, {Devices: 2, Swept: Swept{What: "2", Predicted: p}, Limit: "links"}}}
	var text strings.Builder
	testkit.NoError(t, s.write(&text))
	if got := text.String(); strings.Contains(got, "0.00") || !strings.Contains(got, "with 2 devices the host is not the limit") || !strings.HasSuffix(got, ": nothing that mt tried\n") {
		t.Errorf("%s", got)
	}
}

// TestDepthsAgainstPassage: if devices wait for each other's activations, more activation slots are
// tried.
func TestDepthsAgainstPassage(t *testing.T) {
	tried := depths(plan.Request{}, actors.StallPassage)
	if len(tried) == 0 || !strings.HasPrefix(tried[0].what, "activation_slots: ") {
		t.Errorf("tried against waits for what other devices pass on: %v", tried)
	}
}

// TestPredictedDisks: a prediction with invented times gives the expected share of disk time that
// is hidden, and the expected life of the disk in steps.
func TestPredictedDisks(t *testing.T) {
	p := &Prediction{Report: actors.StepReport{Elapsed: time.Second, DiskRead: 3e9, DiskWritten: 2e9}}
	p.Use[virtual.Disk], p.Report.Stall[actors.StallDisk] = 0.8, 200*time.Millisecond
	got := describe(&rates.Machine{}, p)
	if got.DiskHidden != 0.75 || got.DiskStepsPerPB != 500_000 {
		t.Errorf("%g of the disk's time is hidden, want 0.75, and it lasts %d steps", got.DiskHidden, got.DiskStepsPerPB)
	}
	if words := diskWords(got); !strings.Contains(words, "75 % of it hidden behind computing; a petabyte of rated writes lasts 500,000 steps") {
		t.Error(words)
	}
	p.Report.DiskWritten = 0 // checkpoints alone
	if got := describe(&rates.Machine{}, p); got.DiskHidden != 0 || got.DiskStepsPerPB != 0 || diskWords(got) != "" {
		t.Errorf("without states on disks: %+v", got)
	}
}
