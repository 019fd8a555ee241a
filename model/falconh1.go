package model

import (
	"cmp"
	"math"
	"slices"
)

// Falcon-H1 has a Mamba-2 mixer beside attention in every block. It multiplies activations by factors, where other
// models would scale the initial values of weights. Source: arXiv:2507.22448; transformers.FalconH1Config.
func init() {
	register(family{
		arch: "FalconH1ForCausalLM", modelType: "falcon_h1",
		tensors: tensors{
			RoleMLPNorm: {"pre_ff_layernorm.weight"}, RoleFinalNorm: {"final_layernorm.weight"},
			RoleGateUp: {"feed_forward.gate_proj.weight", "feed_forward.up_proj.weight"}, RoleDown: {"feed_forward.down_proj.weight"},
			RoleGateUpBias: {"feed_forward.gate_proj.bias", "feed_forward.up_proj.bias"}, RoleDownBias: {"feed_forward.down_proj.bias"},
		},
		defaults: map[string]any{"vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
			"num_key_value_heads": 8, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "mamba_d_ssm": 1024, "mamba_d_head": "auto"},
		keys: slices.Concat([]string{"attention_bias", "mlp_bias", "projectors_bias", "mamba_d_ssm", "mamba_rms_norm", "mamba_norm_before_gate", "mamba_use_mlp",
			"embedding_multiplier", "lm_head_multiplier", "mlp_multipliers", "key_multiplier", "attention_in_multiplier", "attention_out_multiplier",
			"ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier"}, mamba2Keys),
		options: (*Config).falconH1,
		write:   (*Config).falconH1JSON,
	})
}

func (c *Config) falconH1(f *fields) {
	c.biases(f)
	c.MLPBias = f.bool("mlp_bias", false)
	inner := f.int("mamba_d_ssm", 0, 1, maxFFN)
	if inner == 0 {
		inner = f.int("mamba_expand", 2, 1, 64) * c.HiddenSize
	}
	c.Mamba2, c.Beside = c.mamba2Fields(f, inner), true
	if c.Mamba2.NoNorm = !f.bool("mamba_rms_norm", false); !c.Mamba2.NoNorm && f.bool("mamba_norm_before_gate", true) {
		f.fail("mamba_norm_before_gate", "true: a norm of the mixer's output before its gate is not supported")
	}
	if f.bool("projectors_bias", false) != c.Mamba2.Bias {
		f.fail("projectors_bias", "%t, and mamba_proj_bias is %t: other biases than both are not supported", !c.Mamba2.Bias, c.Mamba2.Bias)
	}
	if c.Activation != SiLU {
		f.fail("hidden_act", "%q is not supported, only silu", f.str("hidden_act", ""))
	}
	c.falconH1Multipliers(f)
}

// falconH1Multipliers reads Falcon-H1's factors on activations. The factors of attention's input
// and of the keys become a factor on the scores. The factors of attention's input and output become
// a factor on the values.
func (c *Config) falconH1Multipliers(f *fields) {
	read := func(key string) float64 { return f.float(key, 1, minMultiplier, maxMultiplier) }
	list := func(key string, n int) []float64 {
		x := f.floats(key, minMultiplier, maxMultiplier)
		if x == nil {
			x = slices.Repeat([]float64{1}, n)
		}
		if len(x) != n {
			f.fail(key, "%d factors, want %d", len(x), n)
			x = make([]float64, n)
		}
		return x
	}
	in, scan := read("attention_in_multiplier"), read("ssm_in_multiplier")
	if c.QKVBias && in != 1 {
		f.fail("attention_in_multiplier", "%g with attention_bias is not supported", in)
	}
	if c.Mamba2.Bias && scan != 1 {
		f.fail("ssm_in_multiplier", "%g with mamba_proj_bias is not supported", scan)
	}
	if c.OBias && read("attention_out_multiplier") != 1 || c.MLPBias && list("mlp_multipliers", 2)[1] != 1 || c.Mamba2.Bias && read("ssm_out_multiplier") != 1 {
		f.fail("attention_out_multiplier", "factors on outputs with biases are not supported")
	}
	c.EmbedScale, c.LogitScale = read("embedding_multiplier"), read("lm_head_multiplier")
	c.AttnScale = in * in * read("key_multiplier") / math.Sqrt(float64(c.HeadDim))
	mlp, by := list("mlp_multipliers", 2), list("ssm_multipliers", 5)
	m := Multipliers{Value: in * read("attention_out_multiplier"), Gate: mlp[0], Down: mlp[1], ScanOut: read("ssm_out_multiplier")}
	for i := range m.ScanIn {
		m.ScanIn[i] = scan * by[i]
	}
	c.Multipliers = &m
}

func (c *Config) falconH1JSON(m map[string]any) {
	r, by := c.Mamba2, c.Multipliers
	r.json(m)
	m["mamba_d_ssm"], m["mamba_rms_norm"], m["mamba_norm_before_gate"], m["projectors_bias"] = r.Inner(), !r.NoNorm, false, r.Bias
	m["attention_bias"], m["mlp_bias"] = c.QKVBias, c.MLPBias
	m["embedding_multiplier"], m["lm_head_multiplier"] = float(cmp.Or(c.EmbedScale, 1)), float(cmp.Or(c.LogitScale, 1))
	m["key_multiplier"], m["attention_out_multiplier"] = float(c.AttnScale*math.Sqrt(float64(c.HeadDim))), float(by.Value)
	m["mlp_multipliers"], m["ssm_out_multiplier"] = []float{float(by.Gate), float(by.Down)}, float(by.ScanOut)
	scan := make([]float, len(by.ScanIn))
	for i, x := range by.ScanIn {
		scan[i] = float(x)
	}
	m["ssm_multipliers"] = scan
}
