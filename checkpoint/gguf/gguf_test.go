package gguf_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/checkpoint/gguf"
	"mt/internal/testkit"
)

// keys returns keys with a value of every supported type.
func keys() []gguf.KV {
	return []gguf.KV{{"general.architecture", "llama"}, {"a.u32", uint32(7)}, {"a.i32", int32(-7)}, {"a.u64", uint64(1) << 40}, {"a.f32", float32(0.5)},
		{"a.yes", true}, {"a.no", false}, {"a.strings", []string{"x", "", "é"}}, {"a.ints", []int32{1, -2}}, {"a.floats", []float32{1.5}}, {"a.none", []string{}}}
}

// build returns a GGUF file with these keys and tensors. values has the elements of each tensor.
func build(t testing.TB, kvs []gguf.KV, tensors []gguf.Tensor, values [][]float32) []byte {
	t.Helper()
	header := testkit.Must(gguf.Header(kvs, tensors))(t)
	out := bytes.NewBuffer(header)
	for i, x := range tensors {
		raw := make([]byte, x.Bytes())
		gguf.Encode(raw, x.Type, values[i])
		out.Write(raw)
		testkit.NoError(t, gguf.Pad(out, x.Bytes()))
	}
	if int64(out.Len()) != gguf.Size(header, tensors) {
		t.Fatalf("%d bytes, Size says %d", out.Len(), gguf.Size(header, tensors))
	}
	return out.Bytes()
}

// sample returns a file with a tensor of every type, the tensors and their values. The values are
// exact in each type.
func sample(t testing.TB) ([]byte, []gguf.Tensor, [][]float32) {
	tensors := []gguf.Tensor{{Name: "a", Type: gguf.F32, Shape: []int64{3}}, {Name: "b", Type: gguf.F16, Shape: []int64{2, 5}},
		{Name: "c", Type: gguf.BF16, Shape: []int64{1, 1}}, {Name: "d", Type: gguf.Q8_0, Shape: []int64{2, 1, 64}}}
	var values [][]float32
	for _, x := range tensors {
		v := make([]float32, x.Elems())
		for i := range v {
			v[i] = float32(i%128) - 63
			if i%gguf.BlockLen == 0 {
				v[i] = 127 // the largest magnitude of a Q8_0 block, which gives the scale 1
			}
		}
		values = append(values, v)
	}
	return build(t, keys(), tensors, values), tensors, values
}

func TestRoundTrip(t *testing.T) {
	file, tensors, values := sample(t)
	f := testkit.Must(gguf.Open(bytes.NewReader(file), int64(len(file))))(t)
	if !reflect.DeepEqual(f.KVs, keys()) || f.Value("a.u32") != uint32(7) || f.Value("nothing") != nil {
		t.Errorf("keys %v", f.KVs)
	}
	if !reflect.DeepEqual(f.Tensors, tensors) {
		t.Errorf("tensors %v, want %v", f.Tensors, tensors)
	}
	for i, x := range tensors {
		if x.Off%32 != 0 || f.Data%32 != 0 {
			t.Errorf("%s begins at %d+%d", x.Name, f.Data, x.Off)
		}
		got, err := f.Read(x)
		if err != nil || !slices.Equal(got, values[i]) {
			t.Errorf("%s: %v, %v", x.Name, got, err)
		}
	}
	if _, ok := f.Tensor("d"); !ok {
		t.Error("d is not found")
	}
	if _, ok := f.Tensor("e"); ok {
		t.Error("e is found")
	}
}

func TestHeaderRefuses(t *testing.T) {
	for want, err := range map[string]error{
		"key a: appears twice":                                    second(gguf.Header([]gguf.KV{{"a", true}, {"a", true}}, nil)),
		"tensor x: appears twice":                                 second(gguf.Header(nil, []gguf.Tensor{{Name: "x"}, {Name: "x"}})),
		"key a: a value of type int cannot be written":            second(gguf.Header([]gguf.KV{{"a", 1}}, nil)),
		"key a: a value of type []float64 cannot be written":      second(gguf.Header([]gguf.KV{{"a", []float64{1}}}, nil)),
		"key b: a value of type map[string]int cannot be written": second(gguf.Header([]gguf.KV{{"b", map[string]int{}}}, nil)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestSizes: a block of Q8_0 has 32 numbers in 34 bytes, and a key and a tensor may have the same name.
func TestSizes(t *testing.T) {
	for typ, want := range map[gguf.Type]int64{gguf.F32: 256, gguf.F16: 128, gguf.BF16: 128, gguf.Q8_0: 68} {
		if got := typ.Bytes(64); got != want {
			t.Errorf("64 numbers of %s take %d bytes, want %d", typ, got, want)
		}
	}
	if _, err := gguf.Header([]gguf.KV{{"a", true}}, []gguf.Tensor{{Name: "a"}}); err != nil {
		t.Error(err)
	}
}

func second(_ []byte, err error) error { return err }

// TestHalves: every half survives a round trip. Values between two halves round to the nearer one, ties to even.
func TestHalves(t *testing.T) {
	for h := range 1 << 16 {
		v := gguf.FromHalf(uint16(h))
		if v != v {
			if got := gguf.Half(v); got&0x7c00 != 0x7c00 || got&0x3ff == 0 {
				t.Fatalf("NaN %04x becomes %04x", h, got)
			}
			continue
		}
		if got := gguf.Half(v); got != uint16(h) {
			t.Fatalf("%04x is %g, which becomes %04x", h, v, got)
		}
		if h&0x7fff >= 0x7bff { // the largest finite half and infinity have no next finite half
			continue
		}
		middle := float32((float64(v) + float64(gguf.FromHalf(uint16(h+1)))) / 2) // exact in fp32: it needs one bit more than a half
		even := uint16(h + h&1)
		toward := math.Float32frombits(math.Float32bits(middle) + 1) // away from zero
		if gguf.Half(middle) != even || gguf.Half(toward) != uint16(h+1) {
			t.Fatalf("between %04x and the next: %04x, then %04x", h, gguf.Half(middle), gguf.Half(toward))
		}
	}
	for v, want := range map[float32]uint16{65519: 0x7bff, 65520: 0x7c00, 1e30: 0x7c00, -65520: 0xfc00, 1e-30: 0, float32(math.Inf(1)): 0x7c00} {
		if got := gguf.Half(v); got != want {
			t.Errorf("%g becomes %04x, want %04x", v, got, want)
		}
	}
}

func TestBrain(t *testing.T) {
	for bits, want := range map[uint32]uint16{0x3f808000: 0x3f80, 0x3f818000: 0x3f82, 0x3f808001: 0x3f81, 0x3f807fff: 0x3f80, 0x7f7fffff: 0x7f80,
		0x7f800001: 0x7fc0, 0xffffffff: 0xffff, 0x80000000: 0x8000, 0x7f800000: 0x7f80} {
		raw := make([]byte, 2)
		gguf.Encode(raw, gguf.BF16, []float32{math.Float32frombits(bits)})
		if got := binary.LittleEndian.Uint16(raw); got != want {
			t.Errorf("%08x becomes %04x, want %04x", bits, got, want)
		}
	}
}

// TestQ8: the scale is the largest magnitude over 127, rounded to half precision only when stored. No element is
// off by more than half a step plus the effect of that rounding.
func TestQ8(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	src := make([]float32, 50*gguf.BlockLen)
	for i := range src {
		src[i] = float32(r.NormFloat64() * math.Pow(2, float64(i/gguf.BlockLen%20-10)))
	}
	clear(src[:gguf.BlockLen]) // a block of zeros
	raw := make([]byte, gguf.Q8_0.Bytes(int64(len(src))))
	gguf.Encode(raw, gguf.Q8_0, src)
	got := make([]float32, len(src))
	gguf.Decode(got, gguf.Q8_0, raw)
	for b := 0; b < len(src); b += gguf.BlockLen {
		var most float64
		for _, v := range src[b : b+gguf.BlockLen] {
			most = max(most, math.Abs(float64(v)))
		}
		scale := binary.LittleEndian.Uint16(raw[b/gguf.BlockLen*(2+gguf.BlockLen):])
		if scale != gguf.Half(float32(most)/127) {
			t.Fatalf("block %d: scale %04x of %g", b/gguf.BlockLen, scale, most)
		}
		// Half a step of most/127 for rounding an element, plus 127 times the rounding error of the
		// scale. The scale is stored as a half, whose error is at most half an ulp: 2^-11 of the
		// scale, or 2^-25 if it is subnormal.
		step := most / 127
		bound := step/2*1.0001 + 127*max(step*math.Pow(2, -11), math.Pow(2, -25))
		for i := b; i < b+gguf.BlockLen; i++ {
			if d := math.Abs(float64(got[i] - src[i])); d > bound {
				t.Fatalf("element %d: %g instead of %g, off by %g over %g", i, got[i], src[i], d, bound)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	file, _, _ := sample(t)
	edit := func(at int, with ...byte) []byte {
		out := slices.Clone(file)
		copy(out[at:], with)
		return out
	}
	find := func(s string) int { return bytes.Index(file, []byte(s)) }
	for want, in := range map[string][]byte{
		"not a GGUF file":                    edit(0, 'X'),
		"version 2 of GGUF":                  edit(4, 2),
		"truncated: ":                        file[:100],
		"truncated: 0 bytes":                 nil,
		"entries; at most":                   edit(8, 0, 0, 0, 0, 1),
		"a string of":                        edit(24, 0, 0, 0, 0, 1),
		"a value of type 99 is not read":     edit(find("a.u32")+5, 99),
		"an array of type 99":                edit(find("a.ints")+10, 99),
		"dimensions":                         edit(find("a.none")+6+16+8+1, 9),
		"tensor d: its data end after":       file[:len(file)-32],
		"type 99 is not read":                edit(len(file)-int(dataBytes(t, file))-12-lastPad(t, file), 99),
		"tensor d: its data begin at 33, no": edit(len(file)-int(dataBytes(t, file))-8-lastPad(t, file), 33),
	} {
		_, err := gguf.Open(bytes.NewReader(in), int64(len(in)))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// dataBytes returns the size in bytes of a file's data section.
func dataBytes(t *testing.T, file []byte) int64 {
	f := testkit.Must(gguf.Open(bytes.NewReader(file), int64(len(file))))(t)
	return int64(len(file)) - f.Data
}

// lastPad returns the number of zeros between the list of tensors and the data. The list ends with
// the offset of the tensor d.
func lastPad(t *testing.T, file []byte) int {
	f := testkit.Must(gguf.Open(bytes.NewReader(file), int64(len(file))))(t)
	d, _ := f.Tensor("d")
	end := bytes.LastIndex(file[:f.Data], binary.LittleEndian.AppendUint64(nil, uint64(d.Off))) + 8
	return int(f.Data) - end
}

func FuzzOpen(f *testing.F) {
	file, _, _ := sample(f)
	f.Add(file)
	f.Add(file[:200])
	f.Add([]byte("GGUF"))
	f.Fuzz(func(t *testing.T, in []byte) {
		g, err := gguf.Open(bytes.NewReader(in), int64(len(in)))
		if err != nil {
			return
		}
		for _, x := range g.Tensors {
			if x.Bytes() > int64(len(in)) {
				t.Fatalf("%s has %d bytes of %d", x.Name, x.Bytes(), len(in))
			}
			testkit.Must(g.Read(x))(t)
		}
	})
}
