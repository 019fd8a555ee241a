package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"mt/internal/testkit"
	"mt/model"
)

// TestTowers: small models with vision towers that are loaded and saved again have the same
// tensors. The trained ones pass through layers, and the others are copied.
func TestTowers(t *testing.T) {
	for _, name := range []string{"mistral3", "ministral3", "qwen2vl", "qwen25vl", "qwen3vl", "qwen3vlmoe"} {
		dir := filepath.Join("../internal/run/testdata/recordings", name, "model")
		c, err := model.LoadDir(dir)
		testkit.NoError(t, err)
		layers := newLayers(c, false)
		beside, err := loadWhole(dir, layers, nil)
		if err != nil || len(beside) == 0 || slices.ContainsFunc(beside, func(n string) bool { return !tower.MatchString(n) }) {
			t.Fatalf("%s: beside the language model are %v, %v", name, beside, err)
		}
		source, err := OpenSource(dir, c.Layouts(false))
		testkit.NoError(t, err)
		out := t.TempDir()
		testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c, SaveDType: F32, MaxShardBytes: 8_000, Source: source}, nil))
		source.Close()
		_, want := tensorsOf(t, dir)
		if _, got := tensorsOf(t, out); !maps.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("%s: tensors differ", name)
		}
	}
}

// tower are the names of what stands beside a language model in recorded models.
var tower = regexp.MustCompile(`^(model\.)?(visual|vision_tower|audio_tower|embed_vision|embed_audio|multi_modal_projector|mm_projector|vision_adapter|vision_projection|mtp)\.`)

// TestFixtures: a recorded model that is read and written in fp32 has every tensor byte for byte,
// whether memory holds bf16 or fp32 weights. Matrices of indexers, which are frozen, are the exception in bf16. A vision tower's tensors are copied.
func TestFixtures(t *testing.T) {
	for i, dir := range testkit.Recordings(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			if i%8 != 0 {
				testkit.NotShort(t)
				testkit.DrawnInRace(t, 5)
			}
			dir := filepath.Join(dir, "model")
			c := testkit.Must(model.LoadDir(dir))(t)
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
				testkit.NoError(t, err)
				out := t.TempDir()
				testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c, SaveDType: F32, MaxShardBytes: 100_000, Source: beside}, extras))
				beside.Close()
				_, got := tensorsOf(t, out)
				for n, w := range want {
					if rounded := bf16 && strings.Contains(n, ".indexer.w"); !rounded && !bytes.Equal(got[n], w) { // a frozen matrix is bf16
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

// fakeModel writes a model.safetensors with all tensors of c in the given dtype and returns its
// directory. Element i of each tensor is value(i). edit may change the tensors before they are
// written.
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
	header := testkit.Must(json.Marshal(all))(t)
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
			testkit.Must(loadWhole(dir, layers, nil))(t)
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
			`model.safetensors: tensor "model.norm.weight": its dtype is I32; F32, BF16, F16, F64 and F8_E4M3 with scales are read`},
		{"fp8", func(m map[string]*fakeTensor) {
			x := m["model.layers.0.mlp.up_proj.weight"]
			x.DType, x.data = "F8_E4M3", x.data[:len(x.data)/4]
		}, `model.safetensors: tensor "model.layers.0.mlp.up_proj.weight": its dtype is F8_E4M3, and its scales are missing: neither "model.layers.0.mlp.up_proj.weight_scale_inv" nor`},
		{"E5M2", func(m map[string]*fakeTensor) {
			x := m["model.layers.0.mlp.up_proj.weight"]
			x.DType, x.data = "F8_E5M2", x.data[:len(x.data)/4]
		}, `its dtype is F8_E5M2; F32, BF16, F16, F64 and F8_E4M3 with scales are read: other quantized weights cannot be trained, take`},
	}
	for _, tc := range cases {
		dir := fakeModel(t, c, "F32", f32, tc.edit)
		_, err := loadWhole(dir, newLayers(c, false), nil)
		if err == nil || !strings.HasPrefix(err.Error(), "load model: "+dir) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

// counted returns element i of a fake tensor, in fp32 and exact in bf16. Elements differ, so that a
// mistaken offset shows.
func counted(i int64) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(i%251)<<16|0x3f000000)
}

// withOthers adds tensors that models have beside their parameters: vision towers of any dtype, a
// layer that predicts further tokens, and a buffer.
func withOthers(m map[string]*fakeTensor) {
	m["vision_tower.blocks.0.weight"] = &fakeTensor{DType: "F16", Shape: []int64{2, 3}, data: []byte("abcdefghijkl")}
	m["vision_tower.ids"] = &fakeTensor{DType: "I64", Shape: []int64{1}, data: []byte("12345678")}
	m["visual.scale"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: []byte("wxyz")}
	m["model.layers.2.eh_proj.weight"] = &fakeTensor{DType: "BF16", Shape: []int64{2}, data: []byte("mtp!")}
	m["model.layers.0.self_attn.rotary_emb.inv_freq"] = &fakeTensor{DType: "F32", Shape: []int64{1}, data: []byte("freq")}
}

// tie stores the embedding a second time, as the head.
func tie(m map[string]*fakeTensor) {
	head := *m["model.embed_tokens.weight"]
	m["lm_head.weight"] = &head
}

// spelt returns a config and a directory with its tensors, for a language model alone or beside a
// vision tower. Names of tensors begin with pre instead of "model." and with head instead of
// "lm_head.".
func spelt(t *testing.T, tied bool, pre, head string) (*model.Config, string) {
	t.Helper()
	keys := map[string]any{"tie_word_embeddings": tied, "num_hidden_layers": 2}
	if pre == "model." {
		c := config(t, keys)
		return c, fakeModel(t, c, "F32", counted, func(m map[string]*fakeTensor) {
			if tied {
				tie(m)
			}
			withOthers(m)
		})
	}
	maps.Copy(keys, map[string]any{"vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6})
	raw, err := json.Marshal(map[string]any{"model_type": "gemma3", "architectures": []string{"Gemma3ForConditionalGeneration"}, "text_config": keys, "tie_word_embeddings": tied})
	testkit.NoError(t, err)
	c, err := model.ParseConfig(raw, "config.json")
	testkit.NoError(t, err)
	dir := fakeModel(t, c, "F32", counted, func(m map[string]*fakeTensor) {
		for _, name := range slices.Collect(maps.Keys(m)) {
			x := m[name]
			delete(m, name)
			name = strings.TrimPrefix(name, "language_model.")
			if rest, ok := strings.CutPrefix(name, "model."); ok {
				name = pre + rest
			} else {
				name = head + strings.TrimPrefix(name, "lm_head.")
			}
			m[name] = x
		}
		if tied {
			table := *m[pre+"embed_tokens.weight"]
			m[head+"weight"] = &table
		}
		withOthers(m)
	})
	write(t, filepath.Join(dir, "config.json"), raw)
	if c, err = model.LoadDir(dir); err != nil {
		t.Fatal(err)
	}
	return c, dir
}

// prefixes are the beginnings that tensors' names have in published models: of the model, and of
// its head.
var prefixes = [][2]string{{"model.", "lm_head."}, {"model.language_model.", "lm_head."}, {"language_model.model.", "language_model.lm_head."}}

// opened opens dir as the Source of saves, and closes it at the end of the test.
func opened(t *testing.T, dir string, layers []Layer) *Source {
	t.Helper()
	s := testkit.Must(OpenSource(dir, layoutsOf(layers)))(t)
	t.Cleanup(s.Close)
	return s
}

// saved writes the model of layers as a checkpoint and as a final model. It returns the two
// directories by name.
func saved(t *testing.T, c *model.Config, layers []Layer, source *Source, d DType) map[string]string {
	t.Helper()
	o := options(c, layers, d)
	o.Source, o.MaxShardBytes = source, 3000
	out, final := t.TempDir(), t.TempDir()
	testkit.NoError(t, save(out, layers, o, testState))
	testkit.NoError(t, WriteModel(final, layers, o, nil))
	return map[string]string{"checkpoint": filepath.Join(out, "checkpoint-20"), "final": final}
}

// TestOthersAreCopied: reading and writing a directory without a step in between keeps every tensor, whatever other
// tensors it has and however their names are spelled.
func TestOthersAreCopied(t *testing.T) {
	for _, tied := range []bool{false, true} {
		for _, p := range prefixes {
			t.Run(fmt.Sprint(tied, " ", p), func(t *testing.T) {
				c, dir := spelt(t, tied, p[0], p[1])
				layers := newLayers(c, false)
				names, err := loadWhole(dir, layers, nil)
				want := "[model.layers.2.eh_proj.weight vision_tower.blocks.0.weight vision_tower.ids visual.scale]"
				if err != nil || fmt.Sprint(names) != want {
					t.Fatalf("%v, %v; want %s", names, err, want)
				}
				dtypes, data := tensorsOf(t, dir)
				source := opened(t, dir, layers)
				for what, out := range saved(t, c, layers, source, F32) {
					sameTensors(t, what, out, dtypes, data)
					checkIndex(t, out, len(data))
				}
				again := newLayers(c, true)
				testkit.Must(Load(saved(t, c, layers, source, BF16)["checkpoint"], again, nil))(t)
				sameValues(t, values(again), values(layers))
			})
		}
	}
}

// sameTensors checks that the tensors in dir have the given dtypes and bytes.
func sameTensors(t *testing.T, what, dir string, dtypes map[string]string, data map[string][]byte) {
	t.Helper()
	gotTypes, got := tensorsOf(t, dir)
	if !maps.Equal(gotTypes, dtypes) {
		t.Errorf("%s: types %v, want %v", what, gotTypes, dtypes)
	}
	for name, w := range data {
		if !bytes.Equal(got[name], w) {
			t.Errorf("%s: %s differs", what, name)
		}
	}
}

// checkIndex checks that the index names n tensors, and that no file holds both trained tensors and
// others.
func checkIndex(t *testing.T, dir string, n int) {
	t.Helper()
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	testkit.NoError(t, json.Unmarshal(read(t, filepath.Join(dir, indexName)), &index))
	if len(index.WeightMap) != n {
		t.Errorf("the index has %d tensors of %d", len(index.WeightMap), n)
	}
	apart := index.WeightMap["visual.scale"]
	for name, file := range index.WeightMap {
		if file == apart && strings.HasSuffix(name, "_proj.weight") && !strings.Contains(name, "eh_proj") {
			t.Errorf("%s lies in %s, beside what is not trained", name, file)
		}
	}
}

// TestTiedHeadMoves: a stored but tied head is saved as the trained embedding. Transformers reads both and unties
// them if they differ.
func TestTiedHeadMoves(t *testing.T) {
	c := config(t, map[string]any{"tie_word_embeddings": true})
	dir := fakeModel(t, c, "F32", counted, tie)
	layers := newLayers(c, true)
	fillLayers(layers, 1)
	for what, out := range saved(t, c, layers, opened(t, dir, layers), BF16) {
		dtypes, data := tensorsOf(t, out)
		if dtypes["lm_head.weight"] != "BF16" || !bytes.Equal(data["lm_head.weight"], data["model.embed_tokens.weight"]) {
			t.Errorf("%s: the head is %s and not the embedding", what, dtypes["lm_head.weight"])
		}
	}
}

// TestUnknownTensors: a tensor that looks like a trained weight, but that config.json does not
// announce, is an error.
func TestUnknownTensors(t *testing.T) {
	one := func(name, dtype string) func(map[string]*fakeTensor) {
		return func(m map[string]*fakeTensor) {
			m[name] = &fakeTensor{DType: dtype, Shape: []int64{1}, data: make([]byte, dtypeSize[dtype])}
		}
	}
	const announced = "config.json announces no such parameter"
	for _, tc := range []struct {
		name string
		edit func(map[string]*fakeTensor)
		want string
	}{
		{"bias in a block", one("model.layers.1.self_attn.q_norm.bias", "F32"), announced},
		{"module in a block", one("model.layers.0.adapter.weight", "F32"), announced},
		{"bias of the head", one("lm_head.bias", "F32"), announced},
		{"bias of the norm", one("model.norm.bias", "F32"), announced},
		{"fp8 scale", one("model.layers.0.mlp.up_proj.weight_scale_inv", "F32"), "belongs to quantized weights, which cannot be trained"},
		{"gptq", one("model.layers.0.mlp.up_proj.qweight", "I32"), "belongs to quantized weights"},
		{"another head", func(m map[string]*fakeTensor) {
			m["lm_head.weight"] = &fakeTensor{DType: "F32", Shape: m["model.embed_tokens.weight"].Shape, data: make([]byte, 37*14*4)}
		}, `differs from "model.embed_tokens.weight", to which config.json ties it: set tie_word_embeddings to false`},
		{"head of another shape", one("lm_head.weight", "F32"), "its shape is [1], but config.json ties it to the embedding, which is [37 14]"},
	} {
		c := config(t, map[string]any{"tie_word_embeddings": true})
		dir := fakeModel(t, c, "F32", counted, tc.edit)
		layers := newLayers(c, false)
		_, err := loadWhole(dir, layers, nil)
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, singleName)+": tensor ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
		if tc.name == "another head" { // CheckModel reads no data and cannot find this
			continue
		}
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: CheckModel: %v", tc.name, err)
		}
	}
}

// TestUnknownInBlocks: an unknown tensor of a trained block is an error, in whatever way the
// model's names begin, and also in blocks of experts.
func TestUnknownInBlocks(t *testing.T) {
	moe := testkit.Must(model.FromInline(map[string]any{"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 5}, "test"))(t)
	all := [][]model.Layout{moe.Layouts(false)}
	names := []string{"model.layers.1.mlp.shared_expert.up_proj.weight"}
	for _, p := range prefixes {
		c, _ := spelt(t, true, p[0], p[1])
		all, names = append(all, c.Layouts(false)), append(names, p[0]+"layers.1.adapter.weight")
	}
	for i, layouts := range all {
		known := tableOf(layouts)
		if why := known.refuses(names[i]); !strings.Contains(why, "config.json announces no such parameter") {
			t.Errorf("%s: %q", names[i], why)
		}
		beyond := strings.Replace(names[i], "layers.1.", "layers.2.", 1)
		if why := known.refuses(beyond); why != "" {
			t.Errorf("%s, after the last block: %s", beyond, why)
		}
	}
}

// TestSourceGone: after OpenSource, the model directory may be removed, and saves still succeed.
func TestSourceGone(t *testing.T) {
	c := small(t)
	dir := fakeModel(t, c, "F32", counted, withOthers)
	layers := newLayers(c, false)
	testkit.Must(loadWhole(dir, layers, nil))(t)
	dtypes, data := tensorsOf(t, dir)
	source := opened(t, dir, layers)
	testkit.NoError(t, os.RemoveAll(dir))
	for what, out := range saved(t, c, layers, source, F32) {
		sameTensors(t, what, out, dtypes, data)
	}
	if _, err := OpenSource(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), dir+": no model.safetensors") {
		t.Errorf("got %v", err)
	}
}

// TestSourceHeld: after OpenSource, only files with tensors to copy stay open.
func TestSourceHeld(t *testing.T) {
	c := small(t)
	layers := newLayers(c, false)
	for want, edit := range map[bool]func(map[string]*fakeTensor){false: nil, true: withOthers} {
		s := opened(t, fakeModel(t, c, "F32", counted, edit), layers)
		_, err := s.files.shards[singleName].file.Stat()
		if open := err == nil; open != want {
			t.Errorf("open: %v, want %v", open, want)
		}
	}
}

// TestSmallestPieces: a tensor of fewer bytes than the smallest piece is converted. Names with
// characters that JSON and Go escape differently are copied.
func TestSmallestPieces(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	header := `{"a\u0001\u00ad\"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	write(t, filepath.Join(dir, singleName), safetensors(header, []byte{0, 0, 0x80, 0x3f}))
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	testkit.Must(CopyModel(t.Context(), out, w, CopyOptions{DType: BF16}))(t)
	_, data := tensorsOf(t, out)
	if got := data["a\x01\u00ad\""]; !bytes.Equal(got, []byte{0x80, 0x3f}) {
		t.Errorf("%v", data)
	}
}

// TestBrokenLink: a link of the Hugging Face cache whose target is missing is an error with the
// command to download the file.
func TestBrokenLink(t *testing.T) {
	dir := t.TempDir()
	testkit.NoError(t, os.Symlink("gone", filepath.Join(dir, singleName)))
	if _, err := OpenWeights(dir); err == nil || !strings.Contains(err.Error(), "a link to a file that is not there; fetch it again with `hf download") {
		t.Errorf("got %v", err)
	}
}

// layout describes a published model directory: its config.json and its tensors without their
// values. tools/layouts.py writes it.
type layout struct {
	Name, DType, Folder, Fails string
	Config                     json.RawMessage
	Tensors                    map[string]json.RawMessage // a shape, or a type and a shape
	Absent                     []string                   // tensors that the index lists but no file has
}

// dir makes a model directory of the layout. Its file's data are a hole, which takes no space on
// disk.
func (l layout) dir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "config.json"), l.Config)
	header, index, off := map[string]any{}, map[string]string{}, int64(0)
	all := map[string]fakeTensor{}
	for name, raw := range l.Tensors {
		f := fakeTensor{DType: l.DType}
		if f.DType == "" {
			f.DType = "BF16"
		}
		if json.Unmarshal(raw, &f.Shape) != nil {
			testkit.NoError(t, json.Unmarshal(raw, &[]any{&f.DType, &f.Shape}))
		}
		all[name] = f
	}
	names := slices.Sorted(maps.Keys(all))
	slices.SortStableFunc(names, func(a, b string) int { return int(dtypeSize[all[b].DType] - dtypeSize[all[a].DType]) })
	shard := l.Folder + "model-00001-of-00001.safetensors"
	for _, name := range names {
		f := all[name]
		n := dtypeSize[f.DType]
		for _, d := range f.Shape {
			n *= d
		}
		f.Offsets = []int{int(off), int(off + n)}
		header[name], index[name], off = f, shard, off+n
	}
	text := testkit.Must(json.Marshal(header))(t)
	if l.Folder == "" && l.Absent == nil {
		shard = singleName
	} else {
		for _, name := range l.Absent {
			index[name] = shard
		}
		writeIndex(t, dir, index)
	}
	file := filepath.Join(dir, shard)
	write(t, file, safetensors(string(text), nil))
	testkit.NoError(t, os.Truncate(file, int64(8+len(text))+off))
	return dir
}

// TestLayouts: model directories with the layouts of published models open. If a model cannot be
// trained, the error explains why.
func TestLayouts(t *testing.T) {
	var all []layout
	testkit.NoError(t, json.Unmarshal(read(t, "../model/testdata/layouts.json"), &all))
	if len(all) < 40 {
		t.Errorf("%d layouts", len(all))
	}
	for _, l := range all {
		t.Run(strings.ReplaceAll(l.Name, " ", "_"), func(t *testing.T) {
			dir := l.dir(t)
			c, err := model.LoadDir(dir)
			if err == nil {
				err = CheckModel(dir, c.Layouts(true))
			}
			if (err == nil) != (l.Fails == "") || err != nil && !strings.Contains(err.Error(), l.Fails) {
				t.Error(fmt.Sprint(err), "want", l.Fails)
			}
		})
	}
}

// twoSaves writes checkpoint-10 and checkpoint-20. It returns their directory and the layers.
func twoSaves(t *testing.T) (string, []Layer) {
	t.Helper()
	c := small(t)
	layers := newLayers(c, true)
	fillLayers(layers, 2)
	out := fastDir(t)
	for _, step := range []int{10, 20} {
		s := testState
		s.Step = step
		testkit.NoError(t, saveStep(out, layers, c, s))
	}
	return out, layers
}

// brokenFile is a file whose reads fail after the first left bytes.
type brokenFile struct {
	fs.File
	path string
	left int
}

func (f *brokenFile) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, &fs.PathError{Op: "read", Path: f.path, Err: syscall.EIO}
	}
	n, err := f.File.Read(p[:min(len(p), f.left)])
	f.left -= n
	return n, err
}

// TestDiskErrorIsNotDamage: if a file of the newest checkpoint cannot be opened or read, the error is returned and
// no older checkpoint is used.
func TestDiskErrorIsNotDamage(t *testing.T) {
	out, _ := twoSaves(t)
	records := testkit.Must(readManifest(filepath.Join(out, "checkpoint-20"), openFile))(t)
	files := []string{manifestName}
	for name := range records {
		files = append(files, name)
	}
	for _, name := range append(files, nonFiniteName) {
		if name == nonFiniteName { // last, since a marked checkpoint is passed over unread
			if _, _, err := MarkNonFinite(osFS{}, out, 20, 20, 21); err != nil {
				t.Fatal(err)
			}
		}
		bad := filepath.Join(out, "checkpoint-20", filepath.FromSlash(name))
		for what, open := range map[string]func(string) (fs.File, error){
			"not opened": func(path string) (fs.File, error) {
				return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.EIO}
			},
			"not read": func(path string) (fs.File, error) {
				f, err := openFile(path)
				return &brokenFile{f, path, 0}, err
			},
			"read in part": func(path string) (fs.File, error) {
				f, err := openFile(path)
				return &brokenFile{f, path, 1}, err
			},
		} {
			dir, _, skipped, err := latest(out, nil, func(path string) (fs.File, error) {
				if path == bad {
					return open(path)
				}
				return openFile(path)
			})
			if dir != "" || skipped != nil || !errors.Is(err, syscall.EIO) || !IsDiskError(err) || !strings.Contains(err.Error(), bad) || !strings.Contains(err.Error(), "try again") {
				t.Errorf("%s %s: %q, %v, %v", name, what, dir, skipped, err)
			}
		}
	}
}

func TestIsDiskError(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true, syscall.EACCES: true, syscall.EMFILE: true, syscall.ESTALE: true, syscall.ENOMEM: true,
		syscall.ENOENT: false, syscall.EISDIR: false, syscall.ENOTDIR: false, syscall.ELOOP: false,
	} {
		if got := IsDiskError(&fs.PathError{Op: "read", Path: "x", Err: err}); got != want {
			t.Errorf("%v: %t", err, got)
		}
	}
	if IsDiskError(errors.New("damaged")) {
		t.Error("damage is an error of the disk")
	}
}

// unseal applies change to a checkpoint's manifest and writes it as version 1, without a checksum of its own.
func unseal(t *testing.T, dir string, change func(m *manifest)) []byte {
	t.Helper()
	name := filepath.Join(dir, manifestName)
	var m manifest
	testkit.NoError(t, json.Unmarshal(read(t, name), &m))
	if m.Version != manifestVersion {
		t.Fatalf("version %d", m.Version)
	}
	m.Version = unsealedVersion
	if change != nil {
		change(&m)
	}
	text := testkit.Must(json.MarshalIndent(m, "", " "))(t)
	text = append(text, '\n')
	write(t, name, text)
	return text
}

// TestOlderManifest: a checkpoint whose manifest has version 1, without a checksum of its own,
// loads.
func TestOlderManifest(t *testing.T) {
	out, layers := twoSaves(t)
	unseal(t, filepath.Join(out, "checkpoint-20"), nil)
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 20 || skipped != nil {
		t.Fatalf("%q, %v, %v", dir, skipped, err)
	}
	to := newLayers(small(t), true)
	testkit.Must(Load(dir, to, nil))(t)
	sameValues(t, values(to), values(layers))
}

// TestFlippedManifest: a checkpoint with any flipped bit in its manifest is skipped. With version 1 it may also
// load unchanged, since only later versions have a checksum of their own.
func TestFlippedManifest(t *testing.T) {
	testkit.NotShort(t)
	out, layers := twoSaves(t)
	dir := filepath.Join(out, "checkpoint-20")
	name := filepath.Join(dir, manifestName)
	want := values(layers)
	every := 23 * testkit.Every(t, 5) // has no common factor with 8, so all eight bits of a byte are flipped in turn
	for version, text := range map[int][]byte{manifestVersion: read(t, name), unsealedVersion: unseal(t, dir, nil)} {
		stayed := 0
		for bit := 0; bit < 8*len(text); bit += every {
			flipped := append([]byte(nil), text...)
			flipped[bit/8] ^= 1 << (bit % 8)
			write(t, name, flipped)
			got, state, skipped, err := Latest(out, nil)
			if err != nil || state.Step == 10 && len(skipped) != 1 {
				t.Fatalf("version %d, bit %d: %q, %v, %v", version, bit, got, skipped, err)
			}
			if state.Step != 20 {
				continue
			}
			stayed++
			to := newLayers(small(t), true)
			if _, err := Load(got, to, nil); err != nil {
				t.Errorf("version %d, bit %d, %q: it verifies and does not load: %v", version, bit, flipped[max(0, bit/8-20):][:40], err)
				continue
			}
			sameValues(t, values(to), want)
		}
		if version == manifestVersion && stayed > 0 {
			t.Errorf("%d flipped bits of a manifest with a checksum are not noticed", stayed)
		}
	}
}

// TestRecordedTwice: a manifest that lists one file twice and lacks another one is damaged.
func TestRecordedTwice(t *testing.T) {
	out, _ := twoSaves(t)
	unseal(t, filepath.Join(out, "checkpoint-20"), func(m *manifest) {
		for i := range m.Files {
			if m.Files[i].Name == optimizerName(0, false) {
				m.Files[i].Name = optimizerName(1, false)
			}
		}
	})
	dir, state, skipped, err := Latest(out, nil)
	if err != nil || state.Step != 10 || len(skipped) != 1 || !strings.Contains(skipped[0].Why, `the entry of "optimizer/layer-00001.safetensors" makes no sense`) {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
}

// TestUnusable: Latest skips a checkpoint that the caller says it cannot use, with the caller's
// reason.
func TestUnusable(t *testing.T) {
	out, _ := twoSaves(t)
	newest := filepath.Join(out, "checkpoint-20")
	dir, state, skipped, err := Latest(out, map[string]string{newest: "it does not load"})
	if err != nil || state.Step != 10 || len(skipped) != 1 || skipped[0] != (Skipped{Dir: newest, Why: "it does not load"}) {
		t.Errorf("%q, %v, %v", dir, skipped, err)
	}
	_ = os.RemoveAll(filepath.Join(out, "checkpoint-10"))
	if dir, _, _, err := Latest(out, map[string]string{newest: "no"}); dir != "" || err != nil {
		t.Errorf("%q, %v", dir, err)
	}
}

// zero4 returns 0 in fp32, as an element of a fake tensor.
func zero4(int64) []byte { return make([]byte, 4) }

// fake returns a tensor of zeros with this dtype and shape.
func fake(dtype string, shape ...int64) *fakeTensor {
	n := dtypeSize[dtype]
	for _, d := range shape {
		n *= d
	}
	return &fakeTensor{DType: dtype, Shape: shape, data: make([]byte, n)}
}

// TestBuffersOfPublishedFiles: values that follow from config.json may be in the modules of trained blocks, in any
// type. A tensor with a buffer's name but a parameter's shape is refused.
func TestBuffersOfPublishedFiles(t *testing.T) {
	c := config(t, nil)
	const block = "model.layers.0."
	for name, f := range map[string]*fakeTensor{
		"self_attn.bias":                    fake("BOOL", 1, 1, 9, 9),
		"self_attn.causal_mask":             fake("U8", 1, 1, 9, 9),
		"self_attn.attention.bias":          fake("F16", 1, 1, 9, 9),
		"self_attn.masked_bias":             fake("F32"),
		"self_attn.rotary_emb.inv_freq":     fake("F32", 3),
		"self_attn.rotary_emb.cos_cached":   fake("F32", 1, 1, 9, 6),
		"self_attn.position_ids":            fake("I32", 1, 9),
		"mlp.num_batches_tracked":           fake("I64"),
		"self_attn.rotary_emb.other_buffer": fake("BOOL", 5),
	} {
		dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { m[block+name] = f })
		if err := CheckModel(dir, c.Layouts(false)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, f := range map[string]*fakeTensor{
		"self_attn.bias":        fake("F32", 14),
		"self_attn.extra":       fake("F32", 1, 1, 9, 8),
		"self_attn.k_proj.norm": fake("BF16", 6),
	} {
		dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { m[block+name] = f })
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), "config.json announces no such parameter") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// sharded moves the weights of a model directory into one shard called shard. It returns the index:
// each tensor's file.
func sharded(t *testing.T, dir, shard string) map[string]string {
	t.Helper()
	src := testkit.Must(openSource(dir))(t)
	defer src.Close()
	index := map[string]string{}
	for name := range src.where {
		index[name] = shard
	}
	to := filepath.Join(dir, filepath.FromSlash(shard))
	testkit.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
	testkit.NoError(t, os.Rename(filepath.Join(dir, singleName), to))
	return index
}

func writeIndex(t *testing.T, dir string, index map[string]string) {
	t.Helper()
	text := testkit.Must(json.Marshal(map[string]any{"weight_map": index}))(t)
	text = append([]byte(`{"metadata": {"loss": NaN},`), text[1:]...) // as Python writes a number that is not finite
	write(t, filepath.Join(dir, indexName), text)
}

// TestIndexOfPublishedFiles: shards may be in a subfolder, and an index may list tensors that no shard has and
// nothing needs. A needed but missing tensor is an error that names the index.
func TestIndexOfPublishedFiles(t *testing.T) {
	c := config(t, nil)
	for _, shard := range []string{"x.safetensors", "weights/x.safetensors", "a/b/x-00001-of-00001.safetensors"} {
		dir := fakeModel(t, c, "F32", zero4, nil)
		index := sharded(t, dir, shard)
		for _, extra := range []string{"mtp.fc.weight", "model.layers.1.self_attn.absent.weight", "vision_tower.x"} {
			index[extra] = shard
			writeIndex(t, dir, index)
			if err := CheckModel(dir, c.Layouts(false)); err != nil {
				t.Errorf("%s, %s: %v", shard, extra, err)
			}
			src := testkit.Must(OpenSource(dir, c.Layouts(false)))(t)
			if len(src.entries) > 0 {
				t.Errorf("%s: %d tensors to copy", extra, len(src.entries))
			}
			src.Close()
		}
	}
	dir := fakeModel(t, c, "F32", zero4, func(m map[string]*fakeTensor) { delete(m, "model.norm.weight") })
	index := sharded(t, dir, "x.safetensors")
	index["model.norm.weight"] = "x.safetensors"
	writeIndex(t, dir, index)
	err := CheckModel(dir, c.Layouts(false))
	if err == nil || !strings.Contains(err.Error(), `index.json says that "model.norm.weight" is in x.safetensors, which does not hold it; fetch it again`) {
		t.Error(err)
	}
}

// TestDoublePrecision: float64 weights are rounded to the nearest fp32, also if other tensors have
// other dtypes.
func TestDoublePrecision(t *testing.T) {
	c := config(t, nil)
	numbers := []float64{1.0 / 3, -1e-40, math.Inf(1), 1e300, math.Nextafter(1, 2), 0, -2.5}
	dir := fakeModel(t, c, "F64", func(i int64) []byte {
		return binary.LittleEndian.AppendUint64(nil, math.Float64bits(numbers[i%int64(len(numbers))]))
	}, func(m map[string]*fakeTensor) { m["model.norm.weight"] = fake("F16", m["model.norm.weight"].Shape...) })
	layers := newLayers(c, false)
	testkit.Must(loadWhole(dir, layers, nil))(t)
	for i, got := range values(layers)["model.embed_tokens.weight"] {
		if want := math.Float32bits(float32(numbers[i%len(numbers)])); got != want {
			t.Fatalf("element %d is %08x, want %08x", i, got, want)
		}
	}
	w := testkit.Must(OpenWeights(dir))(t)
	defer w.Close()
	var one [3]float32
	if err := w.Read("model.embed_tokens.weight", 4, one[:]); err != nil || one != [3]float32{1, 0, -2.5} {
		t.Errorf("%v, %v", one, err)
	}
}

// TestWhyMissing: an error about missing tensors describes the tensors that the directory has
// instead.
func TestWhyMissing(t *testing.T) {
	c := config(t, nil)
	wrapped := func(by string) func(map[string]*fakeTensor) {
		return func(m map[string]*fakeTensor) {
			for name, f := range maps.Clone(m) {
				delete(m, name)
				m[by+name] = f
			}
		}
	}
	for want, edit := range map[string]func(map[string]*fakeTensor){
		`the names there begin with "module.model.", where config.json's class has "model."`:           wrapped("module."),
		`begin with "base_model.model.model.", where config.json's class has "model."; save the model`: wrapped("base_model.model."),
		`"lm_head.weight" is missing: the directory has a model without a head`:                        func(m map[string]*fakeTensor) { delete(m, "lm_head.weight") },
		`missing: not the weights that config.json describes`: func(m map[string]*fakeTensor) {
			delete(m, "model.layers.1.mlp.up_proj.weight")
		},
	} {
		dir := fakeModel(t, c, "F32", zero4, edit)
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestTooManyTensors: a header or an index with more tensors than any model has is an error. One
// with a very large, but possible number is read.
func TestTooManyTensors(t *testing.T) {
	testkit.NotShort(t)
	if testkit.Race {
		t.Skip("parses long headers on one goroutine")
	}
	header := func(n int) []byte {
		text := []byte(`{"__metadata__":{"format":"pt"}`)
		for i := range n {
			text = fmt.Appendf(text, `,"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
		}
		return append(text, '}')
	}
	if h, err := parseHeader(header(5000)); err != nil || len(h.tensors) != 5000 {
		t.Errorf("%d tensors, %v", len(h.tensors), err)
	}
	if _, err := parseHeader(header(maxTensors + 1)); err == nil || !strings.Contains(err.Error(), "more than 262144 tensors in one file") {
		t.Error(err)
	}
	index := func(n int) []byte {
		text := []byte(`{"weight_map":{"a":"x"`)
		for i := range n - 1 {
			text = fmt.Appendf(text, `,"%d":"x"`, i)
		}
		return append(text, "}}"...)
	}
	if m, err := parseIndex(index(5000)); err != nil || len(m) != 5000 {
		t.Errorf("%d tensors, %v", len(m), err)
	}
	if _, err := parseIndex(index(maxIndexed + 1)); err == nil || !strings.Contains(err.Error(), "more than 524288 tensors in one index") {
		t.Error(err)
	}
}
