package cpu

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mt/device"
	"mt/device/conformance/operations"
	"mt/device/cpu/vec"
	"mt/device/op"
)

func newDevice(t *testing.T, o Options) device.Device {
	t.Helper()
	d, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Every number of threads gives correct results, with the same bits.
func TestOps(t *testing.T) {
	var first operations.Results
	counts := []int{1, 2, 3, 5}
	if raceEnabled {
		counts = []int{3} // because it is slow, and one run shows the detector everything
	}
	for _, threads := range counts {
		t.Run(fmt.Sprintf("threads=%d", threads), func(t *testing.T) {
			got := operations.Run(t, newDevice(t, Options{Threads: threads}))
			if first == nil {
				first = got
			}
			if !maps.Equal(got, first) {
				for name, h := range got {
					if h != first[name] {
						t.Errorf("%s: other bits than with 1 thread", name)
					}
				}
			}
		})
	}
}

// What the buffers hold when an operation begins does not matter.
func TestOpsWithPoisonedBuffers(t *testing.T) {
	if raceEnabled {
		t.Skip("slow, and about values")
	}
	for _, threads := range []int{1, 3} {
		d := newDevice(t, Options{Threads: threads})
		d.(*dev).scratch.poison = true
		operations.Run(t, d)
	}
}

// The slower levels are tested in processes of their own, because a level is chosen
// when a process starts.
func TestOpsAtEveryLevel(t *testing.T) {
	if os.Getenv(vec.LevelEnv) != "" {
		t.Skip("this is one of the processes")
	}
	if raceEnabled {
		t.Skip("slow, and the accesses announced are those of any level")
	}
	for _, level := range []string{vec.AVX2, vec.Generic} {
		t.Run(level, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOpsWithPoisonedBuffers$", "-test.count=1")
			cmd.Env = append(os.Environ(), vec.LevelEnv+"="+level)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNewAndClose$")
	cmd.Env = append(os.Environ(), vec.LevelEnv+"=sse9")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), `MT_CPU="sse9": want avx512, avx2, neon or generic`) {
		t.Errorf("a level that does not exist: %v\n%s", err, out)
	}
}

// Delays before every command do not change a bit.
func TestDelaysChangeNothing(t *testing.T) {
	run := func(delay func(string, int64) time.Duration) string {
		d := newDevice(t, Options{Delay: delay})
		up, compute, down := newStream(t, d, "up"), newStream(t, d, "compute"), newStream(t, d, "down")
		var there, back [4]device.Event
		host, out := make([]byte, 4*256), make([]byte, 4*256)
		for i := range host {
			host[i] = byte(i % 61)
		}
		m := alloc(t, d, 512)
		in, res := m.Slice(0, 256), m.Slice(256, 256)
		for i := range 4 {
			there[i], back[i] = newEvent(t, d), newEvent(t, d)
			if i > 0 {
				up.Wait(back[i-1])
			}
			up.CopyH2D(in, host[256*i:256*i+256])
			up.Record(there[i])
			compute.Wait(there[i])
			op.Do(d, compute, op.Convert{Dst: res.Tensor(device.BF16, 0, 64), Src: in.Tensor(device.F32, 0, 64), N: 64})
			compute.Record(there[i])
			down.Wait(there[i])
			down.CopyD2H(out[256*i:256*i+256], res)
			down.Record(back[i])
		}
		for _, s := range []device.Stream{up, compute, down} {
			if err := s.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		return string(out)
	}
	want := run(nil)
	for seed := range int64(5) {
		got := run(func(stream string, n int64) time.Duration {
			return time.Duration((int64(len(stream))*7+n*13+seed*31)%5) * 50 * time.Microsecond
		})
		if got != want {
			t.Errorf("seed %d: other bits", seed)
		}
	}
}
