package run

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"mt/cudart/emu"
	"mt/internal/run/settings"
	"mt/internal/testkit"
	"mt/model"
)

// withIndexer copies the recording deepseekv3-wide and gives each of its blocks an indexer that chooses topK keys. The
// copy has the architecture arch and the given model type. Indexer weights are arbitrary, and the recorded final
// weights get the same ones.
func withIndexer(t *testing.T, arch, modelType string, topK int) string {
	t.Helper()
	from, dir := "testdata/recordings/deepseekv3-wide", t.TempDir()
	testkit.NoError(t, os.Mkdir(filepath.Join(dir, "model"), 0o755))
	for _, name := range []string{"expected.json", "recipe.json", "train.jsonl", "final.safetensors", "model/config.json", "model/model.safetensors"} {
		write(t, filepath.Join(dir, name), string(testkit.Must(os.ReadFile(filepath.Join(from, name)))(t)))
	}
	var config map[string]any
	readJSON(t, filepath.Join(dir, "model/config.json"), &config)
	config["architectures"], config["model_type"] = []string{arch}, modelType
	config["index_topk"], config["index_n_heads"], config["index_head_dim"] = topK, 3, 8
	write(t, filepath.Join(dir, "model/config.json"), string(testkit.Must(json.Marshal(config))(t)))
	c := testkit.Must(model.LoadDir(filepath.Join(dir, "model")))(t)
	for _, name := range []string{"model/model.safetensors", "final.safetensors"} {
		addTensors(t, filepath.Join(dir, name), c)
	}
	return dir
}

// addTensors adds the tensors of c's indexers, with arbitrary values, to the safetensors file called name.
func addTensors(t *testing.T, name string, c *model.Config) {
	t.Helper()
	st := testkit.Must(os.Stat(name))(t)
	raw := testkit.Must(os.ReadFile(name))(t)
	at := int(st.Size()) - 8 - int(binary.LittleEndian.Uint64(raw)) // bytes of all tensors so far
	added := map[string]any{}
	for _, l := range c.Layers() {
		for _, p := range l.Params {
			if !p.InIndexer() {
				continue
			}
			n := 4 * int(p.Elems())
			added[p.Stored[0].Name] = map[string]any{"dtype": "F32", "shape": p.StoredShape(0), "data_offsets": []int{at, at + n}}
			for i := range n / 4 {
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(math.Sin(float64(at+4*i)))))
			}
			at += n
		}
	}
	if len(added) != 5*c.NumLayers {
		t.Fatalf("%d tensors of indexers in %d blocks", len(added), c.NumLayers)
	}
	write(t, name, string(raw))
	header(t, name, func(h map[string]any) {
		for k, v := range added {
			h[k] = v
		}
	})
}

// TestIndexerOfShortDocuments: if no document is longer than index_topk, an indexer chooses all keys. Then both families
// with indexers train as Transformers recorded it for DeepseekV3ForCausalLM, whose other mathematics is the same, and
// the indexers' weights stay as they are.
func TestIndexerOfShortDocuments(t *testing.T) {
	const longest = 13 // tokens of the longest recorded row
	for arch, modelType := range map[string]string{"GlmMoeDsaForCausalLM": "glm_moe_dsa", "DeepseekV32ForCausalLM": "deepseek_v32"} {
		dir := withIndexer(t, arch, modelType, longest)
		var want expected
		readJSON(t, filepath.Join(dir, "expected.json"), &want)
		for _, way := range []string{"default", "copy", "lanes", "cuda-fp32"} {
			t.Run(fmt.Sprint(modelType, "/", way), func(t *testing.T) {
				if way != "default" {
					testkit.NotShort(t)
				}
				if way == "cuda-fp32" {
					testkit.LongOnly(t)
				}
				c := fixtureConfig(t, dir, t.TempDir(), recordingWays[way])
				var h settings.Hooks
				if c.Device == "cuda" {
					h.Symbols = emulate(t, emu.Options{Threads: 1})
				}
				runTrain(t, c, h)
				compareSteps(t, c.OutputDir, want, want.Bounds["fp32"])
				compareWeights(t, filepath.Join(dir, "model"), filepath.Join(dir, "final.safetensors"), c.OutputDir, want.Bounds["fp32"].Weights, false)
			})
		}
	}
}
