package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mt/checkpoint"
	"mt/internal/testkit"
)

// diskConfig is the config of the runs whose disks fail: a model of a few thousand parameters,
// trained for three steps.
const diskConfig = `model:
  hidden_size: 16
  intermediate_size: 24
  num_hidden_layers: 2
  num_attention_heads: 2
  num_key_value_heads: 1
  vocab_size: 48
  max_position_embeddings: 32
dataset: rows.jsonl
cache_dir: cache
output_dir: out
max_seq_len: 12
per_device_train_batch_size: 2
max_steps: 3
learning_rate: 0.01
lr_scheduler_type: constant
logging_steps: 1
save_steps: 1
save_total_limit: 2
val_size: 2
eval_steps: 2
threads: 1
`

// firstRun is the scene without any previous files.
const firstRun = "a first run"

// overOld is the scene with an old model to replace.
const overOld = "a run over an old model"

// diskScenes are the initial states of the directory in which the tested run starts, by name. A run
// of mt with these further flags makes the state.
var diskScenes = map[string][]string{
	firstRun:        nil,
	"a resumed run": {"--max-steps", "2"}, // without its model, like an interrupted run
	overOld:         {"--max-steps", "2"},
}

// lab repeats the same mt train run under the tracer, each time in a directory with the same
// content, so results must be identical.
type lab struct {
	*tracer
	root   string
	before map[string]string            // by scene: the directory at the start of a run
	want   map[string]map[string]string // by scene: the files after an undisturbed run
	old    map[string]map[string]string // by scene: the files before the run
	config string
	args   []string
	env    []string
	traces map[string][]ioCall // by scene and numbering
	// onDisks lists the kinds of state files that the runs keep on disk: state, grads or params.
	onDisks []string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{tracer: newTracer(t), root: scratch(t), before: map[string]string{}, want: map[string]map[string]string{}, old: map[string]map[string]string{}, traces: map[string][]ioCall{},
		config: diskConfig, args: []string{os.Args[0], "train", "run.yaml"}}
}

// scratch returns a directory for a lab: in memory if there is room, and on a disk in the long tests. On a disk, a run
// spends most of its system time in the file system, searching for inodes among removed ones.
func scratch(t *testing.T) string {
	t.Helper()
	const memory, room = "/dev/shm", 256 << 20
	var fs unix.Statfs_t
	if os.Getenv(testkit.LongVariable) != "" || unix.Statfs(memory, &fs) != nil || int64(fs.Bavail)*fs.Bsize < room {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(memory, "mt-test-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// run runs `mt train run.yaml` in dir under the tracer. The tracer injects the fault f at call
// number n among the calls that of selects.
func (lab *lab) run(t *testing.T, dir string, of numbered, f ioFault, n int, more ...string) *tracedResult {
	t.Helper()
	// With one thread at a time, two runs make nearly the same calls.
	return lab.Do(t, tracedRun{Dir: dir, Args: slices.Concat(lab.args, more), Env: slices.Concat(lab.env, []string{asCommand + "=1", "GOMAXPROCS=1"}), Of: of, Fault: f, N: n})
}

// undisturbed prepares the initial state of a scene. It also records the files that a run without
// faults leaves from there.
func (lab *lab) undisturbed(t *testing.T, scene string) {
	t.Helper()
	dir := testkit.Must(os.MkdirTemp(lab.root, "before-*"))(t)
	var rows strings.Builder
	for i := range 11 {
		fmt.Fprintf(&rows, "{\"input_ids\": [%d, %d, %d, 7, %d]}\n", i, i+3, i*4, 48-i*2-1)
	}
	for name, text := range map[string]string{"run.yaml": lab.config, "rows.jsonl": rows.String()} {
		testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if flags := diskScenes[scene]; flags != nil {
		if got := lab.run(t, dir, noCalls, noFault, 0, flags...); got.Code != exitDone {
			t.Fatalf("exit code %d\n%s", got.Code, got.Stderr)
		}
		if scene == "a resumed run" {
			for _, name := range []string{"model.safetensors", "config.json", "trainer_state.json"} {
				testkit.NoError(t, os.Remove(filepath.Join(dir, "out", name)))
			}
		}
	}
	lab.before[scene], lab.old[scene] = dir, tree(t, dir)
	dir = lab.prepared(t, scene)
	if got := lab.run(t, dir, noCalls, noFault, 0); got.Code != exitDone {
		t.Fatalf("exit code %d\n%s", got.Code, got.Stderr)
	}
	lab.want[scene] = tree(t, dir)
	for _, name := range []string{"out/model.safetensors", "out/checkpoint-3/manifest.json", "out/metrics.jsonl"} {
		if lab.want[scene][name] == "" {
			t.Fatalf("an undisturbed run leaves no %s: %v", name, slices.Sorted(maps.Keys(lab.want[scene])))
		}
	}
}

// prepared returns a fresh copy of a scene's initial state.
func (lab *lab) prepared(t *testing.T, scene string) string {
	t.Helper()
	dir, err := os.MkdirTemp(lab.root, "run-*")
	if err == nil {
		err = os.CopyFS(dir, os.DirFS(lab.before[scene]))
	}
	testkit.NoError(t, err)
	return dir
}

// trace returns the system calls of a run of the scene without faults, numbered as of selects. Each
// combination runs only once.
func (lab *lab) trace(t *testing.T, scene string, of numbered) []ioCall {
	t.Helper()
	key := scene + ", " + string(of)
	if calls := lab.traces[key]; calls != nil {
		return calls
	}
	dir := lab.prepared(t, scene)
	defer os.RemoveAll(dir)
	got := lab.run(t, dir, of, noFault, 0)
	if got.Code != exitDone || len(got.Calls) < 20 {
		t.Fatalf("exit code %d after %d calls\n%s", got.Code, len(got.Calls), got.Stderr)
	}
	lab.traces[key] = seenFrom(dir, got.Calls)
	return lab.traces[key]
}

// damage returns the damage to results after a run with a fault. It is a checkpoint that does not
// verify, or a model that is neither the old one nor the new one.
func (lab *lab) damage(scene, dir string) (problems []string) {
	found, _ := filepath.Glob(filepath.Join(dir, "out", "checkpoint-*[0-9]"))
	for _, name := range found {
		if strings.Contains(name, ".tmp-") {
			continue
		}
		if err := checkpoint.Verify(name); err != nil {
			problems = append(problems, err.Error())
		}
		if w, err := checkpoint.OpenWeights(name); err != nil {
			problems = append(problems, err.Error())
		} else {
			w.Close()
		}
	}
	const model = "out/model.safetensors"
	raw, err := os.ReadFile(filepath.Join(dir, model))
	if err == nil && string(raw) != lab.old[scene][model] && string(raw) != lab.want[scene][model] {
		problems = append(problems, "the model is neither the old one nor the new one")
	}
	return problems
}

// tree returns the content of every file below dir, without the parts that depend on time and place.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		if d.Name() == "metrics.jsonl" {
			raw = timeless(raw)
		}
		if strings.HasPrefix(rel, "cache/") { // its name and content depend on the path of the data
			rel, raw = cacheName.ReplaceAllString(rel, "cache/KEY"), nil
		}
		out[rel] = string(raw)
		return err
	})
	testkit.NoError(t, err)
	return out
}

// cacheName matches the start of a token cache's name, which depends on the path of the data.
var cacheName = regexp.MustCompile(`^cache/[0-9a-f]{32}`)

// timed matches the keys in metrics.jsonl whose values differ between identical runs.
var timed = regexp.MustCompile(`^(timed_steps|tok_per_s|tflops|tflops_executed|mfu|step_s|eta_s|host_bytes|device_bytes|memory|h2d_gbps|d2h_gbps|peer_gbps|network_gbps|disk_read_gbps|disk_write_gbps|disk_read_bytes|disk_write_bytes|disk_hidden|disk_steps_per_pb|stall_s|compute_s)$`)

// timeless returns metrics.jsonl without the keys of timed. Lines that are not JSON stay.
func timeless(raw []byte) []byte {
	var out bytes.Buffer
	for text := range bytes.Lines(raw) {
		var line map[string]json.RawMessage
		if json.Unmarshal(text, &line) != nil {
			out.Write(text)
			continue
		}
		maps.DeleteFunc(line, func(key string, _ json.RawMessage) bool { return timed.MatchString(key) })
		left, _ := json.Marshal(line) // values that were parsed can be encoded
		out.Write(append(left, '\n'))
	}
	return out.Bytes()
}

// differences lists the differences of two trees.
func differences(got, want map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[name]; !ok {
			out = append(out, name+" is missing")
		} else if g != want[name] {
			out = append(out, name+" is another")
			if strings.HasSuffix(name, ".json") || strings.HasSuffix(name, "l") {
				out[len(out)-1] += fmt.Sprintf(":\n%s\nwant\n%s", g, want[name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[name]; !ok {
			out = append(out, name+" is left")
		}
	}
	return out
}
