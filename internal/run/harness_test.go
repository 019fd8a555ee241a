package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/host"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// tinyModel is an inline model small enough for a step to take milliseconds.
const tinyModel = `
model:
  hidden_size: 16
  intermediate_size: 24
  num_hidden_layers: 3
  num_attention_heads: 2
  num_key_value_heads: 1
  vocab_size: 48
  max_position_embeddings: 32
  initializer_range: 0.1
`

// writeRows writes a JSONL file of n rows of random token ids below vocab, with random lengths up
// to most. It returns the file's path.
func writeRows(t *testing.T, dir string, n, most, vocab int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, uint64(n)))
	var b bytes.Buffer
	for range n {
		ids := make([]int, 2+r.IntN(most-1))
		for i := range ids {
			ids[i] = r.IntN(vocab)
		}
		line := testkit.Must(json.Marshal(map[string]any{"input_ids": ids}))(t)
		b.Write(append(line, '\n'))
	}
	name := filepath.Join(dir, fmt.Sprintf("rows-%d-%d.jsonl", n, vocab))
	write(t, name, b.String())
	return name
}

func write(t *testing.T, name, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		err = os.WriteFile(name, []byte(content), 0o644)
	}
	testkit.NoError(t, err)
}

// scene is a training run of a test: its configuration (yaml), its data (rows) and its output
// directory (out), in the folder root.
type scene struct {
	root, out, rows string
	yaml            string
}

// newScene returns a run of 8 steps of 4 rows each over 11 rows, which makes about three epochs.
// The last step of an epoch has 3 rows.
func newScene(t *testing.T, extra string) scene {
	t.Helper()
	root := t.TempDir()
	s := scene{root: root, out: filepath.Join(root, "out"), rows: writeRows(t, root, 11, 12, 48)}
	s.yaml = override(tinyModel+fmt.Sprintf(`
dataset: %s
cache_dir: %s/cache
max_seq_len: 12
per_device_train_batch_size: 2
gradient_accumulation_steps: 2
max_steps: 8
learning_rate: 0.01
lr_scheduler_type: cosine
warmup_steps: 2
weight_decay: 0.1
logging_steps: 1
threads: 2
`, s.rows, root), extra)
	return s
}

// in returns the scene with another output directory.
func (s scene) in(t *testing.T) scene {
	t.Helper()
	s.out = filepath.Join(t.TempDir(), "out")
	return s
}

// with returns the scene with the top-level keys of extra added or replaced.
func (s scene) with(extra string) scene {
	s.yaml = override(s.yaml, extra)
	return s
}

// override returns yaml with the top-level keys of extra, which replace keys of the same name.
func override(yaml, extra string) string {
	named := map[string]bool{}
	for line := range strings.Lines(extra) {
		if k, _, ok := strings.Cut(line, ":"); ok && k == strings.TrimSpace(k) {
			named[k] = true
		}
	}
	var out strings.Builder
	drop := false
	for line := range strings.Lines(yaml) {
		if k, _, ok := strings.Cut(line, ":"); ok && !strings.HasPrefix(line, " ") {
			drop = named[k]
		}
		if !drop {
			out.WriteString(line)
		}
	}
	return out.String() + extra
}

func (s scene) source() string { return s.yaml + "\noutput_dir: " + s.out + "\n" }

func (s scene) config(t *testing.T) *config.Config {
	t.Helper()
	c := testkit.Must(config.Parse("run.yaml", []byte(s.source()), config.Args{}))(t)
	return c
}

// train runs the scene once and returns what it printed.
func (s scene) train(t *testing.T, ctx context.Context, h settings.Hooks) (string, error) {
	t.Helper()
	if h.FS == nil {
		h.FS = lazyFS{checkpoint.OS()}
	}
	var out bytes.Buffer
	err := Train(ctx, s.config(t), settings.Options{Stdout: &out, Stderr: &out, Hooks: h})
	return out.String(), err
}

func (s scene) mustTrain(t *testing.T) string {
	t.Helper()
	out, err := s.train(t, t.Context(), settings.Hooks{})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// lazyFS is a file system that does not wait until data is on the disk, which makes tests faster.
type lazyFS struct{ checkpoint.FS }

func (lazyFS) SyncDir(string) error { return nil }

func (f lazyFS) Create(path string) (checkpoint.File, error) {
	file, err := f.FS.Create(path)
	return lazyFile{file}, err
}

type lazyFile struct{ checkpoint.File }

func (lazyFile) Sync() error      { return nil }
func (lazyFile) Flush(_, _ int64) {}

// timedKeys are the keys of metrics.jsonl that depend on time or on other work of the process. trafficKeys depend on
// depths and binding.
var (
	timedKeys = []string{"timed_steps", "tok_per_s", "tflops", "tflops_executed", "mfu", "step_s", "eta_s", "host_bytes", "device_bytes", "memory", "h2d_gbps", "peer_gbps", "network_gbps", "disk_read_gbps", "disk_write_gbps", "disk_read_bytes", "disk_write_bytes", "disk_hidden", "disk_steps_per_pb", "d2h_gbps",
		"stall_s", "compute_s", "own_products"}
	trafficKeys = []string{"experts_fetched", "expert_bytes"}
)

// metrics reads metrics.jsonl without some keys. Every line must be whole, and the remaining numbers stay as written.
func (s scene) metrics(t *testing.T, without ...string) (out []string) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(filepath.Join(s.out, settings.MetricsFile)))(t)
	for text := range strings.Lines(string(raw)) {
		var line map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%s: %q: %v", settings.MetricsFile, text, err)
		}
		for _, key := range without {
			delete(line, key)
		}
		left := testkit.Must(json.Marshal(line))(t)
		out = append(out, string(left))
	}
	return out
}

// left returns the content of every file that a finished run leaves and that does not depend on place or time: the
// model, the averaged model and the last checkpoint.
func (s scene) left(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	last := filepath.Join(s.out, settings.CheckpointName(s.config(t).MaxSteps))
	testkit.NoError(t, filepath.WalkDir(s.out, func(path string, d fs.DirEntry, err error) error {
		switch name := d.Name(); {
		case err != nil:
			return err
		case d.IsDir() && path != s.out && path != last && !strings.HasPrefix(path, last) && path != filepath.Join(s.out, settings.AverageDir):
			return fs.SkipDir
		case d.IsDir() || name == settings.ConfigFile || name == settings.MetricsFile || name == "manifest.json" || strings.HasPrefix(name, "rank-"):
			return nil
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(s.out, path)
		out[rel] = string(raw)
		return err
	}))
	if len(out) < 5 {
		t.Fatalf("%s holds no finished run: %v", s.out, slices.Collect(func(yield func(string) bool) {
			for k := range out {
				if !yield(k) {
					return
				}
			}
		}))
	}
	return out
}

// sameRun fails unless two finished runs have left the same bits: metrics without times and
// traffic, model and last checkpoint.
func sameRun(t *testing.T, got, want scene) {
	t.Helper()
	same(t, got, want, slices.Concat(timedKeys, trafficKeys))
}

// sameTraffic is sameRun for runs with the same depths and binding. It also compares the numbers of
// experts that each step has copied.
func sameTraffic(t *testing.T, got, want scene) {
	t.Helper()
	same(t, got, want, timedKeys)
}

func same(t *testing.T, got, want scene, without []string) {
	t.Helper()
	g, w := got.metrics(t, without...), want.metrics(t, without...)
	if !slices.Equal(g, w) {
		t.Errorf("metrics differ:\n got\n%s\nwant\n%s", strings.Join(g, "\n"), strings.Join(w, "\n"))
	}
	a, b := got.left(t), want.left(t)
	for name := range b {
		if a[name] != b[name] {
			t.Errorf("%s differs from the undisturbed run's", name)
		}
	}
	if len(a) != len(b) {
		t.Errorf("%d files, the undisturbed run left %d", len(a), len(b))
	}
}

// copyTree copies the directory from to the directory to.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	testkit.NoError(t, os.CopyFS(to, os.DirFS(from)))
}

// checkClean fails if the runs so far have left host memory allocated, and waits for their
// goroutines. If a goroutine never ends, the time limit of go test ends the test and prints its
// stack.
func checkClean(t *testing.T) {
	t.Helper()
	if u := host.Usage(); u.Total != 0 {
		t.Errorf("host memory is left: %v", u.Now)
	}
	for len(ours()) > 0 {
		runtime.Gosched()
	}
}

// ours returns the stacks of all other goroutines that run code of this module.
func ours() []string {
	code := "\n" + strings.TrimSuffix(reflect.TypeFor[scene]().PkgPath(), "internal/run")
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []string
	for i, g := range strings.Split(string(buf), "\n\n") {
		if i > 0 && (strings.Contains(g, code) || strings.Contains(g, "protoactor")) && !strings.Contains(g, "testing.(*T).Run") {
			out = append(out, g)
		}
	}
	return out
}

// checkError fails unless err contains every text in want, and is a usage error (exit code 2)
// exactly if usage is true.
func checkError(t *testing.T, err error, usage bool, want ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error; want %q", want)
		return
	}
	text := err.Error()
	for _, w := range want {
		if !strings.Contains(text, w) {
			t.Errorf("the error does not say %q:\n%s", w, text)
		}
	}
	if config.IsUsage(err) != usage {
		t.Errorf("usage error: %t, want %t: %s", config.IsUsage(err), usage, text)
	}
	if strings.Contains(text, "goroutine") || strings.Contains(text, "invariant") || strings.Contains(text, "panic") {
		t.Errorf("the error shows a trace:\n%s", text)
	}
	if errors.Is(err, settings.ErrInterrupted) {
		t.Errorf("the run counts as interrupted: %s", text)
	}
}
