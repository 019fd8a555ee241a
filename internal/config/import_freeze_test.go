package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFreezeTuning: LLaMA-Factory's freeze trains the layers and modules that it would train over there.
func TestFreezeTuning(t *testing.T) {
	dir := t.TempDir()
	conf := `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 6,
		"num_attention_heads": 2, "vocab_size": 48, "rms_norm_eps": 1e-5}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(conf), 0o644); err != nil {
		t.Fatal(err)
	}
	head := func(model string) string {
		return fmt.Sprintf("stage: sft\ndo_train: true\nfinetuning_type: freeze\nmodel_name_or_path: %s\ndataset: chats.jsonl\n", model)
	}
	for keys, want := range map[string][]string{
		"":                               {`\.4\.`, `\.5\.`},
		"freeze_trainable_layers: 1\n":   {`\.5\.`},
		"freeze_trainable_layers: -2\n":  {`\.0\.`, `\.1\.`},
		"freeze_trainable_layers: 9\n":   {`\.0\.`, `\.1\.`, `\.2\.`, `\.3\.`, `\.4\.`, `\.5\.`},
		"freeze_trainable_layers: -99\n": {`\.0\.`, `\.1\.`, `\.2\.`, `\.3\.`, `\.4\.`, `\.5\.`},
		"freeze_trainable_layers: 3\nuse_llama_pro: true\n":                                                               {`\.1\.`, `\.3\.`, `\.5\.`},
		"freeze_trainable_layers: 1\nfreeze_trainable_modules: mlp, self_attn\nfreeze_extra_modules: embed_tokens,norm\n": {`\.5\.mlp`, `\.5\.self_attn`, "embed_tokens", "norm"},
	} {
		if c := mustParse(t, head(dir)+keys); !slices.Equal(c.Unfrozen, want) || len(c.Freeze) > 0 {
			t.Errorf("%q: unfrozen_parameters %q, want %q", keys, c.Unfrozen, want)
		}
	}
	for text, want := range map[string]string{
		head("org/nothing-here"):                                                "finetuning_type: freeze: not possible: how many layers the model has says its directory: org/nothing-here: no such directory",
		head(dir) + "freeze_trainable_layers: 0\n":                              "freeze_trainable_layers is 0: it wants a number of layers",
		head(dir) + "freeze_trainable_layers: all\n":                            "freeze_trainable_layers is all: it wants a number of layers",
		head(dir) + "freeze_trainable_layers: 4\nuse_llama_pro: true\n":         "use_llama_pro wants freeze_trainable_layers, 4, to divide the model's 6 layers",
		strings.Replace(head(dir), "freeze", "lora", 1) + "use_llama_pro: true": "use_llama_pro: true: not possible",
	} {
		if _, err := Parse("t.yaml", []byte(text), Args{}); err == nil || !IsUsage(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	v1 := fmt.Sprintf("model_class: llm\nmodel: %s\ntrain_dataset: chats.jsonl\npeft_config: {name: freeze, freeze_trainable_layers: -1, freeze_trainable_modules: mlp, freeze_extra_modules: norm}\n", dir)
	if c := mustParse(t, v1); !slices.Equal(c.Unfrozen, []string{`\.0\.mlp`, "norm"}) {
		t.Errorf("of examples/v1: unfrozen_parameters %q", c.Unfrozen)
	}
	if _, err := Parse("t.yaml", []byte(strings.Replace(v1, "name: freeze", "name: lora", 1)), Args{}); err == nil || !strings.Contains(err.Error(), "adapters are not supported") {
		t.Errorf("an adapter of examples/v1: %v", err)
	}
	full := strings.Replace(head(dir), "freeze", "full", 1) + "freeze_trainable_layers: 4\n"
	if c := mustParse(t, full); len(c.Unfrozen) > 0 {
		t.Errorf("full fine-tuning trains %q", c.Unfrozen)
	}
}
