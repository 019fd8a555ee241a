package checkpoint

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// TestSplitJoin: splitting an fp32 weight into bf16 and lower half and joining them gives the same
// bits. The test takes every upper half, with lower halves around the rounding ties.
func TestSplitJoin(t *testing.T) {
	c := config(t, nil)
	l := newLayers(c, true)[0]
	tensor := l.Layout.Tensors[0]
	buf := make([]byte, 4)
	for hi := range 1 << 16 {
		for _, lo := range []uint32{0, 1, 0x7fff, 0x8000, 0x8001, 0xffff} {
			bits := uint32(hi)<<16 | lo
			l.setWeights(tensor, 3, []uint32{bits})
			got := l.encode(tensor, planeF32, 3, 1, buf)
			if g := uint32(got[0]) | uint32(got[1])<<8 | uint32(got[2])<<16 | uint32(got[3])<<24; g != bits {
				t.Fatalf("%08x came back as %08x", bits, g)
			}
		}
	}
}

func TestHiOf(t *testing.T) {
	for _, tc := range []struct {
		bits uint32
		want uint16
	}{
		{0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f81}, {0xbf808000, 0xbf81}, {0x3f818000, 0x3f82},
		{0x7f7fffff, 0x7f80}, {0x7f800000, 0x7f80}, {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}, {0x7fffffff, 0x7fff}, {0xffffffff, 0xffff},
	} {
		if got := hiOf(tc.bits); got != tc.want {
			t.Errorf("%08x: got %04x, want %04x", tc.bits, got, tc.want)
		}
	}
}

// TestHalfBits: every half-precision number is converted to the fp32 value that IEEE's definition
// gives it.
func TestHalfBits(t *testing.T) {
	for h := range 1 << 16 {
		exp, frac := h>>10&31, float64(h&0x3ff)
		want := math.Ldexp(1024+frac, exp-25)
		switch {
		case exp == 31 && frac == 0:
			want = math.Inf(1)
		case exp == 31:
			want = math.NaN()
		case exp == 0:
			want = math.Ldexp(frac, -24)
		}
		if h>>15 == 1 {
			want = -want
		}
		got := float64(math.Float32frombits(halfBits(uint16(h))))
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) || math.Signbit(got) != math.Signbit(want) && !math.IsNaN(want) {
			t.Fatalf("%04x: got %g, want %g", h, got, want)
		}
	}
}

func BenchmarkPlanes(b *testing.B) {
	c := config(b, map[string]any{"vocab_size": 4096, "hidden_size": 256, "num_hidden_layers": 1})
	buf := make([]byte, pieceBytes)
	for _, bf16 := range []bool{false, true} {
		l := newLayers(c, bf16)[0]
		t := l.Layout.Tensors[0]
		for _, p := range []plane{planeF32, planeBF16, planeLo} {
			raw := make([]byte, t.Elems()*p.size())
			b.Run(fmt.Sprintf("encode/split=%v/%s", bf16, p.prefix+p.dtype), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				for range b.N {
					l.encode(t, p, 0, t.Elems(), buf)
				}
			})
			b.Run(fmt.Sprintf("decode/split=%v/%s", bf16, p.prefix+p.dtype), func(b *testing.B) {
				b.SetBytes(int64(len(raw)))
				for range b.N {
					l.decode(t, p, 0, raw)
				}
			})
		}
	}
}

// TestNamesOfState: AdamW's planes have these names and types in the optimizer's files, in this order. Older
// checkpoints rely on that.
func TestNamesOfState(t *testing.T) {
	l := small(t).Layouts(true)[2] // the head, which is tied, so its only own parameter is a norm
	for d, want := range map[DType][]string{
		BF16: {"F32 m.model.norm.weight", "F32 v.model.norm.weight", "U16 lo.model.norm.weight"},
		F32:  {"F32 m.model.norm.weight", "F32 v.model.norm.weight"},
	} {
		var got []string
		for _, e := range optimizerFile(2, l, planes.Of(l), d, false).entries {
			got = append(got, e.dtype+" "+e.name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestPlanesByName: an optimizer's plane of any name is loaded as it was saved. If the layers have
// other planes than those saved, loading fails.
func TestPlanesByName(t *testing.T) {
	c := small(t)
	both := []optim.Plane{{Name: "another", DType: optim.F32}, {Name: "average", DType: optim.F32}}
	kept := optim.Planes(func(optim.Piece) []optim.Plane { return both })
	layersOf := func(fills ...byte) []Layer {
		layers := newLayers(c, true)
		for i, l := range layers {
			layers[i].Planes = nil
			for k, p := range kept.Of(l.Layout) {
				s := newState(p, l.Layout)
				copy(s.Data, bytes.Repeat([]byte{fills[k]}, len(s.Data)))
				layers[i].Planes = append(layers[i].Planes, s)
			}
		}
		return layers
	}
	layers, out := layersOf(3, 5), t.TempDir()
	o := options(c, layers, BF16)
	o.Planes = kept
	w := testkit.Must(NewWriter(out, o))(t)
	for i, l := range layers {
		testkit.NoError(t, w.WriteLayer(i, l))
	}
	testkit.NoError(t, w.Commit(testState, nil))
	to := layersOf(0, 0)
	testkit.Must(Load(out+"/checkpoint-20", to, nil))(t)
	for i, l := range to {
		for _, tl := range l.Layout.Tensors {
			if tl.Ref {
				continue
			}
			for k, fill := range []byte{3, 5} {
				if got := l.Planes[k].Data[4*tl.Elem:][:4*tl.Elems()]; bytes.Count(got, []byte{fill}) != len(got) {
					t.Errorf("layer %d: %s of the %s is not what it was", i, tl.Role, l.Planes[k].Name)
				}
			}
		}
	}
	if _, err := Load(out+"/checkpoint-20", newLayers(c, true), nil); err == nil {
		t.Error("a checkpoint without m and v is resumed from")
	}
}

// TestStateOfPieces: planes of quantized codes and of block scales, which only some tensors have,
// are saved with the right shapes and loaded unchanged. A rank's share loads only its part.
func TestStateOfPieces(t *testing.T) {
	c := config(t, map[string]any{"hidden_size": 64, "intermediate_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16})
	kept := optim.Planes(func(p optim.Piece) []optim.Plane {
		switch {
		case p.Elems() == 64*64: // q_proj and o_proj
			return []optim.Plane{{Name: "codes", DType: optim.U8}, {Name: "scales", Block: 256}}
		case p.Elems() == 32*64:
			return []optim.Plane{{Name: "half", DType: optim.U4}}
		}
		return []optim.Plane{{Name: "m"}}
	})
	empty := func(ranks, rank int) []Layer {
		layers := newLayers(c, true)
		for i := range layers {
			l := layers[i].Layout
			own := optim.Shares(l, eachBlock(l), ranks)[rank]
			layers[i].Share, layers[i].Lo, layers[i].Planes = &own, layers[i].Lo[own.From:own.To], nil
			for _, p := range kept.Of(l) {
				layers[i].Planes = append(layers[i].Planes, optim.NewState(p, l, own, func(n int64) []byte { return make([]byte, n) }))
			}
		}
		return layers
	}
	layers := empty(1, 0)
	for i, l := range layers {
		for k, p := range l.Planes {
			for j := range p.Data {
				p.Data[j] = byte(j*7 + j>>8 + 31*i + k)
			}
		}
	}
	var shapes []string
	for _, e := range optimizerFile(1, layers[1].Layout, kept.Of(layers[1].Layout), F32, false).entries {
		if strings.Contains(e.name, "self_attn") && !strings.HasSuffix(e.name, "bias") {
			shapes = append(shapes, fmt.Sprint(strings.Split(e.name, ".self_attn.")[0][:5], " ", strings.Split(e.name, ".self_attn.")[1], " ", e.dtype, e.shape))
		}
	}
	slices.Sort(shapes)
	if want := []string{"codes o_proj.weight U8[64 64]", "codes q_proj.weight U8[64 64]", "half. k_proj.weight U8[1024]", "half. v_proj.weight U8[1024]",
		"scale o_proj.weight F32[16]", "scale q_proj.weight F32[16]"}; !slices.Equal(shapes, want) {
		t.Errorf("%q, want %q", shapes, want)
	}
	for _, packed := range []bool{false, true} {
		out := t.TempDir()
		o := options(c, layers, BF16)
		o.Planes, o.Zstd = kept, packed
		testkit.NoError(t, save(out, layers, o, testState))
		for _, ranks := range []int{1, 3} {
			for rank := range ranks {
				to := empty(ranks, rank)
				testkit.Must(Load(out+"/checkpoint-20", to, nil))(t)
				for i, l := range to {
					for k, p := range l.Planes {
						for tensor, tl := range l.Layout.Tensors {
							for piece := range tl.Stored {
								first, n := p.Piece(l.Layout, tensor, piece)
								end := min(first+n, p.From+int64(len(p.Data))*p.Values/p.Bytes())
								if first = max(first, p.From); first < end && !bytes.Equal(p.Part(first, end-first), layers[i].Planes[k].Part(first, end-first)) {
									t.Errorf("rank %d of %d, layer %d: %s of %s is not what it was", rank, ranks, i, p.Name, tl.Stored[piece].Name)
								}
							}
						}
					}
				}
			}
		}
	}
}

// eachBlock cuts a layer's tensors into units of at most 256 elements, none of which crosses a
// tensor's pieces.
func eachBlock(l model.Layout) (out []optim.Unit) {
	for k, tl := range l.Tensors {
		for _, p := range optim.Pieces(tl.Param) {
			for at := int64(0); at < p.Elems() && !tl.Ref; at += 256 {
				out = append(out, optim.Unit{Tensor: k, At: p.At() + at, N: min(256, p.Elems()-at)})
			}
		}
	}
	return out
}
