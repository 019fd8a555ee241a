package run

import (
	"encoding/json"
	"math"
	"path/filepath"
	"testing"

	"mt/cudart/emu"
	"mt/internal/run/settings"
	"mt/internal/testkit"
)

// TestPreferenceRecordings is TestRecordings for DPO runs, which testdata/recordings/make_dpo.py
// makes with TRL's DPOTrainer. They cover every kind of loss, and rpo_alpha, which adds the
// likelihood of chosen answers. The tied one has every stage of the others; without long tests only
// it is trained in all ways.
func TestPreferenceRecordings(t *testing.T) {
	for _, name := range []string{"dpo-sigmoid", "dpo-rpo-tied", "dpo-ipo", "dpo-hinge"} {
		dir := filepath.Join("testdata/recordings", name)
		for variant, extra := range map[string]string{
			"default": "",
			"copy":    "binding: copy\nrecompute: full\npipeline: {micro_batch_tokens: 30, chunk_tokens: 8, head_shards: 3}",
			"lanes":   "binding: copy\ndevices: 3\npipeline: {micro_batch_tokens: 30}",
			"gpu":     "device: cuda\ncompute_dtype: fp32\npipeline: {micro_batch_tokens: 30, head_shards: 2}",
			"host":    "binding: copy\nhidden_states: host\npipeline: {micro_batch_tokens: 1, chunk_tokens: 8}",
		} {
			t.Run(name+"/"+variant, func(t *testing.T) {
				if testkit.Race && variant == "gpu" {
					t.Skip("slow under the race detector, which runs shorter trainings on the GPU")
				}
				if variant != "default" {
					if testkit.NotShort(t); name != "dpo-rpo-tied" {
						testkit.LongOnly(t)
					}
				}
				out, h := t.TempDir(), settings.Hooks{}
				if variant == "gpu" {
					h.Symbols = emulate(t, emu.Options{Threads: 1})
				}
				runTrain(t, fixtureConfig(t, dir, out, extra), h)
				var want expected
				readJSON(t, filepath.Join(dir, "expected.json"), &want)
				compareSteps(t, out, want, want.Bounds["fp32"])
				compareRewards(t, filepath.Join(dir, "expected.json"), scene{out: out})
				compareWeights(t, filepath.Join(dir, "model"), filepath.Join(dir, "final.safetensors"), out, want.Bounds["fp32"].Weights, false)
			})
		}
	}
}

// compareRewards compares rewards and log-probabilities of each step with TRL's. A log-probability
// is up to 100, and a reward is a difference of log-probabilities, so both err by a few ulps of
// 100.
func compareRewards(t *testing.T, file string, s scene) {
	t.Helper()
	var want struct{ Steps []map[string]float64 }
	readJSON(t, file, &want)
	for i, line := range s.metrics(t) {
		var got map[string]any
		testkit.NoError(t, json.Unmarshal([]byte(line), &got))
		for _, key := range []string{"rewards/chosen", "rewards/rejected", "rewards/accuracies", "rewards/margins", "logps/chosen", "logps/rejected"} {
			if x, ok := got[key].(float64); !ok || !(math.Abs(x-want.Steps[i][key]) <= 1e-4) {
				t.Errorf("step %d: %s %v, recorded %v", i+1, key, got[key], want.Steps[i][key])
			}
		}
	}
}
