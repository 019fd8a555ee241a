package open

import (
	"errors"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"

	"mt/base/cluster"
	"mt/device"
	"mt/internal/run/config"
	"mt/internal/run/ranks"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// TestRatesOfGivenCards: if a GPU given by --gpu lacks a rate for the compute dtype, the error
// names this flag. --gpu and the key device_rates exclude each other.
func TestRatesOfGivenCards(t *testing.T) {
	m := &rates.Machine{More: make([]rates.Card, 1)}
	for key, says := range map[string]string{"auto": "--gpu: no rate of products in bf16", "h100": "leave out one of the two"} {
		j := &choosing{opening: &opening{Inputs: Inputs{Config: config.Default(), Lanes: 2}}}
		j.Config.ComputeDType, j.Config.DeviceRates = "bf16", key
		if err := j.weighDevices(m); !config.IsUsage(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("device_rates: %s: %v, want %s", key, err, says)
		}
	}
}

// named is a device with only a name.
type named struct {
	device.Device
	name string
}

func (n named) Name() string { return n.name }

// TestRatesByName: GPUs with different names get work in proportion to the rates in their profiles.
// If mt has no profile of one of them, or if all are alike, they count as equally fast.
func TestRatesByName(t *testing.T) {
	for _, tc := range []struct {
		names []string
		ratio float64 // of the first to the second; 0: they count as alike
		notes string
	}{
		{[]string{"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3090"}, 149.0 / 64, "the table of layers"},
		{[]string{"NVIDIA GeForce RTX 4090", "NVIDIA Q1"}, 0, "device_rates says"},
		{[]string{"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"}, 0, ""},
	} {
		j := &choosing{opening: &opening{Inputs: Inputs{Config: config.Default(), Lanes: 2}}}
		j.Config.ComputeDType = "bf16"
		for _, n := range tc.names {
			j.Devices = append(j.Devices, named{name: n})
		}
		testkit.NoError(t, j.weighDevices(nil))
		ratio := 0.0
		if len(j.Paces) == 2 {
			ratio = j.Paces[0].FLOPs / j.Paces[1].FLOPs
		}
		if math.Abs(ratio-tc.ratio) > 0.1 || !strings.Contains(strings.Join(j.Notes, "\n"), tc.notes) || (len(j.Notes) > 0) != j.DevicesDiffer {
			t.Errorf("%v: the first is %g times as fast as the second, want %g; %v", tc.names, ratio, tc.ratio, j.Notes)
		}
	}
}

// TestOneMemoryOfAProfile: a plan for the profile of an integrated GPU has one memory budget for
// host and device.
func TestOneMemoryOfAProfile(t *testing.T) {
	for name, integrated := range map[string]bool{"gb10": true, "gh200": false} {
		m := testkit.Must(rates.Find(name))(t)
		want := int64(m.Host.Memory * (1 << 30))
		if integrated {
			want = want / 100 * onePart
		}
		j := &choosing{opening: &opening{Inputs: Inputs{Config: &config.Config{}}}}
		if err := j.takeProfile(m); err != nil || j.Integrated != integrated || int64(j.Config.HostMemory) != want {
			t.Errorf("%s: integrated %t, %d bytes, want %d: %v", name, j.Integrated, j.Config.HostMemory, want, err)
		}
	}
}

// TestCompareTokensOfNone: models without a tokenizer are compared without a note.
func TestCompareTokensOfNone(t *testing.T) {
	j := &opening{}
	if j.compareTokens(&Model{}); len(j.Notes) > 0 {
		t.Errorf("notes %v", j.Notes)
	}
}

// TestFullCacheDisk: if the disk of the token cache is full, the error names the key cache_dir,
// which moves the cache.
func TestFullCacheDisk(t *testing.T) {
	j := &opening{Inputs: Inputs{Config: parsed(t, "")}}
	err := j.dataError("eval_dataset", &os.PathError{Op: "write", Path: "/cache/x.part", Err: syscall.ENOSPC})
	refused(t, err, false, "eval_dataset: token cache: write /cache/x.part: no space left on device: ", "set cache_dir to a folder on another disk")
}

// crowd stands for a World of several ranks; only its size is used.
type crowd struct{ cluster.World }

func (crowd) Size() int { return 3 }

// TestTimedRefused: matmul: timed is refused for several ranks and for devices of different kinds,
// since each would choose algorithms by its own times.
func TestTimedRefused(t *testing.T) {
	c := parsed(t, "device: cuda\nmatmul: timed\n")
	together := &choosing{opening: &opening{Inputs: Inputs{Config: c, Ranks: &ranks.Group{World: crowd{}}}}}
	refused(t, together.timeProducts(nil), true, "run.yaml", "matmul: timed", "3 ranks")
	alike := &choosing{opening: &opening{Inputs: Inputs{Config: c, Ranks: ranks.Alone(t.Context()), Devices: []device.Device{named{name: "a"}, named{name: "a"}}}}}
	differ := &choosing{opening: &opening{Inputs: Inputs{Config: c, Ranks: ranks.Alone(t.Context()), Devices: []device.Device{named{name: "a"}, named{name: "b"}}}}}
	refused(t, differ.checkTimed(), true, "run.yaml", "matmul: timed", "the devices differ")
	if err := alike.checkTimed(); err != nil {
		t.Error(err)
	}
	c.MatMul = "heuristic"
	for _, j := range []*choosing{together, differ} {
		if err := errors.Join(j.timeProducts(nil), j.checkTimed()); err != nil {
			t.Error(err)
		}
	}
}

// parsed returns a configuration with the keys extra.
func parsed(t *testing.T, extra string) *config.Config {
	t.Helper()
	c := testkit.Must(config.Parse("run.yaml", []byte("model: tiny\ndataset: x\n"+extra), config.Args{}))(t)
	return c
}

// refused fails unless err contains every text in want, and is a UsageError exactly if usage is
// true.
func refused(t *testing.T, err error, usage bool, want ...string) {
	t.Helper()
	if err == nil || config.IsUsage(err) != usage {
		t.Fatalf("%v, want a usage error: %t", err, usage)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}

// TestRatesOfOneDevice: one device has the rates of device_rates or of its profile. Rates of several devices, and a name
// that nobody knows, leave it without, and are no error.
func TestRatesOfOneDevice(t *testing.T) {
	for _, tc := range []struct {
		key, name string
		flops     float64 // TFLOP/s; 0: unknown
	}{
		{"auto", "NVIDIA GeForce RTX 4090", 149},
		{"rtx-3090", "NVIDIA GeForce RTX 4090", 64},
		{"rtx-4090,rtx-3090", "NVIDIA GeForce RTX 3090", 64},
		{"gone.json", "NVIDIA Q1", 0},
	} {
		j := &choosing{opening: &opening{Inputs: Inputs{Config: config.Default(), Lanes: 1, Devices: []device.Device{named{name: tc.name}}}}}
		j.Config.ComputeDType, j.Config.DeviceRates = "bf16", tc.key
		testkit.NoError(t, j.weighDevices(nil))
		flops := 0.0
		if len(j.Paces) == 1 {
			flops = j.Paces[0].FLOPs / 1e12
		}
		if math.Abs(flops-tc.flops) > 10 || j.DevicesDiffer {
			t.Errorf("device_rates %s on %s: %g TFLOP/s, want %g", tc.key, tc.name, flops, tc.flops)
		}
	}
}
