package run

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mt/host/optim"
	"mt/internal/run/config"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// childMemory is the environment variable that makes this test binary train a config file for two
// steps. It then prints how much memory the plan and the system say that it uses.
const childMemory = "MT_TEST_TRAIN_MEMORY"

// footprint is the memory use that such a child prints, in bytes.
type footprint struct {
	Plan     int64 // host and device together
	Resident int64 // resident set of the process in the second step
	log      *strings.Builder
}

// memoryChild trains until the end of the second step, prints its footprint and exits without
// saving.
func memoryChild(file string) int {
	c, err := config.Load(file, config.Args{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var f footprint
	h := settings.Hooks{Planned: func(run any) {
		j := run.(*save.Output)
		t := j.Plan.Table()
		f.Plan = t.Host + t.Device
	}, Stepped: func(step int) {
		if step < 2 {
			return
		}
		f.Resident = status("VmRSS")
		_ = json.NewEncoder(os.Stdout).Encode(f)
		os.Exit(0)
	}}
	fmt.Fprintln(os.Stderr, Train(context.Background(), c, settings.Options{Stdout: io.Discard, Stderr: os.Stderr, Hooks: h}))
	return 1
}

// status returns a field of /proc/self/status, converted to bytes; 0 if unknown.
func status(field string) int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for sc := bufio.NewScanner(f); sc.Scan(); {
		if rest, ok := strings.CutPrefix(sc.Text(), field+":"); ok {
			var kib int64
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}

// TestMemoryIsAsPlanned: the resident memory of a training process is within 5 % of its plan.
func TestMemoryIsAsPlanned(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("the race detector keeps arenas on the Go heap and takes memory of its own")
	}
	if optim.Level() == "generic" {
		t.Skip("plain Go takes minutes for these steps; what memory a process takes does not depend on it")
	}
	if status("RssAnon") == 0 {
		t.Skip("this system does not tell a process its resident memory")
	}
	root := t.TempDir()
	rows := writeRows(t, root, 40, 32, 256)
	for name, extra := range map[string]string{
		"unified":       "per_device_train_batch_size: 2\n",
		"copy and bf16": "binding: copy\ncompute_dtype: bf16\nper_device_train_batch_size: 2\n",
		"averaged":      "compute_dtype: bf16\nema_decay: 0.9\nper_device_train_batch_size: 2\n",
		"no clipping":   "max_grad_norm: 0\nper_device_train_batch_size: 2\npipeline: {grad_slabs: 1}\n",
		"spilled":       "binding: copy\nper_device_train_batch_size: 4\npipeline: {micro_batch_tokens: 64, activation_slots: 3}\n",
	} {
		t.Run(name, func(t *testing.T) {
			if name != "spilled" {
				testkit.LongOnly(t)
			}
			file := filepath.Join(root, "run.yaml")
			write(t, file, fmt.Sprintf(`
model: {hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 5, num_attention_heads: 16, num_key_value_heads: 8, vocab_size: 256}
dataset: %s
cache_dir: %s/cache
output_dir: %s/out
max_seq_len: 32
max_steps: 4
recompute: full
%s`, rows, root, root, extra))
			f := measureChild(t, file)
			over := float64(f.Resident)/float64(f.Plan) - 1
			t.Logf("planned %d MiB, taken %d MiB (%+.1f %%)", f.Plan>>20, f.Resident>>20, 100*over)
			if over > 0.05 || over < -0.05 {
				t.Errorf("the plan says %d bytes, the process takes %d\n%s", f.Plan, f.Resident, f.log)
			}
		})
	}
}

func measureChild(t *testing.T, file string) footprint {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMemory+"="+file)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	f := footprint{log: &log}
	if err == nil {
		err = json.Unmarshal(out, &f)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	return f
}

// deviceBytes returns the planned device memory of the scene by purpose and in total, and the
// memory that the device counted in the last step.
func (s scene) deviceBytes(t *testing.T) (rows map[string]int64, planned, counted int64) {
	t.Helper()
	rows = map[string]int64{}
	testkit.Must(s.train(t, t.Context(), settings.Hooks{Planned: func(run any) {
		j := run.(*save.Output)
		for _, r := range j.Plan.Table().Rows {
			if r.Where == "device" {
				rows[r.Purpose] = r.Bytes
				planned += r.Bytes
			}
		}
	}}))(t)
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.MetricsFile)))(t)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var m struct {
		Bytes int64 `json:"device_bytes"`
	}
	testkit.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &m))
	return rows, planned, m.Bytes
}

// TestRecordingsTakeWhatIsPlanned: models whose layers pass on or keep more than a hidden state take the device memory
// that is planned.
func TestRecordingsTakeWhatIsPlanned(t *testing.T) {
	testkit.NotShort(t)
	for _, name := range []string{"afmoe", "gemma4-e"} {
		for _, extra := range []string{"", "binding: copy\ncompute_dtype: bf16\n"} {
			var planned int64
			c := fixtureConfig(t, testkit.Recording(t, name), t.TempDir(), extra)
			runTrain(t, c, settings.Hooks{Planned: func(run any) {
				for _, r := range run.(*save.Output).Plan.Table().Rows {
					if r.Where == "device" {
						planned += r.Bytes
					}
				}
			}})
			line, _, _ := bytes.Cut(testkit.Must(os.ReadFile(filepath.Join(c.OutputDir, settings.MetricsFile)))(t), []byte("\n"))
			var m struct {
				Bytes int64 `json:"device_bytes"`
			}
			testkit.NoError(t, json.Unmarshal(line, &m))
			if m.Bytes != planned || planned == 0 {
				t.Errorf("%s: %d bytes are planned and %d are taken", name, planned, m.Bytes)
			}
		}
	}
}

// TestDeviceMemoryDoesNotGrow: device memory does not grow with the number of layers. With activation_slots given and
// full recomputation it does not grow with the rows of a step either, except for the token ids.
func TestDeviceMemoryDoesNotGrow(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	const fixed = "max_steps: 2\nbinding: copy\nrecompute: full\npipeline: {weight_slots: 2, grad_buffers: 2, activation_slots: 4, micro_batch_tokens: 24}\n"
	s := newScene(t, fixed)
	rows, planned, counted := s.deviceBytes(t)
	if counted != planned {
		t.Errorf("%d bytes are planned and %d are taken", planned, counted)
	}
	deep := s.in(t).with(strings.Replace(tinyModel, "num_hidden_layers: 3", "num_hidden_layers: 12", 1))
	deepRows, _, deepCounted := deep.deviceBytes(t)
	for purpose, n := range deepRows {
		if n != rows[purpose] {
			t.Errorf("%s: %d bytes for 12 layers, %d for 3", purpose, n, rows[purpose])
		}
	}
	if deepCounted != counted {
		t.Errorf("12 layers take %d bytes, 3 take %d", deepCounted, counted)
	}
	wide := s.in(t).with("per_device_train_batch_size: 5\n")
	wideRows, _, wideCounted := wide.deviceBytes(t)
	for purpose, n := range wideRows {
		if n != rows[purpose] && purpose != "batch" {
			t.Errorf("%s: %d bytes for 10 rows, %d for 4", purpose, n, rows[purpose])
		}
	}
	grown := wideRows["batch"] - rows["batch"]
	if wideCounted-counted != grown {
		t.Errorf("10 rows take %d bytes more than 4, planned are %d", wideCounted-counted, grown)
	}
	if most := int64(6 * 12 * 256); grown <= 0 || grown > most { // 256 bytes a token: ids, its row of the table, its place
		t.Errorf("6 rows more of 12 tokens take %d bytes, more than %d", grown, most)
	}
}
