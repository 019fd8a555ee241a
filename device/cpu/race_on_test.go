//go:build race

package cpu

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"mt/device"
	"mt/device/op"
)

// racyCase is the environment variable that tells a child process of
// TestRaceDetectorSeesAMissingWait which program to run.
const racyCase = "MT_TEST_RACE"

// TestRaceDetectorSeesAMissingWait: the race detector reports a missing wait between two streams,
// although kernels are assembly. With the wait it reports nothing.
func TestRaceDetectorSeesAMissingWait(t *testing.T) {
	if os.Getenv(racyCase) != "" {
		t.Skip("this is the child")
	}
	for _, c := range []struct {
		name string
		race bool
	}{{"copy,no wait", true}, {"copy,wait", false}, {"op,no wait", true}, {"op,wait", false}} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestTwoStreams$", "-test.count=1")
		cmd.Env = append(os.Environ(), racyCase+"="+c.name)
		out, err := cmd.CombinedOutput()
		seen := strings.Contains(string(out), "WARNING: DATA RACE")
		if seen != c.race || (err != nil) != c.race {
			t.Errorf("%s: data race reported: %v, want %v (%v)\n%s", c.name, seen, c.race, err, out)
		}
	}
}

// TestTwoStreams is the program of the child processes: stream b reads what stream a wrote, with
// or without waiting for it.
func TestTwoStreams(t *testing.T) {
	name := os.Getenv(racyCase)
	if name == "" {
		t.Skip("runs as a child of TestRaceDetectorSeesAMissingWait")
	}
	d := newDevice(t, Options{Threads: 2})
	a, b, e := newStream(t, d, "a"), newStream(t, d, "b"), newEvent(t, d)
	m := alloc(t, d, 1024)
	x, y := m.Slice(0, 512).Tensor(device.F32, 0, 128), m.Slice(512, 512).Tensor(device.F32, 0, 128)
	// The locks of the streams' queues would order the two streams for the race detector. So stream
	// a's goroutine takes all its work before anything is enqueued on b, and holds it behind a
	// gate.
	holding, hold, begun, gate := make(chan struct{}), make(chan struct{}), make(chan struct{}), make(chan struct{})
	run(a, "hold", func(*stream) error { close(holding); <-hold; return nil })
	<-holding
	run(a, "gate", func(*stream) error { close(begun); <-gate; return nil })
	if strings.HasPrefix(name, "copy") {
		a.CopyH2D(x.Mem(), make([]byte, 512))
	} else {
		op.Do(d, a, op.Convert{Dst: x, Src: y, N: 128})
	}
	a.Record(e)
	close(hold)
	<-begun
	if strings.HasSuffix(name, ",wait") {
		b.Wait(e)
	}
	op.Do(d, b, op.AddBiasGrad{DB: y, DY: x, T: 1, N: 128})
	close(gate)
	for _, s := range []device.Stream{b, a} {
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}
