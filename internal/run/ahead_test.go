package run

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
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

// aheadModel is an inline model with a module for multi-token prediction.
const aheadModel = `
model:
  model_type: glm4_moe
  hidden_size: 16
  intermediate_size: 24
  num_hidden_layers: 2
  num_attention_heads: 2
  num_key_value_heads: 1
  head_dim: 8
  n_routed_experts: 3
  num_experts_per_tok: 2
  moe_intermediate_size: 8
  first_k_dense_replace: 1
  vocab_size: 48
  initializer_range: 0.1
`

func aheadScene(t *testing.T, extra string) scene {
	t.Helper()
	return newScene(t, aheadModel+"train_mtp: true\n"+extra)
}

// TestAheadRun: a run with train_mtp reports the module's loss, continues from a checkpoint with the same bits, and saves
// the module under the published names. A run without train_mtp copies it and says that it is stale.
func TestAheadRun(t *testing.T) {
	testkit.NotShort(t)
	t.Cleanup(func() { checkClean(t) })
	want := aheadScene(t, "packing: true\nval_size: 3\neval_steps: 4\nsave_steps: 3\nmax_steps: 6\n")
	want.mustTrain(t)
	for _, line := range want.metrics(t) {
		var m map[string]any
		testkit.NoError(t, json.Unmarshal([]byte(line), &m))
		of, ahead := m["loss"], m["mtp_loss"]
		if of == nil {
			of, ahead = m["eval_loss"], m["eval_mtp_loss"]
		}
		if x, ok := ahead.(float64); !ok || x < 1 || x > 8 || x == of {
			t.Errorf("%s: no loss of multi-token prediction beside %v", line, of)
		}
	}
	got := want.in(t)
	copyTree(t, filepath.Join(want.out, settings.CheckpointName(3)), filepath.Join(got.out, settings.CheckpointName(3)))
	copyMetrics(t, want, got)
	got.mustTrain(t)
	sameTraffic(t, got, want)

	names := slices.Sorted(maps.Keys(tensorsIn(t, want.out)))
	for _, name := range []string{"eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight", "self_attn.q_proj.weight", "mlp.experts.2.up_proj.weight"} {
		if !slices.Contains(names, "model.layers.2."+name) {
			t.Errorf("model.layers.2.%s is not among %v", name, names)
		}
	}
	if raw := testkit.Must(os.ReadFile(filepath.Join(want.out, "config.json")))(t); !bytes.Contains(raw, []byte(`"num_nextn_predict_layers": 1`)) {
		t.Errorf("%s", raw)
	}
	plain := newScene(t, "max_steps: 2\n")
	plain.yaml = strings.Replace(plain.yaml, tinyModel, "model_name_or_path: "+want.out+"\n", 1)
	if out := plain.mustTrain(t); !strings.Contains(out, "are stale beside the weights that are trained") {
		t.Errorf("no note in\n%s", out)
	}
	for name, data := range tensorsIn(t, plain.out) {
		if strings.HasPrefix(name, "model.layers.2.") && !bytes.Equal(data, tensorsIn(t, want.out)[name]) {
			t.Errorf("%s has changed", name)
		}
	}
}

// tensorsIn returns the bytes of all tensors of the model in dir, which is in one file.
func tensorsIn(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	w := testkit.Must(checkpoint.OpenWeights(dir))(t)
	defer w.Close()
	out := map[string][]byte{}
	for _, x := range w.Tensors() {
		values := make([]float32, x.Elems())
		testkit.NoError(t, w.Read(x.Name, 0, values))
		out[x.Name] = []byte(fmt.Sprint(values))
	}
	return out
}

// TestAheadShares: tensors with which a directory repeats embedding and head for the module are saved as trained. If
// they differ from embedding and head, training does not begin.
func TestAheadShares(t *testing.T) {
	testkit.NotShort(t)
	first := aheadScene(t, "max_steps: 1\nsave_dtype: fp32\n")
	first.mustTrain(t)
	file := filepath.Join(first.out, "model.safetensors")
	pairs := map[string]string{"model.layers.2.embed_tokens.weight": "model.embed_tokens.weight", "model.layers.2.shared_head.head.weight": "lm_head.weight"}
	repeatTensors(t, file, pairs)
	s := newScene(t, "train_mtp: true\nmax_steps: 2\nsave_dtype: fp32\n").in(t)
	s.yaml = strings.Replace(s.yaml, tinyModel, "model_name_or_path: "+first.out+"\n", 1)
	s.mustTrain(t)
	before, after := tensorsIn(t, first.out), tensorsIn(t, s.out)
	for again, of := range pairs {
		if !bytes.Equal(after[again], after[of]) || bytes.Equal(after[of], before[of]) {
			t.Errorf("%s is not %s as trained", again, of)
		}
	}
	raw := testkit.Must(os.ReadFile(file))(t)
	raw[len(raw)-1] ^= 1 // an element of the last tensor, which is a repetition
	testkit.NoError(t, os.WriteFile(file, raw, 0o600))
	if _, err := s.in(t).train(t, t.Context(), settings.Hooks{}); err == nil || !strings.Contains(err.Error(), "which multi-token prediction shares: set train_mtp to false, or remove the tensor") {
		t.Errorf("got %v", err)
	}
}

// TestAheadRefused: errors name the key that train_mtp excludes, or what the model lacks.
func TestAheadRefused(t *testing.T) {
	without := newScene(t, aheadModel+"max_steps: 1\n")
	without.mustTrain(t)
	for extra, want := range map[string]string{
		"\nmodel: " + without.out + "\n": "the directory has no module for multi-token prediction, which train_mtp trains; take one that has it, or set train_mtp to false",
		tinyModel:                        "train_mtp: the multi-token prediction of LlamaForCausalLM is not supported",
		aheadModel + "sample_prompts: [a]\nsample_steps: 1\n": "sample_prompts and train_mtp do not go together",
		"\nmodel:\n  model_type: qwen3_next\n  vocab_size: 48\n  hidden_size: 16\n  num_hidden_layers: 4\n  num_attention_heads: 2\n  head_dim: 8\n  output_router_logits: true\n":                                         "output_router_logits: the balancing loss is not supported",
		"\nmodel:\n  model_type: qwen3_next\n  vocab_size: 48\n  hidden_size: 16\n  num_hidden_layers: 5\n  num_attention_heads: 2\n  head_dim: 8\n  num_experts: 4\n  num_experts_per_tok: 2\n  decoder_sparse_step: 2\n": "decoder_sparse_step or mlp_only_layers: the module",
		aheadModel + "dpo: {beta: 0.1}\n": "dpo and train_mtp do not go together",
	} {
		s := newScene(t, extra+"train_mtp: true\n")
		c, err := config.Parse("run.yaml", []byte(s.source()), config.Args{})
		if err == nil {
			err = Train(t.Context(), c, settings.Options{Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// repeatTensors adds copies of tensors to a safetensors file, by the copies' names, in their order.
func repeatTensors(t *testing.T, file string, of map[string]string) {
	t.Helper()
	raw := testkit.Must(os.ReadFile(file))(t)
	n := binary.LittleEndian.Uint64(raw)
	var header map[string]json.RawMessage
	testkit.NoError(t, json.Unmarshal(raw[8:8+n], &header))
	data := raw[8+n:]
	for _, name := range slices.Sorted(maps.Keys(of)) {
		var x struct {
			DType   string `json:"dtype"`
			Shape   []int  `json:"shape"`
			Offsets [2]int `json:"data_offsets"`
		}
		testkit.NoError(t, json.Unmarshal(header[of[name]], &x))
		at := len(data)
		data = append(data, data[x.Offsets[0]:x.Offsets[1]]...)
		x.Offsets = [2]int{at, len(data)}
		header[name] = testkit.Must(json.Marshal(x))(t)
	}
	text := testkit.Must(json.Marshal(header))(t)
	out := append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...)
	testkit.NoError(t, os.WriteFile(file, append(out, data...), 0o600))
}
