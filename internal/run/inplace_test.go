package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mt/cudart/emu"
	"mt/device/cuda"
	"mt/internal/run/open"
	"mt/internal/run/predict"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestInPlaceSameBits: an integrated GPU can use weights, gradients and batches in place in host
// memory. It then computes the same bits as one that copies them, even if any stream runs late.
func TestInPlaceSameBits(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("the arenas of a tiny model are Go's, and a kernel that reads through a range of several stops checkptr")
	}
	for i, recipe := range []string{"experts\npipeline: {head_shards: 3}\n", "compute_dtype: bf16\n", "compute_dtype: fp32\nmax_grad_norm: 0\n",
		"optim: muon\nval_size: 2\neval_steps: 2\n", "pipeline: {micro_batch_tokens: 10, weight_slots: 1, grad_buffers: 1, activation_slots: 3}\nrecompute: full\ngrad_dtype: bf16\n"}[:testkit.Count(t, 5, 1)] {
		want := recipeScene(t, recipe).with("device: cuda\nmax_steps: 4\nsave_steps: 2\n")
		if out, err := want.with("binding: copy\n").train(t, t.Context(), settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true})}); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, o := range []emu.Options{{Mode: emu.Random, Seed: uint64(7 + i), Integrated: true}, {Mode: emu.Lazy, Threads: 1, Integrated: true}}[:testkit.Count(t, 2, 1)] {
			got := want.in(t).with("binding: unified\n")
			out, err := got.train(t, t.Context(), settings.Hooks{Symbols: emulate(t, o)})
			if err != nil {
				t.Fatalf("%s: %v\n%s", recipe, err, out)
			}
			sameRun(t, got, want)
			raw, err := os.ReadFile(filepath.Join(got.out, settings.ConfigFile))
			if err != nil || !strings.Contains(string(raw), "binding: unified") {
				t.Errorf("config.yaml does not say that weights are used in place: %v\n%s", err, raw)
			}
		}
	}
}

// TestInPlaceNotPinned: the system may refuse to pin the host memory that a GPU would use in place.
// A run that leaves binding to mt then starts anew with copied weights. A run that asks for use in
// place ends with an error. Evaluations do the same.
func TestInPlaceNotPinned(t *testing.T) {
	symbols := func() settings.Hooks {
		return settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true, RegisterLimit: 3000}), ReadRates: func() (own, host float64) { return 1, 1 }}
	}
	want := newScene(t, "device: cuda\nmax_steps: 1\ncompute_dtype: fp32\n")
	got := want.in(t)
	if out, err := want.with("binding: copy\n").train(t, t.Context(), symbols()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const note = "note: begun again with weights copied (binding): "
	out, err := got.train(t, t.Context(), symbols())
	if err != nil || strings.Count(out, note) != 1 || !strings.Contains(out, "ulimit -l") {
		t.Fatalf("%v\n%s", err, out)
	}
	sameRun(t, got, want)
	out, err = want.in(t).with("binding: unified\n").train(t, t.Context(), symbols())
	if !errors.Is(err, cuda.ErrNotPinned) || strings.Contains(out, note) {
		t.Errorf("%v\n%s", err, out)
	}
	var said strings.Builder
	c := got.with("model: " + got.out + "\n").in(t).config(t)
	if res, err := Eval(t.Context(), EvalOptions{Options: settings.Options{Stdout: io.Discard, Stderr: &said, Hooks: symbols()}, Config: c}); err != nil || !(res.Loss > 0) || !strings.Contains(said.String(), note) {
		t.Errorf("%+v, %v\n%s", res, err, said.String())
	}
}

// TestInPlaceFromDisks: weights that are read from disks are used in place, in the host buffers
// into which they were read.
func TestInPlaceFromDisks(t *testing.T) {
	testkit.LongOnly(t)
	if testkit.Race {
		t.Skip("as TestInPlaceSameBits")
	}
	for _, recipe := range []string{"max_grad_norm: 0\n", "master_dtype: bf16\noptim: adamw_8bit\n"} {
		want := newScene(t, "device: cuda\nmax_steps: 4\nrecompute: full\ngrad_dtype: fp32\nbinding: unified\npipeline: {state_slots: 1, weight_slots: 1}\n"+recipe)
		symbols := func() settings.Hooks {
			return settings.Hooks{Symbols: emulate(t, emu.Options{Integrated: true, Mode: emu.Random})}
		}
		if out, err := want.with("binding: copy\n").train(t, t.Context(), symbols()); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		got := want.in(t)
		got = got.with(fmt.Sprintf("state_dir: [%s/a]\nparam_dir: [%s/b]\nhost_memory: 2GiB\n", got.root, got.root))
		j, err := openRun(got.config(t), settings.Options{Stdout: io.Discard, Stderr: io.Discard, Hooks: symbols()}, open.Asks{Run: true}, nil)
		testkit.NoError(t, err)
		least, err := predict.SmallestFor(j.Asked)
		if open.CloseAfter(j, &err); err != nil {
			t.Fatal(err)
		}
		out, err := got.with(fmt.Sprintf("host_memory: %d\n", least.Host)).train(t, t.Context(), symbols())
		if err != nil || !regexp.MustCompile(`disk +weights`).MatchString(out) {
			t.Fatalf("no weights are said to be on disks: %v\n%s", err, out)
		}
		sameModel(t, got, want)
	}
}
