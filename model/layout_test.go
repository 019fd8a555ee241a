package model

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
)

func experts(t *testing.T) *Config {
	t.Helper()
	c := testkit.Must(FromInline(map[string]any{"model_type": "qwen3_moe", "vocab_size": 20, "hidden_size": 12, "intermediate_size": 10,
		"num_hidden_layers": 3, "num_attention_heads": 2, "head_dim": 6, "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 7,
		"mlp_only_layers": []any{1}}, "x"))(t)
	return c
}

// TestExpertLayers: a block with experts becomes an Attention layer and a MoE layer, and the MoE
// layer has one part for the router and one per expert.
func TestExpertLayers(t *testing.T) {
	c := experts(t)
	var kinds []string
	for i, l := range c.Layers() {
		kinds = append(kinds, l.Kind.String())
		if l.Index != i {
			t.Errorf("layer %d has index %d", i, l.Index)
		}
	}
	if want := strings.Fields("embedding attention moe block attention moe head"); !slices.Equal(kinds, want) {
		t.Fatalf("layers %v", kinds)
	}
	moe := c.Layers()[5]
	if moe.Block != 2 || moe.Parts() != 4 || c.Layers()[4].Parts() != 1 {
		t.Errorf("block %d of %d parts", moe.Block, moe.Parts())
	}
	var names []string
	for _, p := range moe.Params {
		if p.F32 != (p.Role == RoleRouter) || p.Role == RoleRouter && !p.Decay() {
			t.Errorf("%s: fp32 %t, decay %t", p.Role, p.F32, p.Decay())
		}
		if p.Part <= 1 {
			for _, part := range p.Stored {
				names = append(names, strings.TrimPrefix(part.Name, "model.layers.2."))
			}
		}
	}
	want := []string{"post_attention_layernorm.weight", "mlp.gate.weight", "mlp.experts.0.gate_proj.weight", "mlp.experts.0.up_proj.weight",
		"mlp.experts.0.down_proj.weight"}
	if !slices.Equal(names, want) {
		t.Errorf("got %q", names)
	}
}

// TestParts: the parts of a layout follow each other without a gap and cover it. Layout.Part equals
// NewLayout of the part's parameters alone.
func TestParts(t *testing.T) {
	for _, bf16 := range []bool{false, true} {
		for _, whole := range experts(t).Layouts(bf16) {
			var tile, elem int64
			for k := range whole.Parts() {
				at, part := whole.PartRange(k), whole.Part(k)
				if at.TileOff != tile || at.Elem != elem {
					t.Fatalf("%s part %d is at %+v, want tile %d, element %d", whole.Kind, k, at, tile, elem)
				}
				tile, elem = tile+at.TileBytes, elem+at.Elems
				if whole.Parts() == 1 && !reflect.DeepEqual(part, whole) {
					t.Errorf("%s: its only part is %+v, want %+v", whole.Kind, part, whole)
				}
				if whole.Parts() > 1 {
					alone := NewLayout(Layer{Index: whole.Index, Kind: whole.Kind, Block: whole.Block, Params: part.Params}, bf16, Param{})
					if !reflect.DeepEqual(part, alone) {
						t.Errorf("%s part %d: %+v, want %+v", whole.Kind, k, part, alone)
					}
				}
				if part.Tensor(RoleRouter).BF16 {
					t.Error("the router is streamed in bf16")
				}
			}
			if tile != whole.TileBytes || elem != whole.Elems {
				t.Errorf("%s: the parts have %d bytes and %d elements of %d and %d", whole.Kind, tile, elem, whole.TileBytes, whole.Elems)
			}
		}
	}
}

func TestPartOutOfRange(t *testing.T) {
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "part 4 of layer 2, which has 4") {
			t.Errorf("panic %q", r)
		}
	}()
	experts(t).Layouts(true)[2].PartRange(4)
}

// TestAttendedPairs: AttendedPairs agrees with counting each (query, key) pair, for full attention,
// windows and chunks.
func TestAttendedPairs(t *testing.T) {
	for _, c := range []*Config{
		{NumLayers: 3},
		{NumLayers: 2, SlidingWindow: 4},
		{NumLayers: 3, SlidingWindow: 2, Sliding: []bool{true, false, true}},
		{NumLayers: 3, ChunkSize: 3, ChunkedAttention: []bool{true, false, true}},
	} {
		for n := range 9 {
			var want int64
			for b := range c.NumLayers {
				for q := range n {
					sees := q + 1
					if w := c.Window(b); w > 0 {
						sees = min(sees, w)
					}
					if size := c.AttentionChunk(b); size > 0 {
						sees = q%size + 1
					}
					want += int64(sees)
				}
			}
			if got := c.AttendedPairs(n); got != want {
				t.Errorf("window %d %v, %d tokens: %d pairs, want %d", c.SlidingWindow, c.Sliding, n, got, want)
			}
		}
	}
}

// TestTensorsAreAligned: every tensor begins at a multiple of 256 bytes in the tile and of ElemAlign elements in the
// gradient, after the tensor before it. A tile's size is a multiple of 256 bytes too.
func TestTensorsAreAligned(t *testing.T) {
	for name, c := range map[string]*Config{"experts": experts(t), "tiny": preset(t, "tiny")} {
		c.QKVBias, c.QKNorm, c.HeadDim = true, true, 5 // tensors of odd sizes
		for _, bf16 := range []bool{false, true} {
			for _, l := range c.Layouts(bf16) {
				tile, elem := int64(0), int64(0)
				for _, tl := range l.Tensors {
					if tl.TileOff%tileAlign != 0 || tl.Elem%ElemAlign != 0 || tl.TileOff < tile || tl.Elem < elem {
						t.Errorf("%s layer %d %s: at byte %d and element %d; the one before ends at %d and %d", name, l.Index, tl.Role, tl.TileOff, tl.Elem, tile, elem)
					}
					tile, elem = tl.TileOff+tl.TileBytes(), tl.Elem+tl.Elems()
				}
				if l.TileBytes%tileAlign != 0 || l.SlotBytes%tileAlign != 0 || l.SlotBytes < tile || l.Elems%ElemAlign != 0 || l.GradElems < elem {
					t.Errorf("%s layer %d: tile of %d bytes, slot of %d, %d and %d elements", name, l.Index, l.TileBytes, l.SlotBytes, l.Elems, l.GradElems)
				}
			}
		}
	}
}

// TestExpertDefaults: missing keys have the defaults of Transformers' Qwen3MoeConfig.
func TestExpertDefaults(t *testing.T) {
	c := testkit.Must(ParseConfig([]byte(`{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 2,
		"num_attention_heads": 4, "intermediate_size": 96, "vocab_size": 100}`), "config.json"))(t)
	if c.NumExperts != 128 || c.NumExpertsPerTok != 8 || c.MoEIntermediateSize != 768 || c.NormTopKProb || c.DecoderSparseStep != 1 ||
		len(c.MLPOnlyLayers) != 0 || c.OutputRouterLogits || c.RouterAuxLossCoef != 0.001 {
		t.Errorf("%+v", c)
	}
}
