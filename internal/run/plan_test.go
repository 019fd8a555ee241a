package run

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/plan/rates"
)

// sketch returns the output of mt plan for a configuration.
func sketch(t *testing.T, yaml string, o settings.Options) (string, error) {
	t.Helper()
	c, err := config.Parse("run.yaml", []byte(yaml), config.Args{})
	testkit.NoError(t, err)
	var out bytes.Buffer
	o.Stdout, o.Stderr = &out, &out
	err = predict.Plan(t.Context(), c, o)
	return out.String(), err
}

// TestPlanNeedsNoData: a plan needs only a model and the two memory budgets. Keys that the plan
// does not use do not change it.
func TestPlanNeedsNoData(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const card = "model: qwen2.5-7b\ndevice_memory: 24GiB\nhost_memory: 128GiB\n"
	out, err := sketch(t, card, settings.Options{})
	testkit.NoError(t, err)
	for _, want := range []string{"7,615,616,512 parameters, rows of max_seq_len tokens: 2,048", "steps of 8 rows, compute bf16",
		"no GPU to ask: the plan is for one of 24 GiB, of which 512 MiB are taken to go to its context", "device  total", "disk  one checkpoint  85 GiB",
		"as many as the data has steps for", "disk  final model     14 GiB"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "at most") || strings.Contains(out, "free") {
		t.Errorf("the plan knows of a disk:\n%s", out)
	}
	h := settings.Hooks{Reading: func(what string) { t.Errorf("%s is read", what) }}
	done := filepath.Join(t.TempDir(), "out")
	write(t, filepath.Join(done, "checkpoint-5", "manifest.json"), "damaged")
	again, err := sketch(t, card+"dataset: /nope.jsonl\neval_dataset: /nope.jsonl\noutput_dir: "+done+"\n", settings.Options{Hooks: h})
	if err != nil || again != out {
		t.Errorf("with data and output_dir: %v\n%s\nnot\n%s", err, again, out)
	}
	raw, err := sketch(t, card+"max_steps: 1000\nsave_total_limit: 2\n", settings.Options{JSON: true})
	testkit.NoError(t, err)
	var shown struct {
		MaxSteps *int `json:"max_steps"`
		Rows     *int
		Device   string
		Memory   struct {
			Device int64 `json:"device_bytes"`
		}
		Disk struct {
			Checkpoint  int64 `json:"checkpoint_bytes"`
			Checkpoints int
			AtMost      int64 `json:"at_most_bytes"`
		}
	}
	if err := json.Unmarshal([]byte(raw[strings.Index(raw, "{"):strings.LastIndex(raw, "}")+1]), &shown); err != nil {
		t.Fatalf("%v in %s", err, raw)
	}
	if d := shown.Disk; shown.MaxSteps == nil || *shown.MaxSteps != 1000 || shown.Rows != nil || shown.Device != "cuda" || shown.Memory.Device < 10<<30 ||
		d.Checkpoints != 2 || d.AtMost < 2*d.Checkpoint || d.AtMost > 3*d.Checkpoint {
		t.Errorf("%+v", shown)
	}
	for keys, want := range map[string]string{
		"save_strategy: epoch\n":                                                  "state; 3 to write",
		"save_strategy: epoch\nnum_train_epochs: 1.5\n":                           "state; 2 to write",
		"save_strategy: epoch\nmax_steps: 9\neval_strategy: epoch\nval_size: 5\n": "state; as many as the data has steps for",
		"save_steps: 0.3\nlogging_steps: 0.1\n":                                   "state; 4 to write",
		"save_steps: 0.3\nmax_steps: 100\nsave_total_limit: 2\n":                  "state; 4 to write, the last 2 stay",
		"save_steps: 0\n": "state; 1 to write",
		"save_only_model: true\nsave_steps: 5\nmax_steps: 10\n": "14 GiB  weights bf16; 1 to write",
		"save_strategy: no\n": "disk  at most      14 GiB  more than now",
	} {
		if out, err := sketch(t, card+keys, settings.Options{}); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v, %q is not in\n%s", keys, err, want, out)
		}
	}
	_, err = sketch(t, strings.Replace(card, "128GiB", "32GiB", 1), settings.Options{})
	checkError(t, err, true, "run.yaml", "host_memory", "the run needs ")
}

// TestPlanOfAFinishedRun: a plan works even if output_dir holds a finished run with other keys.
func TestPlanOfAFinishedRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := newScene(t, "host_memory: 1GiB\nbinding: copy\ndevice_memory: 1GiB\ndevice: cpu\n")
	before := testkit.Must(sketch(t, s.source(), settings.Options{JSON: true}))(t)
	s.mustTrain(t)
	testkit.NoError(t, os.Remove(s.rows))
	for name, other := range map[string]string{"as it was": "", "another": "learning_rate: 0.5\nseed: 7\n"} {
		after, err := sketch(t, s.with(other).source(), settings.Options{JSON: true})
		if err != nil || withoutBound(t, after) != withoutBound(t, before) {
			t.Errorf("%s: %v\n%s\nnot\n%s", name, err, after, before)
		}
	}
}

// withoutBound returns the plan text, in JSON, without the values that are measured on this
// machine.
func withoutBound(t *testing.T, text string) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	delete(m, "bound")
	out := testkit.Must(json.Marshal(m))(t)
	return string(out)
}

// TestPlanSaysHowLongAStepTakes: if the device is present and can be measured, the plan ends with a
// lower bound on the time of a step.
func TestPlanSaysHowLongAStepTakes(t *testing.T) {
	defer func(was int) { machine.CPURateSize = was }(machine.CPURateSize)
	machine.CPURateSize = 64
	s := newScene(t, "host_memory: 1GiB\ndevice_memory: 1GiB\ndevice: cpu\n")
	out, err := sketch(t, s.source(), settings.Options{})
	if err != nil || !strings.Contains(out, "  time  step at least") || !strings.Contains(out, " tokens a second") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestPlanForALargerGPU: device_memory may be larger than the memory of the GPU in this machine.
// The plan is then for such a GPU, and says so.
func TestPlanForALargerGPU(t *testing.T) {
	drv := emulate(t, emu.Options{})
	out, err := sketch(t, "model: llama-8b\ndevice_memory: 4096GiB\nhost_memory: 400GiB\n", settings.Options{Hooks: settings.Hooks{Symbols: drv}})
	if err != nil || !strings.Contains(out, " to give: the plan is for one of 4.0 TiB") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRoomIsLookedAt: a run whose plan needs more host memory than is available is refused before
// it allocates any. The error says how much is missing and which key to lower.
func TestRoomIsLookedAt(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	pattern := newScene(t, "")
	for name, tc := range map[string]struct {
		extra string
		room  host.Room
		says  []string
	}{
		"nothing left":       {"", host.Room{Known: true, By: "ulimit -v is 1.0 GiB"}, []string{"of host memory and none is available (ulimit -v is 1.0 GiB): ", "or have more host memory"}},
		"little left":        {"", host.Room{Known: true, Bytes: 12 << 20, By: "MemAvailable of /proc/meminfo"}, []string{"of host memory and 12 MiB are available (MemAvailable of /proc/meminfo): "}},
		"less than allowed":  {"host_memory: 1GiB\n", host.Room{Known: true, Bytes: 12 << 20, By: "ulimit -v is 1.0 GiB"}, []string{"run.yaml:", "host_memory: the run needs ", " of this machine's memory, and 12 MiB is available (ulimit -v is 1.0 GiB), 84 MiB too little: lower host_memory"}},
		"device on the host": {"host_memory: 97MiB\nbinding: copy\n", host.Room{Known: true, Bytes: 96<<20 + 200<<10, By: "x"}, []string{"run.yaml:", "host_memory: the run needs 96 MiB of this machine's memory, and 96 MiB is available (x), 156 KiB too little: lower host_memory"}},
	} {
		h := settings.Hooks{Room: func() host.Room { return tc.room }, Allocating: func() { t.Errorf("%s: memory is taken", name) }}
		_, err := pattern.in(t).with(tc.extra).train(t, t.Context(), h)
		checkError(t, err, strings.Contains(tc.extra, "host_memory"), tc.says...)
	}
	if out, err := pattern.in(t).train(t, t.Context(), settings.Hooks{Room: func() host.Room { return host.Room{} }}); err != nil {
		t.Errorf("where nobody says what is available: %v\n%s", err, out)
	}
}

// TestPlanSaysWhatIsKept: the plan says which activations are kept for the backward, by block as
// text and by layer in JSON. The prediction of a step agrees with it.
func TestPlanSaysWhatIsKept(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("plans on one goroutine")
	}
	t.Cleanup(func() { checkClean(t) })
	const card = "model: {preset: qwen2.5-7b, num_hidden_layers: 12}\nmax_seq_len: 1024\nper_device_train_batch_size: 128\nhost_memory: 400GiB\ndevice_memory: 79GiB\n"
	for keys, want := range map[string]string{
		"":                          "kept for the backward: inputs\n4 rounds of 2 micro-batches, each forward and backward through all layers\n",
		"pipeline: {rounds: 1}\n":   "kept for the backward: all in 5 of 12 blocks, qkv in 2, attention in 2, nothing in 3\n",
		"recompute: full\n":         "kept for the backward: nothing\n",
		"micro_batch_order: zigzag": "kept for the backward: all in 5 of 12 blocks, qkv in 2, attention in 2, nothing in 3\n",
	} {
		if out, err := sketch(t, card+keys, settings.Options{}); err != nil || !strings.Contains(out, want) {
			t.Errorf("%q: %v: %q is not in\n%s", keys, err, want, out)
		}
	}
	var shown struct {
		Keeps      string   `json:"recompute_keeps"`
		Rounds     int      `json:"rounds"`
		ByLayer    []string `json:"kept_by_layer"`
		Prediction struct {
			TFLOPS   float64 `json:"tflops"`
			Executed float64 `json:"tflops_executed"`
		}
	}
	h100 := testkit.Must(rates.Find("h100+ddr5-4800x8"))(t)
	again := map[string]float64{}
	for _, keys := range []string{"pipeline: {rounds: 1}\n", "recompute: full\n"} {
		raw := testkit.Must(sketch(t, card+keys, settings.Options{JSON: true, Forecast: settings.Forecast{Machine: h100}}))(t)
		if err := json.Unmarshal([]byte(raw[strings.Index(raw, "{"):strings.LastIndex(raw, "}")+1]), &shown); err != nil {
			t.Fatalf("%v in %s", err, raw)
		}
		again[keys] = shown.Prediction.Executed / shown.Prediction.TFLOPS
		if keys == "recompute: full\n" {
			continue
		}
		counts := map[string]int{}
		for _, level := range shown.ByLayer {
			counts[level]++
		}
		if len(shown.ByLayer) != 14 || shown.Rounds != 1 || shown.Keeps != "all in 5 of 12 blocks, qkv in 2, attention in 2, nothing in 3" || counts["all"] != 5 || counts["qkv"] != 2 || counts["attention"] != 2 || counts["nothing"] != 3+2 {
			t.Errorf("%+v", shown)
		}
	}
	// 3 of 12 blocks recompute everything and 4 more recompute most of it. The share of
	// recomputation is therefore between 3/12 and 7/12 of full recomputation.
	if part := (again["pipeline: {rounds: 1}\n"] - 1) / (again["recompute: full\n"] - 1); part < 3./12 || part > 7./12 {
		t.Errorf("%.3f times the model's FLOPs are executed, %.3f where nothing is kept", again["pipeline: {rounds: 1}\n"], again["recompute: full\n"])
	}
}
