package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
	"mt/plan/rates"
)

// cpuRates writes a file with invented rates of a CPU.
func cpuRates(t *testing.T) string {
	t.Helper()
	m := testkit.Must(rates.Find("h100"))(t)
	m.Device.Kind, m.Device.Memory, m.Link.Cores = "cpu", 0, 1
	file := filepath.Join(t.TempDir(), "rates.json")
	testkit.NoError(t, m.Save(file))
	return file
}

// TestTune: mt tune prints a table with curves and writes pictures, or prints JSON. It changes the
// config file only on request and only if another plan is faster.
func TestTune(t *testing.T) {
	testkit.NotShort(t)
	dir := t.TempDir()
	file, svg := filepath.Join(dir, "run.yaml"), filepath.Join(dir, "svg")
	const source = "model: tiny # a preset\nmax_seq_len: 32\nper_device_train_batch_size: 2\ndevice: cpu\nbinding: copy\nmax_grad_norm: 0\npipeline: {weight_slots: 1, grad_buffers: 1} # the least\n"
	testkit.NoError(t, os.WriteFile(file, []byte(source), 0o600))
	args := []string{"tune", file, "--rates", cpuRates(t), "--candidates", "2", "--predictions", "20", "--pairs", "6", "--steps", "1", "--threads", "1", "--write"}
	text := must(t, append(args, "--svg", svg)...)
	for _, want := range []string{"activation_slots  weight_slots  grad_buffers  grad_slabs  threads  predicted tok/s  measured tok/s", "\nstart  ", "20 plans were predicted", "pairs of runs]"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, key := range []string{"activation_slots", "weight_slots", "grad_buffers", "grad_slabs"} {
		if picture, err := os.ReadFile(filepath.Join(svg, key+".svg")); err != nil || !strings.Contains(string(picture), "pipeline."+key+" as predicted") {
			t.Errorf("%s: %v, %s", key, err, picture)
		}
	}
	got := object(t, must(t, append(args, "--json")...))
	rows, _ := got["candidates"].([]any)
	curves, _ := got["curves"].([]any)
	first, _ := rows[0].(map[string]any)
	measured, _ := first["measured_tok_per_s"].(map[string]any)
	if len(rows) < 3 || len(curves) != 4 || first["start"] != true || measured["runs"].(float64) < 6 || got["faster"].(map[string]any)["pairs"].(float64) < 6 {
		t.Errorf("%v", got)
	}
	now := testkit.Must(os.ReadFile(file))(t)
	changed := strings.Contains(text, "written into "+file) || got["written"] == file
	if same := string(now) == source; same == changed || !strings.HasPrefix(string(now), "model: tiny # a preset\n") || !strings.Contains(string(now), "} # the least\n") {
		t.Errorf("written: %v; the file is\n%s", changed, now)
	}
}

// TestTuneErrors: settings that cannot be tuned or saved are rejected before any measurement.
func TestTuneErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		testkit.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	good, cpu := write("run.yaml", "model: tiny\ndevice: cpu\nmax_seq_len: 32\n"), cpuRates(t)
	odd := write("odd.yaml", "model: tiny\ndevice: cpu\n...\n")
	slots := write("slots.yaml", "model: tiny\ndevice: cpu\nbinding: copy\nmax_seq_len: 32\npipeline: {weight_slots: 100000}\ndevice_memory: 2MiB\n")
	for args, want := range map[string]string{
		"":                                      "tune: give CONFIG.yaml",
		good + " --rates none.json":             "--rates: rates: ",
		good + " --rates a9000":                 `--rates: rates: no GPU is called "a9000"`,
		good + " --rates h100":                  "are those of device cuda, and the run is on cpu: measure this machine with mt doctor --save FILE --device cpu",
		good + " --pairs 5 --rates " + cpu:      "--pairs at least 6",
		good + " --candidates 0 --rates " + cpu: "--candidates are at least 1",
		"--model tiny --device cpu --write --rates " + cpu:        "there is no config file to write into",
		odd + " --write --rates " + cpu:                           "cannot be edited (",
		good + " --svg " + good + "/x --rates " + cpu:             "--svg: ",
		slots + " --rates " + cpu:                                 "of device memory and 2.0 MiB are available",
		"--device cpu --rates " + cpu:                             "no model: give model_name_or_path",
		good + " --model llama-405b --rates " + cpu:               "of host memory and",
		good + " --compute-dtype bf16 --threads 0 --rates " + cpu: "--threads: must be at least 1",
	} {
		code, stdout, stderr := mt(t, "", append([]string{"tune"}, strings.Fields(args)...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, %s%s", args, code, stdout, stderr)
		}
	}
}

// TestTuneProgress: a file gets one line per activity, and one for every tenth short run.
func TestTuneProgress(t *testing.T) {
	var b strings.Builder
	tell := (&app{stderr: &b}).tuneProgress()
	for i := range 12 {
		tell("rates", i, 12, 0)
	}
	for i := range 12 {
		tell("short runs", i, 12, time.Minute)
	}
	const want = "rates: 1 of 12\nshort runs: 1 of 12, about 1m0s left\nshort runs: 11 of 12, about 1m0s left\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// TestWriteCard: the best rates of a device are printed by type.
func TestWriteCard(t *testing.T) {
	m := &rates.Machine{Device: rates.Device{Name: "a card", Attention: map[string][]rates.Attention{"bf16": {{Forward: 3, Backward: 2}, {Forward: 1, Backward: 4}}},
		Products: map[string][]rates.Product{"bf16": {{Rate: 5}, {Rate: 7}}}}}
	var b strings.Builder
	if writeCard(&b, m); !strings.Contains(b.String(), "bf16\tproducts up to 7 TFLOP/s, attention up to 3 and backward 4\n") {
		t.Errorf("the card is\n%s", b.String())
	}
}
