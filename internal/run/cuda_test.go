package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/cudart"
	"mt/cudart/emu"
	"mt/internal/run/generate"
	"mt/internal/run/predict"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// emulate starts an emulated GPU for one test. Wrong calls of the run, or memory that is not freed, fail the test. Under
// the race detector, which makes the emulator ten times slower, one test in four goes on.
func emulate(t *testing.T, o emu.Options) *emu.Driver {
	t.Helper()
	testkit.DrawnInRace(t, 4)
	drv := emu.New(o)
	testkit.Close(t, drv)
	return drv
}

// noCUDA returns the result of a search that finds none of CUDA's libraries, even if this machine
// has them.
func noCUDA() cudart.Found {
	return cudart.Find(cudart.Env{Getenv: func(string) string { return "" }, Root: "/nowhere",
		Load: func(file string) (uintptr, error) {
			return 0, fmt.Errorf("%s: cannot open shared object file: No such file or directory", file)
		},
		Symbol: func(uintptr, string) uintptr { return 0 }})
}

// lossesOf returns the losses in metrics.jsonl of the output directory out.
func lossesOf(t *testing.T, out string) []float64 {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(out, settings.MetricsFile)))(t)
	var losses []float64
	for line := range bytes.Lines(raw) {
		var m struct{ Loss *float64 }
		testkit.NoError(t, json.Unmarshal(line, &m))
		if m.Loss != nil {
			losses = append(losses, *m.Loss)
		}
	}
	return losses
}

// TestCUDAFollowsTheCPU: a run on an emulated GPU has the losses of the same run on the CPU, within
// bounds. In fp32 both devices add the same terms in different orders. The loss of a token then
// differs by a few units of 2^-24, and the mean over the batch by less than one. The bound 2^-19
// leaves room for eight updates. In bf16 every activation is rounded by up to 2^-9 in either
// direction, so the mean stays within one such rounding.
func TestCUDAFollowsTheCPU(t *testing.T) {
	testkit.NotShort(t)
	cpu := newScene(t, "device: cpu\ncompute_dtype: fp32\nval_size: 2\neval_steps: 4\n")
	cpu.mustTrain(t)
	want := lossesOf(t, cpu.out)
	for _, tc := range []struct {
		extra string
		bound float64
	}{
		{"compute_dtype: fp32\n", 1.0 / (1 << 19)},
		{"compute_dtype: fp32\npipeline: {micro_batch_tokens: 10, weight_slots: 1, grad_buffers: 1, activation_slots: 3}\nrecompute: full\n", 1.0 / (1 << 19)},
		{"", 1.0 / (1 << 9)},
	} {
		s := cpu.in(t).with("device: cuda\ncompute_dtype: auto\n").with(tc.extra)
		drv := emulate(t, emu.Options{Mode: emu.Random, Seed: 3})
		out, err := s.train(t, t.Context(), settings.Hooks{Symbols: drv})
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := lossesOf(t, s.out)
		if len(got) != len(want) {
			t.Fatalf("%q: %d losses, want %d", tc.extra, len(got), len(want))
		}
		for i := range got {
			if d := math.Abs(got[i]-want[i]) / want[i]; !(d <= tc.bound) {
				t.Errorf("%q: step %d: loss %v on the GPU, %v on the CPU", tc.extra, i+1, got[i], want[i])
			}
		}
		c := s.config(t)
		if c.Device != "cuda" {
			t.Fatalf("device %q", c.Device)
		}
		raw, err := os.ReadFile(filepath.Join(s.out, settings.ConfigFile))
		testkit.NoError(t, err)
		dtype := "bf16"
		if tc.extra != "" {
			dtype = "fp32"
		}
		for _, want := range []string{"device: cuda", "binding: copy", "compute_dtype: " + dtype} {
			if !strings.Contains(string(raw), want) {
				t.Errorf("%q is not in config.yaml:\n%s", want, raw)
			}
		}
	}
}

// TestWidestHeadsOnCUDA trains a model with full attention over heads of 512 elements beside narrow windowed ones, over
// several documents a row. The bounds are those of TestCUDAFollowsTheCPU.
func TestWidestHeadsOnCUDA(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs shorter trainings on the GPU")
	}
	cpu := newScene(t, `device: cpu
compute_dtype: fp32
packing: true
max_seq_len: 30
max_steps: 3
model:
  model_type: gemma4_text
  hidden_size: 16
  intermediate_size: 24
  num_hidden_layers: 2
  layer_types: [sliding_attention, full_attention]
  sliding_window: 5
  num_attention_heads: 2
  num_key_value_heads: 1
  head_dim: 16
  global_head_dim: 512
  num_global_key_value_heads: 1
  attention_k_eq_v: true
  hidden_size_per_layer_input: 0
  vocab_size: 48
  max_position_embeddings: 32
  initializer_range: 0.1
`)
	cpu.mustTrain(t)
	want := lossesOf(t, cpu.out)
	for dtype, bound := range map[string]float64{"fp32": 1.0 / (1 << 19), "bf16": 1.0 / (1 << 9)} {
		t.Run(dtype, func(t *testing.T) {
			if dtype == "fp32" { // the operations' tests run these kernels
				testkit.LongOnly(t)
			}
			s := cpu.in(t).with("device: cuda\ncompute_dtype: " + dtype + "\n")
			if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{})}); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			got := lossesOf(t, s.out)
			if len(got) != 3 || len(want) != 3 {
				t.Fatalf("losses %v on the GPU, %v on the CPU, want 3", got, want)
			}
			for i := range got {
				if d := math.Abs(got[i]-want[i]) / want[i]; !(d <= bound) {
					t.Errorf("step %d: loss %v on the GPU, %v on the CPU", i+1, got[i], want[i])
				}
			}
		})
	}
}

// TestCUDADepthsChangeNothing: neither the order in which the streams' work runs nor the smallest
// depths change a bit of the result.
func TestCUDADepthsChangeNothing(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, and about values")
	}
	for _, dtype := range []string{"bf16", "fp32"}[:testkit.Count(t, 2, 1)] {
		want := newScene(t, "device: cuda\ncompute_dtype: "+dtype+"\nmax_steps: 4\nsave_steps: 2\n")
		if out, err := want.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{})}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for seed, o := range []emu.Options{{Mode: emu.Lazy, Threads: 1}, {Mode: emu.Random, Seed: 7}, {Mode: emu.Random, Seed: 8, RegisterLimit: 3000}} {
			got := want.in(t)
			if seed == 0 {
				got = got.with("pipeline: {weight_slots: 1, grad_buffers: 1, activation_slots: 3, batches_ahead: 1}\n")
			}
			if out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, o)}); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			sameRun(t, got, want)
		}
	}
}

// TestCUDAEvalAndGenerate: a trained model gives the same evaluation within bounds, and the same
// continuation of a prompt, on a GPU as on the CPU.
func TestCUDAEvalAndGenerate(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cpu\nmax_steps: 2\n")
	s.yaml = strings.Replace(s.yaml, "vocab_size: 48", "vocab_size: 256", 1) // of bytes
	s.mustTrain(t)
	eval := func(device string) EvalResult {
		var out bytes.Buffer
		c := s.with("model: " + s.out + "\ndevice: " + device + "\ncompute_dtype: fp32\n").config(t)
		r, err := Eval(t.Context(), EvalOptions{Options: settings.Options{Stdout: &out, Stderr: &out, Hooks: settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true})}}, Config: c})
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		return r
	}
	continued := func(device string) string {
		var out, log bytes.Buffer
		c := s.with("model: " + s.out + "\ndevice: " + device + "\ncompute_dtype: fp32\n").config(t)
		err := generate.Text(t.Context(), generate.TextOptions{Options: settings.Options{Stdout: &out, Stderr: &log, Hooks: settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true})}},
			Config: c, Prompt: "\x01\x02\x03", MaxNewTokens: 8, TopP: 1})
		if err != nil {
			t.Fatalf("%v\n%s", err, log.String())
		}
		return out.String()
	}
	if a, b := continued("cpu"), continued("cuda"); a != b || len(a) < 4 {
		t.Errorf("continued with %q on the CPU, with %q on the GPU", a, b)
	}
	cpu, gpu := eval("cpu"), eval("cuda")
	if !testkit.Race { // as in TestInPlaceSameBits
		const inPlace = "cuda\nbinding: unified"
		if a, b := continued("cuda"), continued(inPlace); a != b {
			t.Errorf("continued with %q, in place with %q", a, b)
		}
		if bound := eval(inPlace); bound.Loss != gpu.Loss || bound.Tokens != gpu.Tokens {
			t.Errorf("%+v on the GPU, %+v in place", gpu, bound)
		}
	}
	if cpu.Tokens != gpu.Tokens || math.Abs(cpu.Loss-gpu.Loss) > cpu.Loss/(1<<19) { // as in training
		t.Errorf("%+v on the CPU, %+v on the GPU", cpu, gpu)
	}
}

// TestDeviceChoice: device auto uses a GPU that works, and otherwise says why it does not. If the
// GPU of device cuda does not work, the run ends before it reads any data.
func TestDeviceChoice(t *testing.T) {
	testkit.NotShort(t)
	for name, tc := range map[string]struct {
		emu     *emu.Options // nil: no libraries
		extra   string
		usage   bool
		says    []string
		planned string
	}{
		"auto":               {emu: &emu.Options{}, extra: "device: auto\n", planned: "cuda bf16 copy"},
		"auto nothing":       {extra: "device: auto\n", planned: "cpu fp32 unified", says: []string{"note: no NVIDIA GPU here: computing on the CPU\n"}},
		"auto driver no GPU": {emu: &emu.Options{NoDevice: true}, extra: "device: auto\n", planned: "cpu fp32 unified", says: []string{"no NVIDIA GPU"}},
		"cuda nothing":       {extra: "device: cuda\n", usage: true, says: []string{"run.yaml", "device: cuda: find CUDA: libcuda.so not found, looked in ", "install the NVIDIA driver", "libcudart.so not found", "pip install"}},
		"cuda no GPU":        {emu: &emu.Options{NoDevice: true}, extra: "device: cuda\n", usage: true, says: []string{"device: cuda: "}},
		"cuda old GPU":       {emu: &emu.Options{ComputeCapability: 75}, extra: "device: cuda\n", usage: true, says: []string{"compute capability 7.5"}},
		"cuda old driver":    {emu: &emu.Options{DriverVersion: 11080, RuntimeVersion: 11080}, extra: "device: cuda\n", usage: true, says: []string{"CUDA 11.8", "525"}},
		"cuda unified":       {emu: &emu.Options{}, extra: "device: cuda\nbinding: unified\n", usage: true, says: []string{"binding: unified"}},
		"cuda small budget":  {emu: &emu.Options{}, extra: "device: cuda\ndevice_memory: 100MiB\n", usage: true, says: []string{"context wants"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := settings.Hooks{Reading: func(string) {
				if tc.usage {
					t.Error("data is read")
				}
			}}
			if tc.emu != nil {
				h.Symbols = emulate(t, *tc.emu)
			}
			var planned string
			h.Planned = func(run any) {
				j := run.(*save.Output)
				planned = j.Config.Device + " " + j.Config.ComputeDType + " " + j.Config.Binding
			}
			stop, cancel := context.WithCancel(t.Context())
			h.Allocating = cancel
			s := newScene(t, "max_steps: 1\n"+tc.extra)
			out, err := s.train(t, stop, h)
			if tc.usage {
				checkError(t, err, true, tc.says...)
				return
			}
			if planned != tc.planned {
				t.Errorf("planned for %q, want %q (%v)\n%s", planned, tc.planned, err, out)
			}
			for _, want := range tc.says {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not said:\n%s", want, out)
				}
			}
		})
	}
}

// TestPlanOnPaper: a plan for a GPU needs no GPU if device_memory gives the size of its memory.
func TestPlanOnPaper(t *testing.T) {
	var out bytes.Buffer
	s := newScene(t, "device: cuda\ndevice_memory: 2GiB\n")
	testkit.NoError(t, predict.Plan(t.Context(), s.config(t), settings.Options{Stdout: &out, Stderr: &out}))
	for _, want := range []string{"no GPU to ask: the plan is for one of 2", "512 MiB", "context", "compute bf16"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not said:\n%s", want, out.String())
		}
	}
	err := predict.Plan(t.Context(), newScene(t, "device: cuda\n").config(t), settings.Options{Stdout: &out, Stderr: &out})
	checkError(t, err, true, "run.yaml", "device: cuda: ", "and with device_memory the plan can be made")
}

// TestCUDABudget: the memory budget includes the CUDA context, and a run allocates exactly as much
// as its plan says.
func TestCUDABudget(t *testing.T) {
	testkit.NotShort(t)
	drv := emulate(t, emu.Options{})
	var planned int64
	h := settings.Hooks{Symbols: drv, Planned: func(run any) {
		j := run.(*save.Output)
		if planned = j.Plan.Table().Device; j.Plan.Context == 0 || planned > 1<<30 {
			t.Errorf("the plan takes %d bytes, %d of them for the context", planned, j.Plan.Context)
		}
	}}
	s := newScene(t, "device: cuda\ndevice_memory: 1GiB\nmax_steps: 1\n")
	if out, err := s.train(t, t.Context(), h); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestCUDAStaging: if the system refuses to pin host memory, a run works through staging buffers
// and says so once.
func TestCUDAStaging(t *testing.T) {
	testkit.NotShort(t)
	drv := emulate(t, emu.Options{RefuseRegister: 801})
	s := newScene(t, "device: cuda\nmax_steps: 2\n")
	out, err := s.train(t, t.Context(), settings.Hooks{Symbols: drv})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(out, "note: the system does not pin "); n != 1 {
		t.Errorf("it is said %d times:\n%s", n, out)
	}
	if n := drv.PageableCopies(); n != 0 {
		t.Errorf("%d copies were left to the driver to stage", n)
	}
}

// TestCUDADamagedRecord: if the recorded choice of matrix-product kernels cannot be read, a run
// ends with an error before its first step.
func TestCUDADamagedRecord(t *testing.T) {
	testkit.NotShort(t)
	s := newScene(t, "device: cuda\nmax_steps: 2\n")
	if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{}), Stepped: func(int) {}}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	name := filepath.Join(s.out, settings.AlgorithmsFile)
	for _, damaged := range []string{"{", `{"a": 1}`} {
		write(t, name, damaged)
		steps := 0
		_, err := s.with("max_steps: 3\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{}), Stepped: func(int) { steps++ }})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "; remove it") || steps > 0 {
			t.Errorf("%s: after %d steps: %v", damaged, steps, err)
		}
	}
	write(t, name, "null")
	if out, err := s.with("max_steps: 3\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{})}); err != nil {
		t.Errorf("null: %v\n%s", err, out)
	}
}

// TestCUDAEveryCallFails: if one call of the driver fails, the run ends with that call's error and frees everything.
// The test tries the first call of each function, the last and one between. Without long tests it tries one call of
// some drawn functions.
func TestCUDAEveryCallFails(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector; device/cuda does the same there with fewer calls")
	}
	whole := newScene(t, "device: cuda\nmax_steps: 2\nval_size: 2\nsave_steps: 1\n")
	train := func(s scene, o emu.Options) (*emu.Driver, error) {
		drv := emu.New(o)
		_, err := s.train(t, t.Context(), settings.Hooks{Symbols: drv})
		if closing := drv.Close(); closing != nil {
			t.Errorf("call %d (%s) failed with %v: %v", o.FailCall, drv.CallName(o.FailCall), err, closing)
		}
		return drv, err
	}
	drv := testkit.Must(train(whole, emu.Options{Threads: 1}))(t)
	calls := map[string][]int{}
	for i := 1; i <= drv.Calls(); i++ {
		if name := drv.CallName(i); !strings.HasPrefix(name, "nvml") { // figures that a run does without
			calls[name] = append(calls[name], i)
		}
	}
	names, r := slices.Sorted(maps.Keys(calls)), draws(t)
	tried := sample(t, len(names), 8)
	for _, n := range tried {
		at := calls[names[n-1]]
		some := []int{at[0], at[len(at)/2], at[len(at)-1]}
		if len(tried) < len(names) {
			some = []int{some[r.IntN(3)]}
		}
		for _, i := range slices.Compact(some) {
			drv, err := train(whole.in(t), emu.Options{Threads: 1, FailCall: i, Mode: emu.Random, Seed: uint64(i)})
			// The order of a run's calls depends on how goroutines are scheduled, and so does the
			// number of calls for events. The driver therefore says which function call i was in
			// this run; "": there was no call i.
			failed := drv.CallName(i)
			if failed != "" && (err == nil || !strings.Contains(err.Error(), failed+": ") && !strings.HasPrefix(failed, "nvml")) {
				t.Errorf("call %d (%s) failed: error %v", i, failed, err)
			}
		}
	}
	checkClean(t)
}

// TestCUDALostDevice: if the GPU is lost during a run, the run ends with an error that says so. The last checkpoint
// remains, and resuming it gives the same end. Without long tests one way to lose the GPU is drawn.
func TestCUDALostDevice(t *testing.T) {
	testkit.NotShort(t)
	want := newScene(t, "device: cuda\nmax_steps: 4\nsave_steps: 2\n")
	drv := emulate(t, emu.Options{Threads: 1})
	calls := 0 // before step 4
	h := settings.Hooks{Symbols: drv, Stepped: func(step int) {
		if step == 3 {
			calls = drv.Calls()
		}
	}}
	if out, err := want.train(t, t.Context(), h); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	codes := []int{719, 700, 999}
	for _, n := range sample(t, len(codes), 1) {
		code, got := codes[n-1], want.in(t)
		lost := emu.New(emu.Options{Threads: 1, LoseDeviceAt: calls, LostCode: code})
		_, err := got.train(t, t.Context(), settings.Hooks{Symbols: lost})
		if !errors.Is(err, cudart.ErrContextLost) {
			t.Errorf("code %d: the run ended with %v", code, err)
		}
		if err := lost.Close(); err != nil {
			t.Errorf("code %d: %v", code, err)
		}
		out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{})})
		if err != nil || !strings.Contains(out, "resuming from ") {
			t.Fatalf("code %d: %v\n%s", code, err, out)
		}
		sameRun(t, got, want)
	}
}
