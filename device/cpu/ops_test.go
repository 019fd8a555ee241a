package cpu

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"mt/device"
	"mt/device/conformance"
	"mt/device/cpu/vec"
	"mt/device/op"
	"mt/internal/testkit"
)

func newDevice(t *testing.T, o Options) device.Device {
	t.Helper()
	d := testkit.Must(New(o))(t)
	testkit.Close(t, d)
	return d
}

// TestOps: every operation passes its conformance cases, with the same bits for any number of
// threads and any old content of scratch memory.
func TestOps(t *testing.T) {
	var first conformance.Results
	ways := []struct {
		threads int
		poison  bool
		long    bool
	}{{threads: 1}, {threads: 3, poison: true}, {threads: 2, long: true}, {threads: 5, poison: true, long: true}, {threads: 1, poison: true, long: true}}
	if raceEnabled {
		ways = ways[1:2] // because it is slow, and one run shows the detector everything
	}
	want := func(string) bool { return true }
	for _, way := range ways {
		if testing.Short() {
			want = conformance.OneIn(11)
		}
		t.Run(fmt.Sprintf("threads=%d,poisoned=%t", way.threads, way.poison), func(t *testing.T) {
			if way.long {
				testkit.LongOnly(t)
			}
			d := newDevice(t, Options{Threads: way.threads})
			d.(*dev).scratch.poison = way.poison
			got := conformance.SomeOperations(t, d, want)
			if first == nil {
				first = got
			}
			for name, h := range got {
				if h != first[name] {
					t.Errorf("%s: other bits than with 1 thread", name)
				}
			}
		})
	}
}

// TestOpsOfALevel tests a few cases of each operation with slower kernels. TestOpsAtEveryLevel runs
// it in child processes, whose environment sets the instruction set.
func TestOpsOfALevel(t *testing.T) {
	if os.Getenv(vec.LevelEnv) == "" {
		t.Skipf("TestOps is run by the level that is chosen without %s", vec.LevelEnv)
	}
	d := newDevice(t, Options{Threads: 3})
	d.(*dev).scratch.poison = true
	conformance.SomeOperations(t, d, conformance.OneIn(7))
}

// TestOpsAtEveryLevel runs TestOpsOfALevel for each slower instruction set. It needs child
// processes, because a process chooses its instruction set at start. .ci/run runs all cases for
// each.
func TestOpsAtEveryLevel(t *testing.T) {
	if os.Getenv(vec.LevelEnv) != "" {
		t.Skip("this is one of the processes")
	}
	if raceEnabled {
		t.Skip("slow, and the accesses announced are those of any level")
	}
	testkit.NotShort(t)
	for _, level := range []string{vec.AVX2, vec.Generic} {
		t.Run(level, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestOpsOfALevel$", "-test.count=1")
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

// TestDelaysChangeNothing: delays before every command of three streams, which change the timing,
// do not change a bit of the result.
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
			testkit.NoError(t, s.Sync())
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
