package model

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"mt/internal/testkit"
)

// woven is a family with every way of storing parameters in a checkpoint: experts stacked and transposed with
// alternating rows; queries, keys and values by heads; and a transposed matrix of its own.
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

// withFamily makes f known until the test ends.
func withFamily(t *testing.T, f family) {
	before := slices.Clone(families)
	t.Cleanup(func() { families = before })
	register(f)
}

// TestPlaces: rows lie where the family says, and the tensors of a layer are filled, each element once.
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

// TestWithoutQuantization: a directory in MXFP4 is read, and the config.json written for it does not mention
// quantization, wherever the key was.
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
