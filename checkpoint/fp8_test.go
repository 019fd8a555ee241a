package checkpoint

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// valueE4M3 returns the value of the E4M3 code c, computed from the format's definition.
func valueE4M3(c byte) float64 {
	exponent, fraction := int(c>>3&15), float64(c&7)
	v := math.Ldexp(fraction, -9)
	if exponent > 0 {
		v = math.Ldexp(8+fraction, exponent-10)
	}
	if c&0x7f == 0x7f {
		v = math.NaN()
	}
	return math.Copysign(v, map[bool]float64{true: -1, false: 1}[c >= 128])
}

// TestE4M3: each code has its value. Each fp32 number becomes the nearest code, and of two equally
// near codes the even one.
func TestE4M3(t *testing.T) {
	for c := range 256 {
		want, got := float32(valueE4M3(byte(c))), e4m3Values[c]
		if c&0x7f == 0x7f {
			continue // NaN
		}
		if math.Float32bits(got) != math.Float32bits(want) {
			t.Fatalf("code %02x is %g, want %g", c, got, want)
		}
		if toE4M3(want) != byte(c) {
			t.Fatalf("%g becomes code %02x, want %02x", want, toE4M3(want), c)
		}
	}
	if toE4M3(float32(math.NaN()))&0x7f != 0x7f || e4m3Values[0x7f] == e4m3Values[0x7f] {
		t.Error("NaN becomes a number")
	}
	for c := range 126 { // halfway between two codes
		x := float32(valueE4M3(byte(c))+valueE4M3(byte(c+1))) / 2
		if want := byte(c + c%2); toE4M3(x) != want || toE4M3(-x) != want|0x80 {
			t.Errorf("%g becomes code %02x, want %02x", x, toE4M3(x), want)
		}
	}
	r := rand.New(rand.NewPCG(8, 8))
	for range 20000 {
		x := float32(math.Ldexp(r.Float64()*2-1, r.IntN(20)-11))
		best := 0
		for c := range 127 {
			d, least := math.Abs(math.Abs(float64(x))-valueE4M3(byte(c))), math.Abs(math.Abs(float64(x))-valueE4M3(byte(best)))
			if d < least || d == least && c%2 == 0 {
				best = c
			}
		}
		if got := toE4M3(x); got&0x7f != byte(best) {
			t.Fatalf("%g becomes code %02x, want %02x", x, got, best)
		}
	}
	for c, v := range fp4 {
		if got := toFP4(v); got != byte(c) {
			t.Errorf("%g becomes FP4 code %d, want %d", v, got, c)
		}
	}
}

// scales is one way to store the scales of an E4M3 matrix: the ending of their tensor's name, its
// dtype and shape, and the index of the scale of an element.
type scales struct {
	end, dtype string
	shape      func(rows, cols int64) []int64
	at         func(row, col, cols int64) int64
}

// oddBlocks stores one scale for each block of 5 × 3 elements. No matrix of the tests is a multiple
// of this size.
var oddBlocks = scales{"_scale_inv", "F32", func(r, c int64) []int64 { return []int64{(r + 4) / 5, (c + 2) / 3} },
	func(row, col, cols int64) int64 { return row/5*((cols+2)/3) + col/3 }}

func oneScale(shape ...int64) scales {
	return scales{"_scale", "F32", func(int64, int64) []int64 { return shape }, func(int64, int64, int64) int64 { return 0 }}
}

var rowScales = scales{"_scale", "BF16", func(r, _ int64) []int64 { return []int64{r, 1} }, func(row, _, _ int64) int64 { return row }}

// quantize replaces the weights of MLPs in m by random codes and scales. If full is set, every
// third code of a row is ±448, the largest FP8 number.
func quantize(m map[string]*fakeTensor, how scales, full bool) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if !strings.Contains(name, ".mlp.") || !strings.HasSuffix(name, "_proj.weight") {
			continue
		}
		f := m[name]
		rows, cols := f.Shape[0], f.Shape[1]
		*f = fakeTensor{DType: e4m3, Shape: f.Shape}
		for i := range rows * cols {
			c := byte(r.IntN(256))
			if c&0x7f == 0x7f || full && i%cols%3 == 0 {
				c = c&0x80 | 0x7e
			}
			f.data = append(f.data, c)
		}
		s := &fakeTensor{DType: how.dtype, Shape: how.shape(rows, cols)}
		n := int64(1)
		for _, d := range s.Shape {
			n *= d
		}
		for range n {
			bits := math.Float32bits(float32(math.Exp(r.NormFloat64()) / 1000))
			switch how.dtype {
			case "F32":
				s.data = binary.LittleEndian.AppendUint32(s.data, bits)
			case "BF16":
				s.data = binary.LittleEndian.AppendUint16(s.data, uint16(bits>>16))
			default:
				s.data = append(s.data, byte(110+r.IntN(20)))
			}
		}
		m[name+how.end] = s
	}
}

// scaleOf returns scale number i of a tensor of scales, as fp32.
func (f *fakeTensor) scaleOf(i int64) float32 {
	switch f.DType {
	case "F32":
		return math.Float32frombits(binary.LittleEndian.Uint32(f.data[4*i:]))
	case "BF16":
		return math.Float32frombits(uint32(binary.LittleEndian.Uint16(f.data[2*i:])) << 16)
	}
	return float32(math.Ldexp(1, int(f.data[i])-127))
}

// fp8Config writes a config.json with quantization_config into dir.
func fp8Config(t *testing.T, dir, quantization string) {
	t.Helper()
	write(t, filepath.Join(dir, "config.json"), []byte(`{"model_type": "llama", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "attention_bias": true, "mlp_bias": true, "dtype": "float32", "quantization_config": `+quantization+"}"))
}

// blocksOf53 is the quantization_config for oddBlocks. Its %s is replaced by further keys.
const blocksOf53 = `{"quant_method": "fp8", "weight_block_size": [5, 3], "activation_scheme": "static", "ignored_layers": ["lm_head"]%s}`

// fp8Forms are all ways of storing scales that mt reads.
var fp8Forms = map[string]struct {
	scales
	config string
}{
	"blocks":           {oddBlocks, fmt.Sprintf(blocksOf53, "")},
	"blocks in bf16":   {scales{"_scale_inv", "BF16", oddBlocks.shape, oddBlocks.at}, fmt.Sprintf(blocksOf53, "")},
	"powers of two":    {scales{"_scale_inv", "F8_E8M0", oddBlocks.shape, oddBlocks.at}, fmt.Sprintf(blocksOf53, `, "scale_fmt": "ue8m0"`)},
	"one block":        {scales{"_scale_inv", "F32", func(int64, int64) []int64 { return []int64{1, 1} }, oneScale().at}, `{"quant_method": "fp8"}`},
	"scalar":           {oneScale(), `{"quant_method": "fp8", "weight_block_size": null}`},
	"one element":      {oneScale(1), `{"quant_method": "fp8", "weight_block_size": null}`},
	"rows":             {rowScales, `{"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}}}`},
	"rows in a vector": {scales{"_scale", "F32", func(r, _ int64) []int64 { return []int64{r} }, rowScales.at}, `{"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}}}`},
}

// TestFP8: a weight in E4M3 is code × scale, rounded once to fp32, in whatever way scales are
// stored. Scales of activations are ignored. Weights.Read gives the same values, also for a part of
// a tensor.
func TestFP8(t *testing.T) {
	for name, form := range fp8Forms {
		c, kept := config(t, nil), map[string]*fakeTensor{}
		dir := fakeModel(t, c, "BF16", half, func(m map[string]*fakeTensor) {
			quantize(m, form.scales, false)
			m["model.layers.0.mlp.up_proj.input_scale"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: make([]byte, 4)}
			m["model.layers.1.self_attn.k_scale"] = &fakeTensor{DType: "F32", Shape: []int64{1}, data: make([]byte, 4)}
			maps.Copy(kept, m)
		})
		fp8Config(t, dir, form.config)
		for _, bf16 := range []bool{false, true} {
			layers := newLayers(c, bf16)
			if others, err := loadWhole(dir, layers, nil); err != nil || len(others) > 0 {
				t.Fatalf("%s: %v, %v", name, others, err)
			}
			w, got := testkit.Must(OpenWeights(dir))(t), rowsOf(layers)
			for of, f := range kept {
				s := kept[of+form.end]
				if f.DType != e4m3 {
					continue
				}
				cols := f.Shape[1]
				part := make([]float32, cols+2)
				testkit.NoError(t, w.Read(of, 1, part))
				for i, c := range f.data {
					want := math.Float32bits(float32(valueE4M3(c) * float64(s.scaleOf(form.at(int64(i)/cols, int64(i)%cols, cols)))))
					if got[of][i] != want {
						t.Fatalf("%s: %s, element %d: %08x, want %08x", name, of, i, got[of][i], want)
					}
					if i > 0 && i <= len(part) && math.Float32bits(part[i-1]) != want {
						t.Fatalf("%s: Read of %s, element %d: %g", name, of, i, part[i-1])
					}
				}
			}
			w.Close()
		}
		src := testkit.Must(OpenSource(dir, c.Layouts(false)))(t)
		if n := src.Counts(); n != (Counts{E4M3: 6, Activations: 2}) {
			t.Errorf("%s: %+v", name, n)
		}
		src.Close()
	}
}

// savedAsRead loads the model in dir, saves it with dtype d and returns the new directory.
func savedAsRead(t *testing.T, dir string, c *model.Config, d DType) string {
	t.Helper()
	layers := newLayers(c, true)
	testkit.Must(loadWhole(dir, layers, nil))(t)
	src := testkit.Must(OpenSource(dir, c.Layouts(true)))(t)
	defer src.Close()
	testkit.NoError(t, src.CanSaveAsRead(c.Layouts(true)))
	out := t.TempDir()
	testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c, SaveDType: d, Source: src}, nil))
	return out
}

// contents returns the bytes of the tensors in dir, with their dtypes and shapes, by name.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	w, out := testkit.Must(OpenWeights(dir))(t), map[string]string{}
	defer w.Close()
	for _, x := range w.Tensors() {
		sh := w.src.where[x.Name]
		data := make([]byte, x.Bytes)
		testkit.NoError(t, sh.readAt(sh.tensors[x.Name], 0, data))
		out[x.Name] = fmt.Sprintf("%s %v %x", x.DType, x.Shape, data)
	}
	return out
}

// TestAsReadGivesBack: a model that is loaded and saved as read, without training, has the same
// codes. Each block must contain the code ±448, as in files that Transformers' converter makes.
// Scales in bf16 or powers of two are the same too; a scale in fp32 differs by at most two units in
// the last place. config.json is the one that was read.
func TestAsReadGivesBack(t *testing.T) {
	for name, form := range fp8Forms {
		var kept map[string]*fakeTensor
		dir := fakeModel(t, config(t, nil), "BF16", half, func(m map[string]*fakeTensor) {
			quantize(m, form.scales, true)
			m["model.layers.0.mlp.up_proj.input_scale"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: []byte{1, 2, 3, 4}}
			m["mtp.proj.weight"] = &fakeTensor{DType: e4m3, Shape: []int64{2, 3}, data: []byte{1, 2, 3, 4, 5, 6}}
			m["mtp.proj.weight_scale"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: []byte{0, 0, 0, 64}}
			m["model.norm.weight"] = &fakeTensor{DType: "F32", Shape: m["model.norm.weight"].Shape, data: bytes.Repeat([]byte{1, 0, 128, 63}, 14)}
			kept = m
		})
		fp8Config(t, dir, form.config)
		c := testkit.Must(model.LoadDir(dir))(t)
		out := savedAsRead(t, dir, c, AsRead)
		want, got := contents(t, dir), contents(t, out)
		if !slices.Equal(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))) {
			t.Fatalf("%s: %v", name, slices.Sorted(maps.Keys(got)))
		}
		off, most := 0, 0
		for of := range want {
			f := kept[of]
			if got[of] == want[of] {
				continue
			}
			if form.dtype != "F32" || !strings.HasSuffix(of, form.end) {
				t.Errorf("%s: %s is %.80s, want %.80s", name, of, got[of], want[of])
				continue
			}
			a := testkit.Must(OpenWeights(out))(t)
			values := make([]float32, len(f.data)/4)
			testkit.NoError(t, a.Read(of, 0, values))
			a.Close()
			for i, v := range values {
				d := int(math.Float32bits(v)) - int(math.Float32bits(f.scaleOf(int64(i))))
				off, most = off+min(1, max(d, -d)), max(most, d, -d)
			}
		}
		if most > 2 {
			t.Errorf("%s: a scale is off by %d units", name, most)
		}
		t.Logf("%s: %d scales are off, by at most %d", name, off, most)
		again := savedAsRead(t, out, c, AsRead)
		if form.dtype != "F32" && !maps.Equal(contents(t, again), got) {
			t.Errorf("%s: saved again, tensors differ", name)
		}
		read := func(dir string) string {
			return string(testkit.Must(os.ReadFile(filepath.Join(dir, "config.json")))(t))
		}
		if read(dir) != read(out) {
			t.Errorf("%s: %s", name, read(out))
		}
		plain := savedAsRead(t, dir, c, BF16)
		if strings.Contains(read(plain), "quantization") {
			t.Errorf("%s: %s", name, read(plain))
		}
		for of, x := range contents(t, plain) {
			if !strings.HasPrefix(x, "BF16") || strings.HasSuffix(of, "_scale") || strings.HasSuffix(of, "_scale_inv") {
				t.Errorf("%s: saved in bf16, %s is %.20s", name, of, x)
			}
			if of == "mtp.proj.weight" && x != "BF16 [2 3] 803b003c403c803ca03cc03c" { // codes 1 to 6, which are multiples of 2^-9, times the scale 2
				t.Errorf("%s: %s is %s", name, of, x)
			}
		}
	}
}

// TestMXFP4AsRead: experts in MXFP4 that are loaded and saved without training have the same
// values. If each block contains a code of magnitude 4 or 6, they also have the same bytes. Scales
// near the smallest possible are not covered.
func TestMXFP4AsRead(t *testing.T) {
	c := oss(t)
	for _, full := range []bool{false, true} {
		dir := fakeModel(t, c, "BF16", half, func(m map[string]*fakeTensor) {
			pack(m)
			for name, f := range m {
				for i := range f.data {
					switch {
					case strings.HasSuffix(name, "_scales"):
						f.data[i] = byte(100 + i%40)
					case strings.HasSuffix(name, "_blocks") && full && i%16 == 3:
						f.data[i] = f.data[i]&0xf0 | 7
					}
				}
			}
		})
		out := savedAsRead(t, dir, c, AsRead)
		if same := maps.Equal(contents(t, dir), contents(t, out)); full && !same {
			t.Error("bytes differ")
		}
		a, b := newLayers(c, false), newLayers(c, false)
		testkit.Must(loadWhole(dir, a, nil))(t)
		testkit.Must(loadWhole(out, b, nil))(t)
		sameValues(t, weightsAlone(b), weightsAlone(a))
	}
}

// TestFP8Stacked: experts in one tensor, stored transposed, may have scales for blocks of each
// expert, one scale for each expert, or one for all.
func TestFP8Stacked(t *testing.T) {
	const name = "model.layers.0.mlp.experts.gate_up_proj"
	for _, shape := range [][]int64{{3, 1, 2}, {3, 1, 1}, {3}, {}, {3, 64, 1}} {
		n := int64(1)
		for _, d := range shape {
			n *= d
		}
		at := func(e, row, col int64) int64 {
			switch n {
			case 1:
				return 0
			case 6:
				return 2*e + col/128
			case 3 * 64:
				return 64*e + row
			}
			return e
		}
		var codes, by *fakeTensor
		dir := fakeModel(t, oss(t), "BF16", half, func(m map[string]*fakeTensor) {
			codes, by = &fakeTensor{DType: e4m3, Shape: []int64{3, 64, 192}}, &fakeTensor{DType: "BF16", Shape: shape}
			for i := range 3 * 64 * 192 {
				codes.data = append(codes.data, byte(i*7%0x7f)|byte(i%2<<7))
			}
			for i := range n {
				by.data = append(by.data, byte(i), 0x3c)
			}
			m[name], m[name+"_scale_inv"] = codes, by
		})
		layers := newLayers(oss(t), false)
		testkit.Must(loadWhole(dir, layers, nil))(t)
		got := values(layers)
		for e := range int64(3) {
			for row := range int64(192) {
				_, p := find(t, layers, fmt.Sprintf("model.layers.0.mlp.experts.%d.%s.weight", e, []string{"gate_proj", "up_proj"}[row%2]))
				for col := range int64(64) {
					want := float32(valueE4M3(codes.data[(e*64+col)*192+row])) * by.scaleOf(at(e, col, row))
					if bits := got[p.Tensor()][elemOf(t, layers, p.Name, int(row/2), int(col))]; bits != math.Float32bits(want) {
						t.Fatalf("%v: expert %d, row %d, column %d: %g, want %g", shape, e, row, col, math.Float32frombits(bits), want)
					}
				}
			}
		}
		for k := range layers {
			layers[k].Planes = nil
		}
		readRows(t, dir, layers, F32, rowsOf(layers))
		if !maps.Equal(contents(t, savedAsRead(t, dir, oss(t), AsRead)), contents(t, dir)) {
			t.Errorf("%v: saved as read, bytes differ", shape)
		}
	}
}

// TestFP8Refuses: scales that are missing or do not fit their weight are errors, and so are formats
// that save_dtype as_read cannot write.
func TestFP8Refuses(t *testing.T) {
	const name = "model.layers.0.mlp.up_proj.weight"
	for want, edit := range map[string]func(m map[string]*fakeTensor){
		`_inv": its shape is [2 5], and "` + name + `" is [11 14]: scales are neither one for each block (5 × 3 in config.json), nor for each row, nor for the tensor`: nil,
		"and its scales are missing": func(m map[string]*fakeTensor) { delete(m, name+"_scale_inv") },
		"scales are F32, BF16, F16 or F8_E8M0": func(m map[string]*fakeTensor) {
			m[name+"_scale_inv"] = &fakeTensor{DType: "I32", Shape: []int64{}, data: make([]byte, 4)}
		},
		`tensor "` + name + `_zero_point": belongs to quantized weights`: func(m map[string]*fakeTensor) {
			m[name+"_scale_inv"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: make([]byte, 4)}
			m[name+"_zero_point"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: make([]byte, 4)}
		},
	} {
		dir := fakeModel(t, config(t, nil), "BF16", half, func(m map[string]*fakeTensor) {
			quantize(m, oddBlocks, false)
			m[name+"_scale_inv"].Shape = []int64{2, 5}
			m[name+"_scale_inv"].data = make([]byte, 40)
			if edit != nil {
				edit(m)
			}
		})
		fp8Config(t, dir, fmt.Sprintf(blocksOf53, ""))
		if _, err := OpenSource(dir, config(t, nil).Layouts(false)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	dir := fakeModel(t, config(t, nil), "F16", func(int64) []byte { return []byte{0, 0x38} }, nil)
	src := testkit.Must(OpenSource(dir, config(t, nil).Layouts(false)))(t)
	defer src.Close()
	if err := src.CanSaveAsRead(config(t, nil).Layouts(false)); err == nil || !strings.Contains(err.Error(), "its dtype is F16, which is not written; choose bf16 or fp32") {
		t.Errorf("F16: %v", err)
	}
}
