package run

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint"
	"mt/cudart/emu"
	"mt/internal/run/save"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/layers"
	"mt/layers/schedule"
)

// travels are the recordings whose kept tensors travel in normal tests: dense blocks, experts beside attention,
// latent attention with keys that an indexer chooses, the gated delta rule, and blocks that are an MLP or Mamba-2 alone.
var travels = []string{"llama-clipped", "qwen3moe-balanced", "deepseekv32-chosen", "qwen3next-shared", "nemotronh-dense"}

// travelling returns a hook that lets what blocks keep at this level travel, of every micro-batch but the second.
func travelling(level layers.Keep, sent *int64) settings.Hooks {
	return settings.Hooks{Planned: func(run any) {
		p := run.(*save.Output).Plan
		n := p.Limits.MicroBatches
		p.Spec.Keep = layers.KeepIn(p.Spec.Config.Blocks(), level)
		p.KeptSlots, p.Spec.KeptOf, p.Spec.KeptOnHost = 2, schedule.Share{N: max(1, n-1), Of: n}, make([]bool, p.Spec.Config.Blocks())
		for l, layout := range p.Layouts {
			if layout.Kind.BeginsBlock() && p.SavedBytes(l) > 0 {
				p.Spec.KeptOnHost[layout.Block] = true
			}
		}
		for _, row := range p.Table().Rows {
			if row.Purpose == "saved on host" {
				*sent += row.Bytes
			}
		}
	}}
}

// TestKeptTensorsTravel: a recorded model ends with the same bits if what its blocks keep travels to the host and back,
// at every level that a plan can choose.
func TestKeptTensorsTravel(t *testing.T) {
	testkit.NotShort(t)
	dirs := testkit.FoundRecordings(t)
	for _, file := range testkit.Must(filepath.Glob("testdata/recordings/*/recipe.json"))(t) {
		dirs = append(dirs, filepath.Dir(file))
	}
	for _, dir := range dirs {
		name := filepath.Base(dir)
		for _, way := range []string{"binding: copy\n", "binding: copy\ncompute_dtype: bf16\n", "device: cuda\n"} {
			words := strings.Fields(way)
			t.Run(name+"/"+words[len(words)-1], func(t *testing.T) {
				if !slices.Contains(travels, name) || strings.HasPrefix(way, "device") {
					testkit.LongOnly(t)
				}
				t.Parallel()
				way += "pipeline: {micro_batch_tokens: 20}\n"
				train := func(h settings.Hooks) string {
					c := fixtureConfig(t, dir, t.TempDir(), way)
					c.MaxSteps = 2
					if c.Device == "cuda" {
						h.Symbols = emulate(t, emu.Options{Threads: 1})
					}
					h.FS = lazyFS{checkpoint.OS()}
					testkit.NoError(t, Train(context.Background(), c, settings.Options{Stdout: io.Discard, Stderr: io.Discard, Hooks: h}))
					var weights strings.Builder
					for _, file := range testkit.Must(filepath.Glob(filepath.Join(c.OutputDir, "*.safetensors")))(t) {
						weights.WriteString(read(t, file))
					}
					return weights.String()
				}
				want := train(settings.Hooks{})
				if len(want) == 0 {
					t.Fatal("no weights were written")
				}
				var sent [layers.KeepAll + 1]int64
				for level := layers.KeepAttention; level <= layers.KeepAll; level++ {
					if train(travelling(level, &sent[level])) != want {
						t.Errorf("other bits where %s travels", level)
					}
				}
				if sent[layers.KeepAll] == 0 {
					t.Error("nothing travels")
				}
			})
		}
	}
}
