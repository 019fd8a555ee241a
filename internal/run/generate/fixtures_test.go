package generate

import (
	"math"
	"path/filepath"
	"slices"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/device"
	"mt/device/cpu"
	"mt/device/cuda"
	"mt/host"
	"mt/internal/testkit"
	"mt/internal/testkit/reference"
)

// onGPU lists the recordings whose logits are also computed on an emulated GPU without long tests.
// They have dense blocks with capped attention scores, tied embeddings, experts, experts with
// latent attention, and experts with attention sinks.
var onGPU = []string{"gemma2-capped", "qwen2-tied", "qwen3moe-plain", "deepseekv3", "gptoss"}

// TestFixtureLogits: a recorded model's logits equal Transformers', on the CPU device after every token and on an
// emulated GPU after the last ones. Without long tests the GPU runs only the models in onGPU.
func TestFixtureLogits(t *testing.T) {
	for _, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if filepath.Base(dir) != "gemma2-capped" {
				testkit.NotShort(t)
			}
			f := testkit.Must(reference.LoadFixture(dir))(t)
			t.Run("cpu", func(t *testing.T) {
				dev := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
				for row := range 2 {
					together := 1
					if n := len(f.Rows[row].IDs); f.Config.Chooses(n) {
						together = n // among equal scores the choice depends on the number of keys, so only whole rows compare
					}
					compareLogits(t, dev, f, row, together)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			})
			t.Run("cuda", func(t *testing.T) {
				if testkit.NotShort(t); !slices.Contains(onGPU, filepath.Base(dir)) {
					testkit.LongOnly(t)
				}
				dev := openGPU(t)
				for row := range f.Logits {
					together := max(1, len(f.Rows[row].IDs)-2)
					if n := len(f.Rows[row].IDs); f.Config.Chooses(n) {
						together = n
					}
					compareLogits(t, dev, f, row, together)
				}
				if err := dev.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// openGPU returns an emulated GPU, which is closed at the end of the test.
func openGPU(t *testing.T) device.Device {
	t.Helper()
	drv := emu.New(emu.Options{Threads: 1})
	c := testkit.Must(cudart.New(drv))(t)
	dev := testkit.Must(cuda.New(cuda.Options{CUDA: c}))(t)
	testkit.Close(t, drv)
	return dev
}

// compareLogits runs a recorded row through decode and compares the logits with the recorded ones.
func compareLogits(t *testing.T, dev device.Device, f *reference.Fixture, row, together int) {
	t.Helper()
	ids, recorded := f.Rows[row].IDs, f.Logits[row]
	var largest float64
	for _, v := range recorded {
		largest = max(largest, math.Abs(v))
	}
	decode(t, dev, f, ids, together, func(to int, got []float32) {
		for i, want := range recorded[(to-1)*len(got) : to*len(got)] {
			// Both sides compute in fp32. Each rounds some tens of times, by 6e-8 relative, over
			// three or four layers. Each also rotates by angles of up to a hundred turns. 1e-5 of
			// the largest logit leaves room for both.
			if diff := math.Abs(float64(got[i]) - want); !(diff <= 1e-5*largest) {
				t.Fatalf("logit %d after %d tokens is %v, recorded %v", i, to, got[i], want)
			}
		}
	})
}

// decode runs tokens through a decoder: the first ones, as many as together says, at once, and the others one by one. It
// calls then with the logits after the first `to` tokens.
func decode(t *testing.T, dev device.Device, f *reference.Fixture, ids []int32, together int, then func(to int, logits []float32)) {
	t.Helper()
	layouts := f.Config.Layouts(false)
	store := testkit.Must(host.NewStore(layouts, nil, nil))(t)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, l := range store.Layers {
		for i, tl := range l.Layout.Tensors {
			for _, p := range tl.Stored {
				if !tl.Ref {
					l.WriteRows(i, p.Row, p.Rows, narrow(f.Weights[p.Name]))
				}
			}
		}
	}
	d := testkit.Must(newDecoder(Options{Device: dev, Store: store, Config: f.Config, Act: device.F32, Layout: layouts}, len(ids)))(t)
	defer d.close()
	for from, to := 0, together; from < len(ids); from, to = to, to+1 {
		then(to, testkit.Must(d.forward(ids[from:to]))(t))
	}
}

// TestChosenKeysOnGPU: with a prompt longer than index_topk, an emulated GPU and the CPU device give the same logits after
// every token, within the bound of compareLogits.
func TestChosenKeysOnGPU(t *testing.T) {
	testkit.NotShort(t)
	f := testkit.Must(reference.LoadFixture("../testdata/recordings/deepseekv32-chosen"))(t)
	ids := f.Rows[0].IDs
	prompt := f.Config.MLA.Indexer.TopK + 2
	if prompt >= len(ids) {
		t.Fatalf("the first row has %d tokens, the prompt %d", len(ids), prompt)
	}
	want := map[int][]float32{}
	onCPU := testkit.Must(cpu.New(cpu.Options{Threads: 1}))(t)
	decode(t, onCPU, f, ids, prompt, func(to int, logits []float32) { want[to] = slices.Clone(logits) })
	testkit.NoError(t, onCPU.Close())
	onGPU := openGPU(t)
	decode(t, onGPU, f, ids, prompt, func(to int, logits []float32) {
		var largest float64
		for _, x := range want[to] {
			largest = max(largest, math.Abs(float64(x)))
		}
		for i, x := range want[to] {
			if diff := math.Abs(float64(logits[i] - x)); !(diff <= 1e-5*largest) {
				t.Fatalf("logit %d after %d tokens is %v, on the CPU %v", i, to, logits[i], x)
			}
		}
	})
	testkit.NoError(t, onGPU.Close())
}

func narrow(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}
