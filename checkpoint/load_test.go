package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"mt/internal/long"
	"mt/internal/recordings"
	"mt/model"
)

// TestTowers: the same of small models with vision towers, whose every tensor is given back, through the trained layers or past them.
func TestTowers(t *testing.T) {
	for _, name := range []string{"mistral3", "ministral3", "qwen2vl", "qwen25vl", "qwen3vl", "qwen3vlmoe"} {
		dir := filepath.Join("../internal/run/testdata/recordings", name, "model")
		c, err := model.LoadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		layers := newLayers(c, false)
		beside, err := loadWhole(dir, layers, nil)
		if err != nil || len(beside) == 0 || slices.ContainsFunc(beside, func(n string) bool { return !tower.MatchString(n) }) {
			t.Fatalf("%s: beside the language model are %v, %v", name, beside, err)
		}
		source, err := OpenSource(dir, c.Layouts(false))
		if err != nil {
			t.Fatal(err)
		}
		out := t.TempDir()
		if err := WriteModel(out, layers, WriterOptions{Config: c, SaveDType: F32, MaxShardBytes: 8_000, Source: source}, nil); err != nil {
			t.Fatal(err)
		}
		source.Close()
		_, want := tensorsOf(t, dir)
		if _, got := tensorsOf(t, out); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: tensors differ", name)
		}
	}
}

// tower are the names of what stands beside a language model in recorded models.
var tower = regexp.MustCompile(`^(model\.)?(visual|vision_tower|multi_modal_projector)\.`)

// TestFixtures: reading a fixture's model and writing it in fp32 gives every
// tensor back byte for byte, from either kind of memory; those of a vision tower are copied.
func TestFixtures(t *testing.T) {
	for i, dir := range recordings.Cases(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if i%8 != 0 {
				long.NotShort(t)
			}
			dir := filepath.Join(dir, "model")
			c, err := model.LoadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			_, want := tensorsOf(t, dir)
			for _, bf16 := range []bool{false, true} {
				layers := newLayers(c, bf16)
				var done atomic.Int64
				extra, err := loadWhole(dir, layers, func(d, total int64) {
					if d == total {
						done.Add(1)
					}
				})
				extra = slices.DeleteFunc(extra, tower.MatchString)
				if err != nil || len(extra) > 0 || done.Load() != 1 {
					t.Fatalf("%v, %v, done %d times", extra, err, done.Load())
				}
				extras, err := Companions(dir)
				if err != nil || len(extras) != 1 {
					t.Fatalf("companions %v, %v", extras, err)
				}
				beside, err := OpenSource(dir, c.Layouts(bf16))
				if err != nil {
					t.Fatal(err)
				}
				out := t.TempDir()
				if err := WriteModel(out, layers, WriterOptions{Config: c, SaveDType: F32, MaxShardBytes: 100_000, Source: beside}, extras); err != nil {
					t.Fatal(err)
				}
				beside.Close()
				_, got := tensorsOf(t, out)
				for n, w := range want {
					if !bytes.Equal(got[n], w) {
						t.Errorf("%s differs", n)
					}
				}
				if len(got) != len(want) {
					t.Errorf("%d tensors, want %d", len(got), len(want))
				}
				if !bytes.Equal(read(t, filepath.Join(out, "config.json")), read(t, filepath.Join(dir, "config.json"))) {
					t.Error("config.json differs")
				}
			}
		})
	}
}

// fakeModel writes a model.safetensors with all tensors of c in the given
// dtype, element i of each being value(i), changed by edit.
func fakeModel(t *testing.T, c *model.Config, dtype string, value func(i int64) []byte, edit func(m map[string]*fakeTensor)) string {
	t.Helper()
	all := map[string]*fakeTensor{}
	for i, l := range c.Layouts(false) {
		for _, e := range entriesOf(i, l, planeF32) {
			f := &fakeTensor{DType: dtype, Shape: e.shape}
			for j := range e.elems {
				f.data = append(f.data, value(j)...)
			}
			all[e.name] = f
		}
	}
	if edit != nil {
		edit(all)
	}
	var data []byte
	names := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(names, func(a, b string) int { return int(dtypeSize[all[b].DType] - dtypeSize[all[a].DType]) })
	for _, name := range names {
		f := all[name]
		f.Offsets = []int{len(data), len(data) + len(f.data)}
		data = append(data, f.data...)
	}
	header, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "model.safetensors"), safetensors(string(header), data))
	return dir
}

type fakeTensor struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int   `json:"data_offsets"`
	data    []byte
}

func TestLoadDTypes(t *testing.T) {
	c := config(t, nil)
	pattern := func(i int64) uint32 { return math.Float32bits(float32(i%29) - 13.5) }
	for dtype, value := range map[string]func(i int64) []byte{
		"F32":  func(i int64) []byte { return binary.LittleEndian.AppendUint32(nil, pattern(i)) },
		"BF16": func(i int64) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(pattern(i)>>16)) },
		"F16": func(i int64) []byte { // exponent and fraction of a small normal number
			b := pattern(i)
			return binary.LittleEndian.AppendUint16(nil, uint16(b>>16&0x8000|((b>>23&255)-112)<<10|b>>13&0x3ff))
		},
	} {
		dir := fakeModel(t, c, dtype, value, nil)
		for _, bf16 := range []bool{false, true} {
			layers := newLayers(c, bf16)
			if _, err := loadWhole(dir, layers, nil); err != nil {
				t.Fatal(err)
			}
			for name, got := range values(layers) {
				if strings.HasPrefix(name, "m.") || strings.HasPrefix(name, "v.") {
					continue
				}
				for i, g := range got {
					if g != pattern(int64(i)) {
						t.Fatalf("%s bf16 %v: %s[%d] is %08x, want %08x", dtype, bf16, name, i, g, pattern(int64(i)))
					}
				}
			}
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	c := config(t, nil)
	f32 := func(i int64) []byte { return make([]byte, 4) }
	cases := []struct {
		name string
		edit func(m map[string]*fakeTensor)
		want string
	}{
		{"missing", func(m map[string]*fakeTensor) { delete(m, "model.norm.weight") }, `tensor "model.norm.weight" is missing: not the weights that config.json describes`},
		{"all missing", func(m map[string]*fakeTensor) { clear(m) }, `tensors ["model.embed_tokens.weight" "model.layers.0.input_layernorm.weight" "model.layers.0.self_attn.q_proj.weight"] and 32 more are missing`},
		{"shape", func(m map[string]*fakeTensor) {
			m["lm_head.weight"].Shape = []int64{14, 37}
		}, `model.safetensors: tensor "lm_head.weight": its shape is [14 37], config.json asks for [37 14]`},
		{"dtype", func(m map[string]*fakeTensor) { m["model.norm.weight"].DType = "I32" },
			`model.safetensors: tensor "model.norm.weight": its dtype is I32; F32, BF16, F16 and F64 are read`},
		{"fp8", func(m map[string]*fakeTensor) {
			x := m["model.layers.0.mlp.up_proj.weight"]
			x.DType, x.data = "F8_E4M3", x.data[:len(x.data)/4]
		}, `model.safetensors: tensor "model.layers.0.mlp.up_proj.weight": its dtype is F8_E4M3; F32, BF16, F16 and F64 are read: quantized weights cannot be trained, take`},
	}
	for _, tc := range cases {
		dir := fakeModel(t, c, "F32", f32, tc.edit)
		_, err := loadWhole(dir, newLayers(c, false), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "load model: "+dir) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}
