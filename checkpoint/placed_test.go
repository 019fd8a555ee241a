package checkpoint

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// place makes a layer's parameters share tensors in every supported way: interleaved by heads, by
// rows and transposed, concatenated, and in slices.
func place(l *model.Layout, c *model.Config) {
	at := func(role model.Role, i int, p model.Place) {
		for k, t := range l.Tensors {
			if t.Role == role {
				if i == 0 {
					l.Tensors[k].Stored = slices.Clone(t.Stored)
				}
				p.Tensor = fmt.Sprintf("model.layers.%d.%s", l.Block, p.Tensor)
				l.Tensors[k].Stored[i].Place = p
			}
		}
	}
	d, h, ff := c.HeadDim, c.HiddenSize, c.IntermediateSize // with three heads of queries, one of keys and values
	for i, first := range []int{0, 3, 4} {
		run := []int{3, 1, 1}[i]
		at(model.RoleQKV, i, model.Place{Tensor: "qkv", First: first, Run: run, Step: 5, Rows: 5 * d})
		at(model.RoleQKVBias, i, model.Place{Tensor: "qkv_bias", First: []int{0, 3 * d, 4 * d}[i], Run: 3 * d, Step: 3 * d, Rows: 5 * d})
	}
	at(model.RoleO, 0, model.Place{Tensor: "o", Transposed: true, Run: h, Step: h, Rows: h})
	for i := range 2 {
		at(model.RoleGateUp, i, model.Place{Tensor: "gate_up", Slice: 1 - i, Slices: 2, Transposed: true, Run: ff, Step: ff, Rows: ff})
		at(model.RoleGateUpBias, i, model.Place{Tensor: "gate_up_bias", First: i, Run: 1, Step: 2, Rows: 2 * ff})
	}
	for i, role := range []model.Role{model.RoleAttnNorm, model.RoleMLPNorm} { // two parameters of one tensor
		at(role, 0, model.Place{Tensor: "norms", Slice: i, Slices: 2, Run: h, Step: h, Rows: h})
	}
}

// placedLayers returns memory for all layers of a model, like newLayers. The blocks' parameters
// share tensors as place arranges them.
func placedLayers(c *model.Config, bf16 bool) []Layer {
	layers := newLayers(c, bf16)
	for i := range layers {
		if layers[i].Layout.Kind == model.Block {
			place(&layers[i].Layout, c)
		}
	}
	return layers
}

// TestPlaced: every element is saved where model.Place says, in every dtype, and is loaded from
// there.
func TestPlaced(t *testing.T) {
	c := config(t, nil)
	for _, bf16 := range []bool{false, true} {
		from := placedLayers(c, bf16)
		fillLayers(from, 3)
		own := newLayers(c, bf16) // the same parameters, each in a tensor of its own
		fillLayers(own, 3)
		want := values(own)
		for _, d := range []DType{F32, BF16} {
			dir := t.TempDir()
			testkit.NoError(t, WriteModel(dir, from, WriterOptions{Config: c, SaveDType: d, MaxShardBytes: 2000}, nil))
			_, data := tensorsOf(t, dir)
			size := dtypeSize[d.plane().dtype]
			for _, l := range from {
				for _, p := range l.Layout.Tensors {
					for i, s := range p.Stored {
						for k, bits := range want[s.Name] {
							at := p.ElemAt(i, k/p.Cols, k%p.Cols) * size
							if d == F32 && binary.LittleEndian.Uint32(data[s.Tensor()][at:]) != bits ||
								d == BF16 && binary.LittleEndian.Uint16(data[s.Tensor()][at:]) != hiOf(bits) {
								t.Fatalf("bf16 %t as %s: element %d of %s is not at byte %d of %s", bf16, d, k, s.Name, at, s.Tensor())
							}
						}
					}
				}
			}
			back := placedLayers(c, bf16)
			if others, err := loadWhole(dir, back, nil); err != nil || len(others) > 0 {
				t.Fatal(others, err)
			}
			if d == F32 {
				sameValues(t, weightsAlone(back), weightsAlone(from))
			}
			readRows(t, dir, from, d, want)
		}
	}
}

// weightsAlone returns the fp32 bits of the weights, without the optimizer's planes.
func weightsAlone(layers []Layer) map[string][]uint32 {
	out := slices.Clone(layers)
	for i := range out {
		out[i].Planes = nil
	}
	return values(out)
}

// readRows checks that Weights.ReadRows returns the values want for all parameters of layers.
func readRows(t *testing.T, dir string, layers []Layer, d DType, want map[string][]uint32) {
	t.Helper()
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	for _, l := range layers {
		for _, p := range l.Layout.Tensors {
			for i, s := range p.Stored {
				got, err := w.ReadRows(p.Param, i)
				if err != nil || len(got) != len(want[s.Name]) {
					t.Fatal(s.Name, err)
				}
				for k, v := range got {
					bits := want[s.Name][k]
					if d == BF16 {
						bits = uint32(hiOf(bits)) << 16
					}
					if math.Float32bits(v) != bits {
						t.Fatalf("element %d of %s is %g", k, s.Name, v)
					}
				}
			}
		}
	}
}

// TestPlacedResumes: a checkpoint of a model whose parameters share tensors loads bit for bit, also
// for a rank that keeps a share of each layer.
func TestPlacedResumes(t *testing.T) {
	c := config(t, nil)
	from := placedLayers(c, true)
	fillLayers(from, 4)
	out := fastDir(t)
	testkit.NoError(t, save(out, from, options(c, from, BF16), testState))
	to, shared := placedLayers(c, true), placedLayers(c, true)
	testkit.Must(Load(filepath.Join(out, "checkpoint-20"), to, nil))(t)
	sameValues(t, values(to), values(from))
	for rank := range 3 {
		testkit.Must(Load(filepath.Join(out, "checkpoint-20"), partOf(shared, rank, 3), nil))(t)
	}
	sameValues(t, values(shared), values(from))
}

// TestLines: a tensor that is read and written in pieces of any number of lines is the same
// afterwards.
func TestLines(t *testing.T) {
	from := placedLayers(config(t, nil), true)
	fillLayers(from, 6)
	var whole []byte
	for _, e := range entriesOf(1, from[1].Layout, planeF32) {
		if e.placed == nil {
			continue
		}
		line := e.chunk(1, 4)
		for _, lines := range []int64{1, 2, 5, 1000} {
			var got []byte
			back := placedLayers(config(t, nil), true)[1]
			testkit.NoError(t, e.pieces(from[1], make([]byte, lines*line), func(p []byte) error {
				e.scatter(back, planeF32, int64(len(got))/4, p)
				got = append(got, p...)
				return nil
			}))
			if lines == 1 {
				whole = got
			}
			again := e.collect(back, 0, e.elems, make([]byte, e.bytes))
			if int64(len(got)) != e.bytes || !slices.Equal(got, whole) || !slices.Equal(again, whole) {
				t.Errorf("%s in pieces of %d lines differs", e.name, lines)
			}
		}
	}
}

// TestLongStretch: tensors larger than a piece, and stretches longer than their buffer, are read
// and written correctly.
func TestLongStretch(t *testing.T) {
	testkit.NotShort(t)
	c := config(t, map[string]any{"hidden_size": 3000, "intermediate_size": 400, "num_hidden_layers": 1})
	from, own := placedLayers(c, false), newLayers(c, false)
	fillLayers(from, 9)
	fillLayers(own, 9)
	dir := t.TempDir()
	testkit.NoError(t, WriteModel(dir, from, WriterOptions{Config: c, SaveDType: F32}, nil))
	want := weightsAlone(own)
	_, data := tensorsOf(t, dir)
	p := from[1].Layout.Tensor(model.RoleGateUp)
	for k, bits := range want["model.layers.0.mlp.up_proj.weight"] {
		if got := binary.LittleEndian.Uint32(data["model.layers.0.gate_up"][4*p.ElemAt(1, k/p.Cols, k%p.Cols):]); got != bits {
			t.Fatalf("element %d of up_proj is written as %x", k, got)
		}
	}
	back := placedLayers(c, false)
	testkit.Must(loadWhole(dir, back, nil))(t)
	sameValues(t, weightsAlone(back), weightsAlone(from))
	readRows(t, dir, from, F32, want)

	const rows = pieceBytes // a line of four times as many bytes
	e := addPlaced(nil, 0, model.TensorLayout{Param: model.Param{Rows: rows, Cols: 2, Dims: 2, Stored: []model.Stored{{Name: "x", Rows: rows,
		Place: model.Place{Tensor: "x", Transposed: true, Run: rows, Step: rows, Rows: rows}}}}}, 0, planeF32)
	if n := pieceFor([]*outFile{{file: newFile("f", e)}}); n != 4*rows {
		t.Errorf("a piece of %d bytes for lines of %d", n, 4*rows)
	}
}
