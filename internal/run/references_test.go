package run

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/internal/run/config"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

const pairModel = "testdata/recordings/dpo-sigmoid/model"

// pairScene returns a DPO run of 8 steps on the pairs of a recording, of which some are held out.
func pairScene(t *testing.T, extra string) scene {
	t.Helper()
	root := t.TempDir()
	abs := testkit.Must(filepath.Abs(pairModel))(t)
	return scene{root: root, out: filepath.Join(root, "out"), yaml: override("model_name_or_path: "+abs+"\ndataset: "+filepath.Join(abs, "../train.jsonl")+
		"\ncache_dir: "+root+"/cache\ndpo: {beta: 0.3}\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 2\nmax_steps: 8\nlearning_rate: 0.01\nval_size: 6\neval_steps: 3\nsave_steps: 3\nsave_dtype: fp32\nlogging_steps: 2\n", extra)}
}

// passes trains the scene and returns how often it has run the reference model over the pairs, and
// the output.
func (s scene) passes(t *testing.T) (n int, out string) {
	t.Helper()
	out, err := s.train(t, t.Context(), settings.Hooks{Reading: func(what string) {
		if what == "references" {
			n++
		}
	}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return n, out
}

// cached returns the path of the single file of reference log-probabilities in the scene's cache
// folder.
func (s scene) cached(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.root, "cache", "*.references"))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v", found, err)
	}
	return found[0]
}

// TestReferencesAreKept: the reference pass runs once, and later runs and resumed runs read its
// log-probabilities from the cache. A cache file that is damaged or belongs to another run is
// computed again. All runs have the same bits.
func TestReferencesAreKept(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := pairScene(t, "")
	if n, out := want.passes(t); n != 1 || !strings.Contains(out, "reference: 30 of 30 pairs") {
		t.Fatalf("%d passes\n%s", n, out)
	}
	again := want.in(t)
	if n, out := again.passes(t); n != 0 {
		t.Errorf("%d passes in the second run\n%s", n, out)
	}
	sameRun(t, again, want)
	for name, spoil := range map[string]func(b []byte) []byte{
		"damaged":  func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"cut":      func(b []byte) []byte { return b[:len(b)-4] },
		"another":  func(b []byte) []byte { b[len("mt references 1\n")] ^= 1; return b },
		"emptied":  func([]byte) []byte { return nil },
		"extended": func(b []byte) []byte { return append(b, 0) },
	} {
		b := testkit.Must(os.ReadFile(want.cached(t)))(t)
		write(t, want.cached(t), string(spoil(b)))
		got := want.in(t)
		if n, out := got.passes(t); n != 1 || !strings.Contains(out, "references is made anew: ") {
			t.Errorf("%s: %d passes\n%s", name, n, out)
		}
		sameRun(t, got, want)
	}
	for name, key := range map[string]string{"a length": "max_seq_len: 20\n", "a type": "compute_dtype: bf16\n"} {
		if n, out := want.in(t).with(key).passes(t); n != 1 {
			t.Errorf("%s: %d passes\n%s", name, n, out)
		}
	}
}

// TestReferencesOnAFullDisk: if the reference log-probabilities cannot be cached, the run prints a
// note and has the same bits.
func TestReferencesOnAFullDisk(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := pairScene(t, "max_steps: 2\n")
	want.mustTrain(t)
	got := want.in(t).with("cache_dir: " + t.TempDir() + "\n")
	out, err := got.train(t, t.Context(), settings.Hooks{FS: &fullFS{match: ".references", honest: 99, lazyFS: lazyFS{checkpoint.OS()}}})
	if err != nil || !strings.Contains(out, "note: the references of dpo are not kept, so a run that goes on from this one makes them anew: ") || !strings.Contains(out, "no space left on device; set cache_dir") {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, want)
}

// TestPairsResume: a DPO run that is interrupted in its reference pass, a step or an evaluation
// resumes to the same bits. Depths and micro-batches may differ from the uninterrupted run.
func TestPairsResume(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := pairScene(t, "")
	want.mustTrain(t)
	for name, hook := range map[string]func(cancel func()) settings.Hooks{
		"references": func(cancel func()) settings.Hooks {
			return settings.Hooks{Reading: func(what string) {
				if what == "references" {
					cancel()
				}
			}}
		},
		"step":       func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(5, false, cancel)} },
		"evaluation": func(cancel func()) settings.Hooks { return settings.Hooks{Packing: at(2, true, cancel)} },
	} {
		got := want.in(t)
		got.yaml = override(got.yaml, "cache_dir: "+t.TempDir()+"\n")
		if out, err := got.interrupted(t, hook); !errors.Is(err, settings.ErrResumable) {
			t.Fatalf("%s: the error is %v\n%s", name, err, out)
		}
		got.with("binding: copy\ndevices: 1\nthreads: 1\n").mustTrain(t)
		sameRun(t, got, want)
	}
}

// TestPairsAreEvaluated: an evaluation logs the rewards of held-out pairs. Before training all
// rewards are 0, unless the reference is another model.
func TestPairsAreEvaluated(t *testing.T) {
	testkit.NotShort(t)
	first := func(s scene) map[string]any {
		for _, line := range s.metrics(t) {
			var m map[string]any
			testkit.NoError(t, json.Unmarshal([]byte(line), &m))
			if m["eval_loss"] != nil {
				return m
			}
		}
		t.Fatal("there is no evaluation")
		return nil
	}
	still := pairScene(t, "learning_rate: 0\nmax_steps: 1\neval_steps: 1\n")
	still.mustTrain(t)
	m := first(still)
	if m["eval_loss"] != 0.6931471805599453 || m["eval_rewards/margins"] != 0.0 || m["eval_rewards/accuracies"] != 0.0 || !(m["eval_logps/chosen"].(float64) < -10) || m["eval_perplexity"] != nil {
		t.Errorf("a model that has not moved: %v", m)
	}
	other := testkit.Must(filepath.Abs("testdata/recordings/dpo-ipo"))(t)
	dir := t.TempDir()
	for from, to := range map[string]string{"model/config.json": "config.json", "model/tokenizer.json": "tokenizer.json", "final.safetensors": "model.safetensors"} {
		b := testkit.Must(os.ReadFile(filepath.Join(other, from)))(t)
		write(t, filepath.Join(dir, to), string(b))
	}
	moved := still.in(t).with("dpo: {beta: 0.3, reference_model: " + dir + "}\n")
	if n, out := moved.passes(t); n != 1 {
		t.Errorf("%d passes of another model\n%s", n, out)
	}
	if r := first(moved); r["eval_loss"] == m["eval_loss"] || r["eval_rewards/margins"] == 0.0 || r["eval_logps/chosen"] != m["eval_logps/chosen"] {
		t.Errorf("with another model as the reference: %v", r)
	}
	whole := still.in(t).with("val_size: 0\neval_dataset: " + filepath.Join(other, "train.jsonl") + "\n") // two data sets, whose content is one: the second pass is read
	if n, out := whole.passes(t); n != 0 {
		t.Errorf("%d passes over data of the same content\n%s", n, out)
	}
}

// TestPairsTogether: several ranks train on pairs as one process does, up to the order of sums;
// only rank 0 runs the reference pass. Runs that read the cached pass, and resumed runs, have the
// same bits.
func TestPairsTogether(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	rows := testkit.Must(os.ReadFile(filepath.Join(pairModel, "../train.jsonl")))(t)
	lines := strings.Split(strings.TrimSpace(string(rows)), "\n")
	slices.Reverse(lines)
	held := filepath.Join(t.TempDir(), "held.jsonl") // whose pairs have other numbers
	write(t, held, strings.Join(lines, "\n")+"\n")
	alone := pairScene(t, "eval_dataset: "+held+"\nval_size: 0\nlogging_steps: 1\n")
	alone.mustTrain(t)
	for n := 2; n <= 3; n++ {
		want := alone.in(t)
		want.yaml = override(want.yaml, "cache_dir: "+t.TempDir()+"\n")
		want.trainRanks(t, n)
		near(t, want.losses(t), alone.losses(t))
		again := want.in(t)
		again.trainRanks(t, n)
		sameRun(t, again, want)
		for _, name := range []string{settings.CheckpointName(6), settings.CheckpointName(8), settings.EndFile} {
			testkit.NoError(t, os.RemoveAll(filepath.Join(again.out, name)))
		}
		again.trainRanks(t, n)
		sameRun(t, again, want)
	}
}

// TestReferencesTogetherAreStopped: if ranks are asked to stop while rank 0 runs the reference
// pass, they end. The same command begins the pass anew.
func TestReferencesTogetherAreStopped(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := pairScene(t, "max_steps: 2\n")
	want.trainRanks(t, 2)
	got := want.in(t).with("cache_dir: " + t.TempDir() + "\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for rank, run := range got.tryRanks(t, 2, ctx, func(int) settings.Hooks {
		return settings.Hooks{Reading: func(what string) {
			if what == "references" {
				cancel()
			}
		}}
	}) {
		if !errors.Is(run.err, settings.ErrResumable) && !errors.Is(run.err, settings.ErrInterrupted) {
			t.Errorf("rank %d: %v", rank, run.err)
		}
	}
	got.trainRanks(t, 2)
	sameRun(t, got, want)
}

// TestPairsRefused: DPO keys, data and models that do not go together give an error that names the
// key.
func TestPairsRefused(t *testing.T) {
	rows := writeRows(t, t.TempDir(), 8, 12, 48)
	short := changedModel(t, func(name, content string) string {
		if name == "model.safetensors" {
			return content[:len(content)-1]
		}
		return content
	})
	for extra, want := range map[string]string{
		"dataset: no-data\ndpo: {reference_model: " + short + "}\n": "dpo.reference_model: model weights: " + short + "/model.safetensors: tensor ",
		"dpo: {}\n":               "which are trained on with dpo: give dpo",
		"dataset: " + rows + "\n": "pairs",
		"dpo: {reference_model: " + t.TempDir() + "}\n":        "dpo.reference_model: ",
		"dataset: no-data\ndpo: {reference_model: no-model}\n": "dpo.reference_model: no-model: no such directory", // before data is read
	} {
		out, err := pairScene(t, extra).train(t, t.Context(), settings.Hooks{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q\n%s", extra, err, want, out)
		}
	}
	for _, at := range []string{"out", "out/ema"} {
		s := pairScene(t, "")
		from := filepath.Join(s.root, at)
		testkit.NoError(t, os.CopyFS(from, os.DirFS(pairModel)))
		_, err := s.with("dpo: {reference_model: "+from+"}\n").train(t, t.Context(), settings.Hooks{})
		checkError(t, err, true, "run.yaml:", "output_dir "+s.out+": "+from+" is where dpo.reference_model is loaded from")
	}
	if out, err := newScene(t, "dpo: {beta: 1}\n").train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "begins at random: give model_name_or_path") {
		t.Errorf("from scratch: %v\n%s", err, out)
	}
	if _, err := Eval(t.Context(), EvalOptions{Config: pairScene(t, "val_size: 0\neval_steps: 0\n").config(t), Options: settings.Options{Stdout: &strings.Builder{}, Stderr: &strings.Builder{}}}); err == nil || !config.IsUsage(err) {
		t.Errorf("mt eval of pairs: %v", err)
	}
}

// changedModel returns the directory of a copy of pairModel. change rewrites each file.
func changedModel(t *testing.T, change func(name, content string) string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"config.json", "tokenizer.json", "model.safetensors"} {
		b := testkit.Must(os.ReadFile(filepath.Join(pairModel, name)))(t)
		write(t, filepath.Join(dir, name), change(name, string(b)))
	}
	return dir
}

// TestReferenceOfOtherTokens: a note says so if the reference has a vocabulary of the same size
// with other tokens. A reference with the same tokens gives no note.
func TestReferenceOfOtherTokens(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	for token, want := range map[string]string{
		"<s>": "",
		"<x>": `note: dpo.reference_model: 1 tokens are others there than in the model, such as 1, which is "<x>" there and "<s>" here`,
	} {
		dir := changedModel(t, func(name, content string) string {
			if name == "tokenizer.json" {
				return strings.ReplaceAll(content, `"<s>"`, `"`+token+`"`)
			}
			return content
		})
		_, out := pairScene(t, "val_size: 0\neval_steps: 0\nmax_steps: 1\ndpo: {beta: 0.3, reference_model: "+dir+"}\n").passes(t)
		if !strings.Contains(out, want) || strings.Contains(out, "note: dpo.reference_model") != (want != "") {
			t.Errorf("%s: %q is wanted\n%s", token, want, out)
		}
		// A model that is only planned has no tokenizer, so no tokens are compared.
		out, err := sketch(t, "model: {hidden_size: 16, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2, vocab_size: 256, max_position_embeddings: 64}\n"+
			"max_seq_len: 64\ndpo: {reference_model: "+dir+"}\n", settings.Options{})
		if err != nil || strings.Contains(out, "note: dpo.reference_model") {
			t.Errorf("%s: %v\n%s", token, err, out)
		}
	}
}

// TestReferenceIsFinite: if a reference's log-probability is not finite, the run ends with an error
// that names the reference, and nothing is cached.
func TestReferenceIsFinite(t *testing.T) {
	t.Cleanup(func() { checkClean(t) })
	dir := changedModel(t, func(name, s string) string {
		if name == "model.safetensors" {
			s = s[:len(s)-4] + "\xff\xff\xff\xff" // NaN, in fp32 and in bf16
		}
		return s
	})
	s := pairScene(t, "dpo: {beta: 0.3, reference_model: "+dir+"}\n")
	if out, err := s.train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "the reference "+dir+" gives the answers of pair ") {
		t.Errorf("%v\n%s", err, out)
	}
	for rank, run := range s.tryRanks(t, 2, t.Context(), nil) {
		if run.err == nil || !strings.Contains(run.err.Error(), "the reference "+dir+" gives the answers of pair ") {
			t.Errorf("rank %d: %v", rank, run.err)
		}
	}
	if kept, err := filepath.Glob(filepath.Join(s.root, "cache", "*.references*")); err != nil || len(kept) > 0 {
		t.Errorf("%v, %v", kept, err)
	}
}

// TestReferencePassLeavesPairsOut: the reference pass leaves out a pair that is too long and
// finishes all other pairs.
func TestReferencePassLeavesPairsOut(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	s := pairScene(t, "val_size: 0\neval_steps: 0\nmax_steps: 1\n")
	rows := testkit.Must(os.ReadFile(filepath.Join(pairModel, "../train.jsonl")))(t)
	long := filepath.Join(s.root, "long.jsonl")
	write(t, long, string(rows)+`{"prompt":"`+strings.Repeat("a long prompt ", 400)+`","chosen":"a","rejected":"b"}`+"\n")
	for _, packing := range []string{"false", "true"} {
		if n, out := s.in(t).with("dataset: " + long + "\nmax_seq_len: 64\npacking: " + packing + "\ncache_dir: " + t.TempDir() + "\n").passes(t); n != 1 || !strings.Contains(out, "reference: 30 of 30 pairs") {
			t.Errorf("packing %s: %d passes\n%s", packing, n, out)
		}
	}
}

// TestPairsWindow: if only every fourth step is logged, a line of metrics.jsonl has the means over
// the pairs of all four steps.
func TestPairsWindow(t *testing.T) {
	testkit.NotShort(t)
	each := pairScene(t, "logging_steps: 1\nval_size: 0\neval_steps: 0\nmax_steps: 4\n")
	whole := each.in(t).with("logging_steps: 4\n")
	each.mustTrain(t)
	whole.mustTrain(t)
	rewards := func(line string) (r struct {
		Chosen   float64 `json:"rewards/chosen"`
		Accuracy float64 `json:"rewards/accuracies"`
		Log      float64 `json:"logps/rejected"`
	}) {
		testkit.NoError(t, json.Unmarshal([]byte(line), &r))
		return r
	}
	var chosen, accuracy, log float64
	for _, line := range each.metrics(t) {
		r := rewards(line)
		chosen, accuracy, log = chosen+r.Chosen/4, accuracy+r.Accuracy/4, log+r.Log/4
	}
	lines := whole.metrics(t)
	if r := rewards(lines[0]); len(lines) != 1 || math.Abs(r.Chosen-chosen) > 1e-9 || math.Abs(r.Accuracy-accuracy) > 1e-9 || math.Abs(r.Log-log) > 1e-9 {
		t.Errorf("%d lines, the first with %+v; the means are %v %v %v", len(lines), r, chosen, accuracy, log)
	}
}
