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

// TestPreferenceRecordings is TestRecordings for runs on pairs, which testdata/recordings/make_dpo.py makes with TRL's
// DPOTrainer: with every kind of loss, and with the likelihood of chosen answers beside one. The last, which has all
// stages that the others have, is trained in every way where long tests are left out.
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

// compareRewards compares rewards and log-probabilities of steps with TRL's. The latter are up to 100, and rewards are
// differences of these: their error is some ulps of 100.
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
