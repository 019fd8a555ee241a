package export

import "testing"

// TestGranite4: the rows of gate and up, which the directory has as one, are two tensors; that nothing turns is said.
func TestGranite4(t *testing.T) {
	for turns, finetuned := range map[string]bool{"nope": false, "rope": true} {
		config := llamaConfig(map[string]any{"architectures": []any{"GraniteMoeHybridForCausalLM"}, "model_type": "granitemoehybrid", "num_local_experts": 0,
			"layer_types": []any{"attention", "attention"}, "shared_intermediate_size": 44, "position_embedding_type": turns, "embedding_multiplier": 12.0})
		f, _ := exportGGUF(t, makeModel(t, config, tensorsFor(t, config), nil), F16)
		wantKeys(t, f, map[string]any{"general.architecture": "granite", "granite.feed_forward_length": 44, "granite.embedding_scale": 12,
			"granite.rope.scaling.finetuned": finetuned})
		for name, from := range map[string]int64{"ffn_gate": 0, "ffn_up": 44} {
			x, got := tensorOf(t, f, "blk.1."+name+".weight")
			cols := x.Shape[1]
			if x.Shape[0] != 44 {
				t.Fatalf("%s is %v", name, x.Shape)
			}
			for i, v := range got {
				if want := value("model.layers.1.shared_mlp.input_linear.weight", from*cols+int64(i)); v != want {
					t.Fatalf("%s[%d] is %v, want %v", name, i, v, want)
				}
			}
		}
	}
}

// TestLlamaCppGranite4: llama.cpp itself computes what the reference does, whether queries and keys turn or not.
func TestLlamaCppGranite4(t *testing.T) {
	run := python(t, "xllamacpp", "llama_cpp_py_sync")
	for _, turns := range []any{nil, "rope"} {
		sameLogits(t, run, recordedModel(t, "granite4-nope", map[string]any{"position_embedding_type": turns}), 1e-5)
	}
}
