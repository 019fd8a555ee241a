package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// newWideScene returns a bf16 run on an emulated GPU. The model's attention head has 64 elements, a
// size for which all kinds of kernels exist. Rows of up to 100 tokens are longer than a tile of one
// kind of kernels and shorter than a tile of the other, so their sums differ.
func newWideScene(t *testing.T, extra string) scene {
	t.Helper()
	rows := writeRows(t, t.TempDir(), 6, 100, 48)
	return newScene(t, `device: cuda
dataset: `+rows+`
max_seq_len: 100
max_steps: 4
save_steps: 2
model:
  hidden_size: 64
  intermediate_size: 24
  num_hidden_layers: 1
  num_attention_heads: 1
  num_key_value_heads: 1
  head_dim: 64
  vocab_size: 48
  max_position_embeddings: 128
  initializer_range: 0.5
`+extra)
}

// stopAfter trains on an emulated GPU with the options o and cancels the run when the step numbered
// last is done.
func (s scene) stopAfter(t *testing.T, last int, o emu.Options) {
	t.Helper()
	stop, cancel := context.WithCancel(t.Context())
	if _, err := s.train(t, stop, settings.Hooks{Symbols: emulate(t, o), Stepped: func(step int) {
		if step == last {
			cancel()
		}
	}}); err == nil {
		t.Fatal("the run was not stopped")
	}
}

// TestAttentionKernelsAreKept: a run uses the attention kernels for sm_90a on a GPU that has them,
// and records its kernels in config.yaml. A resumed run keeps the recorded kernels, even if mt
// would now choose others. If the GPU or its driver cannot run them, the run ends with an error.
func TestAttentionKernelsAreKept(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs shorter trainings on the GPU")
	}
	hopper, ada := emu.Options{Threads: 1}, emu.Options{Threads: 1, ComputeCapability: 89}
	newest := newWideScene(t, "")
	portable := newest.in(t).with("attention_kernels: portable\n")
	for _, c := range []struct {
		scene
		gpu      emu.Options
		recorded string
	}{{newest, hopper, "sm90a_fused"}, {portable, hopper, "portable"}, {newest.in(t), ada, "fused"}} {
		if out, err := c.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, c.gpu)}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		raw, err := os.ReadFile(filepath.Join(c.out, settings.ConfigFile))
		if err != nil || !strings.Contains(string(raw), "attention_kernels: "+c.recorded+"\n") {
			t.Errorf("config.yaml, %v, does not say %s:\n%s", err, c.recorded, raw)
		}
	}
	if a, b := strings.Join(newest.metrics(t, timedKeys...), ""), strings.Join(portable.metrics(t, timedKeys...), ""); a == b {
		t.Error("both kernels give the same bits, so the rest shows nothing")
	}

	got := newest.in(t)
	got.stopAfter(t, 2, hopper)
	if out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, ada)}); err == nil || !strings.Contains(err.Error(), "does not run kernels for sm_90a") {
		t.Errorf("on a GPU that lacks them: %v\n%s", err, out)
	}
	unsafe := emu.Options{Threads: 1, DriverVersion: 12020}
	if out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, unsafe)}); err == nil || !strings.Contains(err.Error(), "update it to one for CUDA 12.4 (550) or newer") {
		t.Errorf("with a driver that does not compile them safely: %v\n%s", err, out)
	}
	if out, err := got.with("attention_kernels: portable\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, hopper)}); err == nil || !strings.Contains(err.Error(), "attention_kernels was sm90a_fused, is portable") {
		t.Errorf("with other kernels in the same directory: %v\n%s", err, out)
	}
	branch := got.in(t).with("attention_kernels: portable\nresume_from_checkpoint: " + filepath.Join(got.out, "checkpoint-2") + "\n")
	if out, err := branch.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, ada)}); err != nil {
		t.Errorf("with other kernels in another directory: %v\n%s", err, out)
	}
	if out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, hopper)}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, newest)

	older := newest.in(t).with("attention_kernels: sm90a\n")
	older.stopAfter(t, 2, hopper)
	if out, err := older.with("attention_kernels: auto\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, hopper)}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	raw, err := os.ReadFile(filepath.Join(older.out, settings.ConfigFile))
	if err != nil || !strings.Contains(string(raw), "attention_kernels: sm90a\n") {
		t.Errorf("config.yaml of a run that began with sm90a, %v:\n%s", err, raw)
	}

	got = portable.in(t)
	got.stopAfter(t, 2, hopper)
	if out, err := got.with("attention_kernels: auto\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, hopper)}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, portable)
}

// TestFusedAttentionIsKept: on a GPU without sm_90a a run uses the fused attention kernels, whose
// bits differ from the portable ones. A resumed run that began with portable kernels keeps them.
// Hidden states on the host or on the device give the same bits.
func TestFusedAttentionIsKept(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("slow under the race detector, which runs shorter trainings on the GPU")
	}
	ada := emu.Options{Threads: 2, ComputeCapability: 89}
	extra := "max_seq_len: 300\ndataset: " + writeRows(t, t.TempDir(), 4, 300, 48) + "\n"
	fused := newWideScene(t, "").with(extra)
	portable, host := fused.in(t).with("attention_kernels: portable\n"), fused.in(t).with("hidden_states: host\n")
	for _, s := range []scene{fused, portable, host} {
		if out, err := s.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, ada)}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if a, b := strings.Join(fused.metrics(t, timedKeys...), ""), strings.Join(portable.metrics(t, timedKeys...), ""); a == b {
		t.Error("both kernels give the same bits, so the rest shows nothing")
	}
	sameRun(t, host, fused)
	got := portable.in(t)
	got.stopAfter(t, 2, ada)
	if out, err := got.with("attention_kernels: auto\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, ada)}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, portable)
}

// TestAttentionKernelsOnTheCPU: on a CPU, attention_kernels: sm90a is an error, and auto works.
func TestAttentionKernelsOnTheCPU(t *testing.T) {
	s := newScene(t, "device: cpu\nmax_steps: 1\nattention_kernels: sm90a\n")
	if _, err := s.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "attention_kernels: sm90a: the CPU computes") {
		t.Errorf("sm90a: %v", err)
	}
	s.with("attention_kernels: auto\n").mustTrain(t)
}

// TestAttentionWords: a plan says which kernels compute attention, and why not the fastest ones.
func TestAttentionWords(t *testing.T) {
	testkit.NotShort(t)
	for _, c := range []struct {
		extra string
		gpu   emu.Options
		want  string
	}{
		{"", emu.Options{}, "attention by the kernels for sm_90a\n"},
		{"", emu.Options{DriverVersion: 12020}, "attention by the kernels for all GPUs, all gradients by one\n"},
		{"", emu.Options{DriverVersion: 12020}, "serves CUDA 12.2, whose compiler is not safe for kernels for sm_90a"},
		{"attention_kernels: portable\n", emu.Options{}, "attention by the kernels for all GPUs\n"},
		{"", emu.Options{ComputeCapability: 80}, "attention by the kernels for all GPUs, all gradients by one\n"},
		{"attention_kernels: fused\n", emu.Options{}, "attention by the kernels for all GPUs, all gradients by one\n"},
		{"compute_dtype: fp32\n", emu.Options{}, "attention with heads of 64 elements runs on the kernels for all GPUs, slower: those for sm_90a do not take fp32\n"},
	} {
		s := newWideScene(t, c.extra)
		var out strings.Builder
		testkit.NoError(t, predict.Plan(t.Context(), s.config(t), settings.Options{Stdout: &out, Stderr: &out, Hooks: settings.Hooks{Symbols: emulate(t, c.gpu)}}))
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%q on %+v: want %q in\n%s", c.extra, c.gpu, c.want, out.String())
		}
	}
}

// TestAttentionWordsOfChosenKeys: a plan of longer documents than an indexer chooses keys says that its kernels compute
// attention.
func TestAttentionWordsOfChosenKeys(t *testing.T) {
	testkit.NotShort(t)
	const words = "attention by the kernels for chosen keys\n"
	m, err := rates.Find("h200")
	testkit.NoError(t, err)
	for length, want := range map[int]bool{7: true, 6: false} { // index_topk is 6
		out, err := sketch(t, fmt.Sprintf("model_name_or_path: testdata/recordings/deepseekv32-chosen/model\nmax_seq_len: %d\n", length), settings.Options{Forecast: settings.Forecast{Machine: m}})
		if err != nil || strings.Contains(out, words) != want {
			t.Errorf("documents of %d tokens: %v, %q is wanted: %v\n%s", length, err, words, want, out)
		}
	}
}

// TestAttentionWordsOfAProfile: a plan for the profile of a GPU, which need not be in this machine,
// says which kernels compute attention on it.
func TestAttentionWordsOfAProfile(t *testing.T) {
	testkit.NotShort(t)
	for gpu, want := range map[string]string{"h200": "attention by the kernels for sm_90a\n", "gh200": "attention by the kernels for sm_90a\n",
		"rtx-3080": "attention by the kernels for all GPUs, all gradients by one\n", "b200": "attention by the kernels for all GPUs, all gradients by one\n"} {
		m, err := rates.Find(gpu)
		testkit.NoError(t, err)
		out, err := sketch(t, "model: {preset: qwen2.5-0.5b, num_hidden_layers: 2}\n", settings.Options{Forecast: settings.Forecast{Machine: m}})
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want %q in\n%s", gpu, err, want, out)
		}
	}
}
