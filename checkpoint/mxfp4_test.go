package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// oss returns a small gpt-oss model, whose experts may be stored in MXFP4.
func oss(t *testing.T) *model.Config {
	t.Helper()
	return config(t, map[string]any{"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 96, "num_local_experts": 3, "num_experts_per_tok": 2,
		"num_hidden_layers": 1, "mlp_bias": nil})
}

// pack replaces the experts' weights by random MXFP4. Scales are near 1, except for the smallest
// and the largest possible ones.
func pack(m map[string]*fakeTensor) {
	r := rand.New(rand.NewPCG(4, 4))
	for name, shape := range map[string][]int64{"gate_up_proj": {3, 192, 2, 16}, "down_proj": {3, 64, 3, 16}} {
		name = "model.layers.0.mlp.experts." + name
		delete(m, name)
		blocks, scales := &fakeTensor{DType: "U8", Shape: shape}, &fakeTensor{DType: "U8", Shape: shape[:3]}
		for range shape[0] * shape[1] * shape[2] {
			scales.data = append(scales.data, []byte{0, 1, 120, 126, 127, 128, 253}[r.IntN(7)])
			for range 16 {
				blocks.data = append(blocks.data, byte(r.IntN(256)))
			}
		}
		m[name+"_blocks"], m[name+"_scales"] = blocks, scales
	}
}

// half returns 0.5 in BF16, as every element of a fake tensor.
func half(int64) []byte { return []byte{0, 0x3f} }

// TestMXFP4: element c of row r of expert e is code c%32 of block c/32 of that row, times two to
// the power of the block's scale. In gate_up_proj, rows of gate and up alternate.
func TestMXFP4(t *testing.T) {
	c := oss(t)
	kept := map[string]*fakeTensor{}
	dir := fakeModel(t, c, "BF16", half, func(m map[string]*fakeTensor) {
		pack(m)
		for name, f := range m {
			kept[name] = f
		}
	})
	value := func(name string, e, rows, row, cols, col int) float64 {
		at := ((e*rows+row)*cols + col) / 2
		code := kept[name+"_blocks"].data[at] >> (col % 2 * 4) & 15
		exponent, fraction := int(code>>1&3), float64(code&1)
		v := fraction / 2 // a subnormal: exponent bits 0
		if exponent > 0 {
			v = math.Ldexp(1+fraction/2, exponent-1)
		}
		if code&8 != 0 {
			v = -v
		}
		return math.Ldexp(v, int(kept[name+"_scales"].data[((e*rows+row)*cols+col)/32])-127)
	}
	for _, bf16 := range []bool{false, true} {
		layers := newLayers(c, bf16)
		var done atomic.Int64 // number of Progress calls with d equal to total
		others, err := loadWhole(dir, layers, func(d, total int64) {
			if d == total {
				done.Add(1)
			}
		})
		if err != nil || len(others) > 0 || done.Load() != 1 {
			t.Fatalf("%v, %v, done %d times", others, err, done.Load())
		}
		got := values(layers)
		for e := range 3 {
			for which, rows := range map[string]int{"gate_proj": 96, "up_proj": 96, "down_proj": 64} {
				in, all, first, step, cols := "model.layers.0.mlp.experts.gate_up_proj", 192, 0, 2, 64
				switch which {
				case "up_proj":
					first = 1
				case "down_proj":
					in, all, step, cols = "model.layers.0.mlp.experts.down_proj", 64, 1, 96
				}
				for row := range rows {
					for col := range cols {
						want := float32(value(in, e, all, first+row*step, cols, col))
						_, p := find(t, layers, "model.layers.0.mlp.experts."+string(rune('0'+e))+"."+which+".weight")
						if bits := got[p.Tensor()][elemOf(t, layers, p.Name, row, col)]; bits != math.Float32bits(want) {
							t.Fatalf("%s of expert %d, row %d, column %d: %g, want %g", which, e, row, col, math.Float32frombits(bits), want)
						}
					}
				}
			}
		}
		out := t.TempDir()
		testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c, SaveDType: BF16}, nil))
		back := newLayers(c, bf16)
		testkit.Must(loadWhole(out, back, nil))(t)
		sameValues(t, weightsAlone(back), weightsAlone(layers)) // every value of MXFP4 is one of bf16
		for k := range layers {
			layers[k].Planes = nil
		}
		readRows(t, dir, layers, F32, rowsOf(layers))
	}
}

// TestMXFP4InPieces: a tensor that is too large to be decoded in one piece has the same values as
// two tensors with its halves.
func TestMXFP4InPieces(t *testing.T) {
	const rows, cols = 600, 2048 // 4·rows·cols are more than a piece
	codes, scales := make([]byte, rows*cols/2), make([]byte, rows*cols/32)
	for i := range codes {
		codes[i] = byte(i * 7)
	}
	for i := range scales {
		scales[i] = byte(120 + i%9)
	}
	dir := t.TempDir()
	header := fmt.Sprintf(`{"x_blocks":{"dtype":"U8","shape":[1,%d,64,16],"data_offsets":[0,%d]},"x_scales":{"dtype":"U8","shape":[1,%d,64],"data_offsets":[%d,%d]}}`,
		rows, len(codes), rows, len(codes), len(codes)+len(scales))
	write(t, filepath.Join(dir, "model.safetensors"), safetensors(header, slices.Concat(codes, scales)))
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	p := model.Param{Rows: rows, Cols: cols, Dims: 2, Stored: []model.Stored{{Name: "x.0", Rows: rows,
		Place: model.Place{Tensor: "x", Slices: 1, Transposed: true, Run: rows, Step: rows, Rows: rows}}}}
	got := testkit.Must(w.ReadRows(p, 0))(t)
	for i, v := range got {
		if want := float32(math.Ldexp(float64(fp4[codes[i/2]>>(i%2*4)&15]), int(scales[i/32])-127)); v != want {
			t.Fatalf("element %d is %g, want %g", i, v, want)
		}
	}
}

// find returns the parameter that stores rows under this tensor name, and those rows.
func find(t *testing.T, layers []Layer, name string) (model.Param, model.Stored) {
	t.Helper()
	for _, l := range layers {
		for _, p := range l.Layout.Tensors {
			for _, s := range p.Stored {
				if s.Name == name {
					return p.Param, s
				}
			}
		}
	}
	t.Fatalf("no %s", name)
	return model.Param{}, model.Stored{}
}

func elemOf(t *testing.T, layers []Layer, name string, row, col int) int64 {
	t.Helper()
	p, _ := find(t, layers, name)
	for i, s := range p.Stored {
		if s.Name == name {
			return p.ElemAt(i, row, col)
		}
	}
	return -1
}

// rowsOf returns the fp32 bits of all stored rows, by their tensors' names.
func rowsOf(layers []Layer) map[string][]uint32 {
	out := map[string][]uint32{}
	for _, l := range layers {
		for _, t := range l.Layout.Tensors {
			for _, s := range t.Stored {
				n := int64(s.Rows) * int64(t.Cols)
				raw := l.encode(t, planeF32, int64(s.Row)*int64(t.Cols), n, make([]byte, 4*n))
				for k := range n {
					out[s.Name] = append(out[s.Name], binary.LittleEndian.Uint32(raw[4*k:]))
				}
			}
		}
	}
	return out
}

// TestMXFP4Refuses: blocks without scales, scales without blocks, tensors of wrong shapes, and an
// MXFP4 tensor beside an unquantized one of the same name are errors.
func TestMXFP4Refuses(t *testing.T) {
	const name = "model.layers.0.mlp.experts.down_proj"
	for want, edit := range map[string]func(m map[string]*fakeTensor){
		`tensor "` + name + `" is missing`: func(m map[string]*fakeTensor) { delete(m, name+"_scales") },
		"it is U8 [3 64 6], and MXFP4 of what config.json asks for would be U8 [3 64 3] with rows of 96 elements": func(m map[string]*fakeTensor) {
			m[name+"_scales"] = &fakeTensor{DType: "U8", Shape: []int64{3, 64, 6}, data: make([]byte, 3*64*6)}
		},
		`tensor "` + name + `_blocks": config.json announces no such parameter`: func(m map[string]*fakeTensor) {
			m[name] = &fakeTensor{DType: "BF16", Shape: []int64{3, 96, 64}, data: make([]byte, 2*3*96*64)}
			delete(m, name+"_scales")
		},
	} {
		dir := fakeModel(t, oss(t), "BF16", half, func(m map[string]*fakeTensor) { pack(m); edit(m) })
		_, err := OpenSource(dir, oss(t).Layouts(false))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestMXFP4IsTransformers: weights that mt reads from MXFP4 equal those that Transformers reads
// from the same files.
func TestMXFP4IsTransformers(t *testing.T) {
	python := testkit.NeedPython(t, "torch", "transformers", "safetensors")
	c, dir := oss(t), ""
	dir = fakeModel(t, c, "BF16", half, pack)
	layers := newLayers(c, true)
	testkit.Must(loadWhole(dir, layers, nil))(t)
	out := t.TempDir()
	testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c, SaveDType: BF16}, nil))
	if got := testkit.RunPython(t, python, filepath.Join("testdata", "mxfp4.py"), dir, out); !strings.Contains(string(got), "6 of 6 the same") {
		t.Errorf("%s", got)
	}
}
