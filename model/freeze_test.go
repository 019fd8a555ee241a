package model

import (
	"strings"
	"testing"

	"mt/internal/testkit"
)

// frozenConfig is a small Llama with four blocks and a head that is not tied to the embedding.
func frozenConfig() *Config {
	return &Config{Arch: "LlamaForCausalLM", ModelType: "llama", VocabSize: 96, HiddenSize: 16, IntermediateSize: 32, NumLayers: 4,
		NumHeads: 4, NumKVHeads: 2, HeadDim: 4, MaxPositions: 64, RMSNormEps: 1e-5, Rope: Rope{Type: "default", Theta: 1e4}}
}

// TestFreeze: frozen tensors keep their bytes in tile and slot, but have no elements in gradients
// and optimizer state. The other tensors follow each other there without gaps.
func TestFreeze(t *testing.T) {
	c := frozenConfig()
	all := c.Layouts(true)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"embed_tokens", `layers\.[01]\.`, `layers\.2\.mlp`}}))
	for i, l := range c.Layouts(true) {
		was := all[i]
		if l.TileBytes != was.TileBytes || l.SlotBytes != was.SlotBytes || l.AllElems() != was.GradElems {
			t.Errorf("layer %d: %d bytes of a tile, %d of a slot, want %d and %d; %d elements, want %d", i, l.TileBytes, l.SlotBytes, was.TileBytes, was.SlotBytes, l.AllElems(), was.GradElems)
		}
		wholly := i <= 2
		switch {
		case wholly && (l.Elems != 0 || l.GradElems != 0 || l.Split()):
			t.Errorf("layer %d is frozen and has %d elements, %d of its gradient, lower halves %t", i, l.Elems, l.GradElems, l.Split())
		case i == 3 && !(0 < l.Elems && l.Elems < was.Elems):
			t.Errorf("layer %d has %d elements, %d without a frozen MLP", i, l.Elems, was.Elems)
		case i > 3 && (l.Elems != was.Elems || !l.Split()):
			t.Errorf("layer %d has %d elements, want %d", i, l.Elems, was.Elems)
		}
		end := int64(0)
		for _, x := range l.Tensors {
			frozen := wholly || i == 3 && strings.Contains(x.Stored[0].Name, ".mlp.")
			if x.Frozen != frozen || l.HasLo(x) != (x.BF16 && !frozen) {
				t.Errorf("%s: frozen %t, want %t; a lower half %t", x.Stored[0].Name, x.Frozen, frozen, l.HasLo(x))
			}
			if x.Elem != end {
				t.Errorf("%s begins at element %d, want %d", x.Stored[0].Name, x.Elem, end)
			}
			if !frozen {
				end = roundUp(end+x.Elems(), ElemAlign)
			}
		}
	}
	if got, want := LowestTrained(c.Layouts(false)), 3; got != want {
		t.Errorf("the lowest layer that is trained is %d, want %d", got, want)
	}
	if c.TrainedParams() >= c.Params() || c.TrainedParams() < c.Params()/4 {
		t.Errorf("%d of %d parameters are trained", c.TrainedParams(), c.Params())
	}
}

// TestNamesInTheCheckpoint: Llama 4 stores all experts of a block in one tensor. Freeze and Group
// select an expert's rows by that tensor's name and also by the expert's own name.
func TestNamesInTheCheckpoint(t *testing.T) {
	c := testkit.Must(FromInline(map[string]any{"model_type": "llama4_text", "vocab_size": 96, "hidden_size": 16, "intermediate_size": 8, "intermediate_size_mlp": 24,
		"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_local_experts": 3, "interleave_moe_layer_step": 2}, "test"))(t)
	const expert = 2 * 8 * 16 // gate and up
	for name, want := range map[string]int64{`1\.feed_forward\.experts\.gate_up_proj$`: 3 * expert, `experts\.2\.(gate|up)_proj\.weight$`: expert} {
		testkit.NoError(t, c.SetGroups([]Group{{Name: "a", Modules: []string{name}}}))
		if got := c.GroupParams()[1]; got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
		testkit.NoError(t, c.SetGroups(nil))
		testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{name}}))
		if got := c.Params() - c.TrainedParams(); got != want {
			t.Errorf("%s: %d parameters are frozen, want %d", name, got, want)
		}
		c.Freeze, c.freezing = Freeze{}, freezing{}
	}
}

// TestFrozenTable: if the head is tied to a frozen embedding, the table is frozen in both layers,
// and neither has a gradient.
func TestFrozenTable(t *testing.T) {
	c := frozenConfig()
	c.TieEmbeddings = true
	testkit.NoError(t, c.SetFreeze(Freeze{But: []string{"self_attn"}}))
	layouts := c.Layouts(false)
	head := layouts[len(layouts)-1]
	if lm := head.Tensor(RoleLMHead); !lm.Ref || !lm.Frozen || head.GradElems != 0 || layouts[0].GradElems != 0 {
		t.Errorf("the table is frozen %t in the head, of which a gradient has %d elements, and %d in the embedding", lm.Frozen, head.GradElems, layouts[0].GradElems)
	}
}

// TestNothingFrozen: a Freeze whose But matches every tensor freezes nothing, which SetFreeze
// reports as an error.
func TestNothingFrozen(t *testing.T) {
	for _, name := range []string{"[lm_head]", ".", "weight$"} {
		if err := frozenConfig().SetFreeze(Freeze{But: []string{name}}); err == nil || !strings.Contains(err.Error(), "matches every tensor, so nothing is frozen") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFLOPsOfFrozen: frozen matrices save the FLOPs of their weights' gradient. Layers below the
// lowest trained one have only forward FLOPs.
func TestFLOPsOfFrozen(t *testing.T) {
	c := frozenConfig()
	const tokens, pairs = 10, 55 * 4
	all, forward := c.FLOPs(tokens, pairs), c.ForwardFLOPs(tokens, pairs)
	if all != 3*forward {
		t.Errorf("%g FLOPs, %g of them forward", all, forward)
	}
	block, head := float64(c.MatrixParams()-96*16)/4, float64(96*16)
	score := 4.0 * 4 * 4 * pairs / 4 // of the forward, in one block
	for _, x := range []struct {
		f    Freeze
		want float64
	}{
		{Freeze{Names: []string{"embed_tokens"}}, 2 * forward},
		{Freeze{Names: []string{"norm"}}, 2 * forward},
		{Freeze{But: []string{"lm_head"}}, 2 * tokens * 2 * head},
		{Freeze{But: []string{`layers\.3\.`}}, 2*tokens*(2*block+head) + 2*score},
		{Freeze{Names: []string{"embed_tokens", `layers\.[0-2]\.`, "norm", "lm_head"}}, 2*tokens*(2*block+head) + 2*score},
	} {
		c := frozenConfig()
		testkit.NoError(t, c.SetFreeze(x.f))
		if got := c.BackwardFLOPs(tokens, pairs); got != x.want {
			t.Errorf("%+v: %g FLOPs in the backward, want %g", x.f, got, x.want)
		}
	}
}

// TestFLOPsOfFrozenPositions: learned positions are added to the embedding without a matrix
// product, so they add no backward FLOPs.
func TestFLOPsOfFrozenPositions(t *testing.T) {
	c := frozenConfig()
	c.LearnedPositions = true
	want := c.BackwardFLOPs(10, 220)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"norm"}}))
	if got := c.BackwardFLOPs(10, 220); got != want {
		t.Errorf("%g FLOPs in the backward, want %g", got, want)
	}
}

// TestFLOPsBesidePredictionAhead: the head computes logits twice with multi-token prediction, also if a tensor is frozen.
func TestFLOPsBesidePredictionAhead(t *testing.T) {
	c, err := parse(t, small("glm4_moe", map[string]any{"n_routed_experts": 3, "first_k_dense_replace": 1}))
	testkit.NoError(t, err)
	testkit.NoError(t, c.PredictAhead())
	want := c.BackwardFLOPs(10, 220)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{"enorm"}}))
	if got := c.BackwardFLOPs(10, 220); got != want {
		t.Errorf("%g FLOPs in the backward, want %g", got, want)
	}
}

// TestFLOPsOfFrozenExperts: freezing the routed experts saves the weight gradients of
// NumExpertsPerTok experts a token. A shared expert counts in full, because every token passes it.
func TestFLOPsOfFrozenExperts(t *testing.T) {
	c := frozenConfig()
	c.NumExperts, c.NumExpertsPerTok, c.MoEIntermediateSize, c.DecoderSparseStep = 8, 2, 12, 1
	all := c.BackwardFLOPs(10, 0)
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{`\.experts\.`}}))
	experts := float64(4 * 2 * 3 * 12 * 16)
	if got, want := c.BackwardFLOPs(10, 0), all-2*10*experts; got != want {
		t.Errorf("%g FLOPs in the backward, want %g", got, want)
	}
	c.Freeze, c.SharedSize = Freeze{}, 20
	testkit.NoError(t, c.SetFreeze(Freeze{Names: []string{`\.shared_experts\.`}}))
	shared := float64(4 * 3 * 20 * 16)
	if got, want := c.BackwardFLOPs(10, 0), all+2*10*shared; got != want { // half of what the whole backward of it takes
		t.Errorf("%g FLOPs in the backward with a shared expert, want %g", got, want)
	}
}

// TestRefusedFreeze: SetFreeze refuses expressions that are invalid, match nothing, freeze only a
// part of one parameter, or leave nothing to train.
func TestRefusedFreeze(t *testing.T) {
	for _, x := range []struct {
		f    Freeze
		want string
	}{
		{Freeze{Names: []string{"("}}, `"(" is no regular expression`},
		{Freeze{But: []string{"["}}, `"[" is no regular expression`},
		{Freeze{Names: []string{"embed_tokens", "lora_A"}}, `"lora_A" matches no tensor; they have names such as model.embed_tokens.weight and model.layers.`},
		{Freeze{But: []string{"lora_A"}}, `"lora_A" matches no tensor`},
		{Freeze{Names: []string{"q_proj"}}, "model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight, model.layers.0.self_attn.v_proj.weight are kept as one tensor"},
		{Freeze{Names: []string{"."}}, "every tensor is frozen"},
	} {
		c := frozenConfig()
		if err := c.SetFreeze(x.f); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%+v: %v, want %s", x.f, err, x.want)
		}
	}
}
