package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

// woven is a made-up family that stores parameters in every way that a checkpoint may: experts
// stacked and transposed with alternating rows, queries, keys and values by heads, and a transposed
// matrix of its own.
var woven = family{
	arch: "WovenForCausalLM", modelType: "woven", keys: append([]string{"attention_bias"}, expertKeys...),
	places: map[Role]placed{
		RoleQKV:          {tensor: "attn.qkv.weight", woven: byHeads},
		RoleQKVBias:      {tensor: "attn.qkv.bias", transposed: true},
		RoleO:            {transposed: true},
		RoleExpertGateUp: {tensor: "mlp.gate_up", experts: true, transposed: true, woven: byRows},
		RoleExpertDown:   {tensor: "mlp.down", experts: true},
	},
	options: func(c *Config, f *fields) {
		c.biases(f)
		c.experts(f)
	},
	write: func(*Config, map[string]any) {},
}

// withFamily registers f until the test ends.
func withFamily(t *testing.T, f family) {
	before := slices.Clone(families)
	t.Cleanup(func() { families = before })
	register(f)
}

// TestPlaces: ElemAt finds each parameter's elements where the family says. All parameters of a
// layer together fill the checkpoint's tensors, each element once.
func TestPlaces(t *testing.T) {
	withFamily(t, woven)
	c := testkit.Must(FromInline(map[string]any{"model_type": "woven", "vocab_size": 9, "hidden_size": 10, "intermediate_size": 3, "num_hidden_layers": 1,
		"num_attention_heads": 3, "head_dim": 2, "attention_bias": true, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4}, "t"))(t)
	at := map[string]int64{} // of row 3, column 1 (a vector's row 3), by name
	for _, l := range c.Layers() {
		seen, size, shapes := map[string][]bool{}, map[string]int64{}, map[string]string{}
		for _, p := range l.Params {
			for i, s := range p.Stored {
				n := int64(1)
				for _, d := range p.TensorShape(i) {
					n *= d
				}
				if shape := fmt.Sprint(p.TensorShape(i)); shapes[s.Tensor()] != "" && shapes[s.Tensor()] != shape {
					t.Errorf("%s is %s and %s", s.Tensor(), shapes[s.Tensor()], shape)
				} else if shapes[s.Tensor()] == "" {
					shapes[s.Tensor()], size[s.Tensor()], seen[s.Tensor()] = shape, n, make([]bool, n)
				}
				for row := range s.Rows {
					for col := range p.Cols {
						e := p.ElemAt(i, row, col)
						if seen[s.Tensor()][e] {
							t.Fatalf("%s: row %d, column %d of %s is element %d, as another is", s.Tensor(), row, col, s.Name, e)
						}
						seen[s.Tensor()][e] = true
						if row == 3 && col == min(1, p.Cols-1) {
							at[s.Name] = e
						}
					}
				}
			}
		}
		for name, all := range seen {
			if slices.Contains(all, false) {
				t.Errorf("%s: an element belongs to nothing", name)
			}
		}
		if l.Kind == MoE && (shapes["model.layers.0.mlp.gate_up"] != "[2 10 8]" || shapes["model.layers.0.mlp.down"] != "[2 10 4]") {
			t.Errorf("shapes %v", shapes)
		}
		if l.Kind == Attention && (shapes["model.layers.0.attn.qkv.weight"] != "[18 10]" || shapes["model.layers.0.attn.qkv.bias"] != "[18]" ||
			shapes["model.layers.0.self_attn.o_proj.weight"] != "[6 10]") {
			t.Errorf("shapes %v", shapes)
		}
	}
	for name, want := range map[string]int64{
		"self_attn.q_proj.weight":        7*10 + 1, // second head, which begins at row 6
		"self_attn.v_proj.weight":        (6+4+1)*10 + 1,
		"self_attn.k_proj.bias":          6 + 3,
		"self_attn.o_proj.weight":        1*10 + 3,
		"mlp.experts.1.gate_proj.weight": 80 + 1*8 + 6, "mlp.experts.1.up_proj.weight": 80 + 1*8 + 7,
		"mlp.experts.1.down_proj.weight": 40 + 3*4 + 1, "input_layernorm.weight": 3,
	} {
		if got := at["model.layers.0."+name]; got != want {
			t.Errorf("%s: element %d, want %d", name, got, want)
		}
	}
}

// TestWithoutQuantization: a config.json with MXFP4 weights is read. The one written for it lacks
// quantization_config, wherever in the text the key was, and is otherwise the same.
func TestWithoutQuantization(t *testing.T) {
	const rest = `"model_type": "gpt_oss", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1`
	const packed = `"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["a", "b"]}`
	for _, text := range []string{"{" + packed + ", " + rest + "}", "{" + rest + ",\n " + packed + "\n}", `{"dtype": "bfloat16", ` + packed + " , " + rest + "}"} {
		c, err := ParseConfig([]byte(text), "f")
		if err != nil || c.Quantized == nil || c.Quantized.Method != "mxfp4" {
			t.Fatal(err)
		}
		var got, want map[string]any
		if err := json.Unmarshal(c.JSON("float32"), &got); err != nil {
			t.Fatalf("%s: %v", c.JSON("float32"), err)
		}
		testkit.NoError(t, json.Unmarshal([]byte("{"+rest+"}"), &want))
		delete(got, "dtype")
		delete(got, "torch_dtype")
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %v", got)
		}
	}
	for _, text := range []string{`{"quantization_config": {"quant_method": "bitsandbytes"}, ` + rest + "}", `{"model_type": "llama", ` + packed + "}"} {
		if _, err := ParseConfig([]byte(text), "f"); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

// TestQuantized: the supported forms of quantization_config are read, JSON leaves the key out of
// the text it writes, and errors explain why other formats are refused.
func TestQuantized(t *testing.T) {
	const rest = `"model_type": "llama", "vocab_size": 9, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 1`
	group := func(keys, weights string) string {
		return `{"quant_method": "compressed-tensors", "config_groups": {"group_0": {` + keys + `"weights": {` + weights + `}, "input_activations": {"dynamic": false}}}}`
	}
	for text, want := range map[string]Quantized{
		`{"quant_method": "fp8"}`: {Method: "fp8", BlockRows: 128, BlockCols: 128},
		`{"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [64, 32], "activation_scheme": "dynamic", "ignored_layers": ["gate"]}`: {Method: "fp8", BlockRows: 64, BlockCols: 32},
		`{"quant_method": "fp8", "weight_block_size": null, "activation_scheme": "static", "scale_fmt": "ue8m0"}`:                                    {Method: "fp8", PowersOfTwo: true, StaticActivations: true},
		group(`"format": "float-quantized", `, `"type": "float", "num_bits": 8, "strategy": "channel"`):                                              {Method: "compressed-tensors", StaticActivations: true},
		group("", `"type": "float", "num_bits": 8, "strategy": "block", "block_structure": [128, 64]`):                                               {Method: "compressed-tensors", StaticActivations: true, BlockRows: 128, BlockCols: 64},
	} {
		text = `{"quantization_config": ` + text + ", " + rest + "}"
		c, err := ParseConfig([]byte(text), "f")
		if err != nil || c.Quantized == nil || *c.Quantized != want {
			t.Errorf("%s: %+v, %v", text, c, err)
			continue
		}
		if out := string(c.JSON("bfloat16")); strings.Contains(out, "quantization") {
			t.Errorf("%s becomes %s", text, out)
		}
		if out := string(c.JSONAsRead()); out != text {
			t.Errorf("%s becomes %s", text, out)
		}
	}
	for text, want := range map[string]string{
		`{"quant_method": "fp8", "fmt": "e5m2"}`:                                            `fmt: quantized weights in "e5m2" are not read, only E4M3: E5M2 keeps 2 bits of each fraction; take the directory that it was made from`,
		`{"quant_method": "fp8", "weight_block_size": [128]}`:                               "weight_block_size: [128] is not a number of rows and a number of columns",
		`{"quant_method": "fp8", "expert_dtype": "fp4"}`:                                    `expert_dtype: "fp4": experts packed in 4 bits`,
		`{"quant_method": "fp8", "activation_scheme": "odd"}`:                               `activation_scheme: "odd" is neither`,
		`{"quant_method": "mxfp4"}`:                                                         `quant_method: "mxfp4" is read for experts of gpt_oss only`,
		`{"quant_method": "awq"}`:                                                           `quantized weights of "awq" are not read, only fp8 (E4M3) and mxfp4: weights are integers of 4 bits, packed by AWQ; take`,
		`{"quant_method": "bitsandbytes", "load_in_4bit": true}`:                            "call model.dequantize() and save_pretrained()",
		`{"quant_method": "new"}`:                                                           "mt does not know this format; take the directory that it was made from",
		group(`"format": "nvfp4-pack-quantized", `, `"type": "float", "num_bits": 4`):       `format: quantized weights in "nvfp4-pack-quantized" are not read, only float-quantized (E4M3); take`,
		group("", `"type": "int", "num_bits": 8`):                                           "quantized weights of type int with 8 bits are not read",
		group("", `"type": "float", "num_bits": 8, "strategy": "group"`):                    `strategy: "group" is not read, only tensor, channel and block`,
		`{"quant_method": "compressed-tensors", "format": "pack-quantized"}`:                "config_groups: missing",
		`{"quant_method": "compressed-tensors", "format": "x", "config_groups": {"a": {}}}`: `format: quantized weights in "x" are not read`,
		`{"quant_method": "compressed-tensors", "config_groups": {"a": 3}}`:                 "a: 3 is not a mapping",
	} {
		if _, err := ParseConfig([]byte(`{"quantization_config": `+text+", "+rest+"}"), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	nested := []byte(`{"model_type": "mistral3", "text_config": {"num_hidden_layers": 1, "quantization_config": {"quant_method": "fp8"}}}`)
	c := testkit.Must(ParseConfig(nested, "f"))(t)
	if out := string(c.JSON("bfloat16")); c.Quantized == nil || strings.Contains(out, "quantization") || !strings.Contains(out, "num_hidden_layers") {
		t.Errorf("%+v becomes %s", c.Quantized, out)
	}
}
