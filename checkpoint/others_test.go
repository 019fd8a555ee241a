package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mt/model"
)

// counted are elements that tell tensors and places apart, exact in bf16.
func counted(i int64) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(i%251)<<16|0x3f000000)
}

// withOthers adds what models have beside the parameters: towers of any type, a
// layer for further tokens, a buffer.
func withOthers(m map[string]*fakeTensor) {
	m["vision_tower.blocks.0.weight"] = &fakeTensor{DType: "F16", Shape: []int64{2, 3}, data: []byte("abcdefghijkl")}
	m["vision_tower.ids"] = &fakeTensor{DType: "I64", Shape: []int64{1}, data: []byte("12345678")}
	m["visual.scale"] = &fakeTensor{DType: "F32", Shape: []int64{}, data: []byte("wxyz")}
	m["model.layers.2.eh_proj.weight"] = &fakeTensor{DType: "BF16", Shape: []int64{2}, data: []byte("mtp!")}
	m["model.layers.0.self_attn.rotary_emb.inv_freq"] = &fakeTensor{DType: "F32", Shape: []int64{1}, data: []byte("freq")}
}

// tie stores the embedding as the head too.
func tie(m map[string]*fakeTensor) {
	head := *m["model.embed_tokens.weight"]
	m["lm_head.weight"] = &head
}

// spelt is a config and a directory of its tensors: of a language model alone, or of
// one beside a vision tower, whose names begin with pre in place of "model." and head
// in place of "lm_head.".
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
	if err != nil {
		t.Fatal(err)
	}
	c, err := model.ParseConfig(raw, "config.json")
	if err != nil {
		t.Fatal(err)
	}
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

// prefixes are the ways to begin the names of a model's tensors.
var prefixes = [][2]string{{"model.", "lm_head."}, {"model.language_model.", "lm_head."}, {"language_model.model.", "language_model.lm_head."}}

// opened is the source of saves from dir.
func opened(t *testing.T, dir string, layers []Layer) *Source {
	t.Helper()
	s, err := OpenSource(dir, layoutsOf(layers))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// saved writes the model of layers both ways and returns the directories.
func saved(t *testing.T, c *model.Config, layers []Layer, source *Source, d DType) map[string]string {
	t.Helper()
	o := options(c, layers, d)
	o.Source, o.MaxShardBytes = source, 3000
	out, final := t.TempDir(), t.TempDir()
	if err := save(out, layers, o, testState); err != nil {
		t.Fatal(err)
	}
	if err := WriteModel(final, layers, o, nil); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"checkpoint": filepath.Join(out, "checkpoint-20"), "final": final}
}

// TestOthersAreCopied: a directory read and written without a step in between is
// the same, tensor by tensor, whatever it holds beside the parameters and however
// it spells their names.
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
				if _, err := Load(saved(t, c, layers, source, BF16)["checkpoint"], again, nil); err != nil {
					t.Fatal(err)
				}
				sameValues(t, values(again), values(layers))
			})
		}
	}
}

// sameTensors compares the tensors of a directory with those wanted.
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

// checkIndex: the index names n tensors, and no file holds trained tensors and
// others.
func checkIndex(t *testing.T, dir string, n int) {
	t.Helper()
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(read(t, filepath.Join(dir, indexName)), &index); err != nil {
		t.Fatal(err)
	}
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

// TestTiedHeadMoves: a head that is stored although it is tied is saved as the
// embedding is, not as it was: Transformers reads both and unties them where they
// differ.
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

// TestUnknownTensors: a tensor that looks like a trained weight and that config.json
// does not announce is an error.
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
		if tc.name == "another head" { // its bytes are read with the weights
			continue
		}
		if err := CheckModel(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: CheckModel: %v", tc.name, err)
		}
	}
}

// TestUnknownInBlocks: a tensor of a block that is trained is not passed over
// however names begin, nor in blocks of experts.
func TestUnknownInBlocks(t *testing.T) {
	moe, err := model.FromInline(map[string]any{"model_type": "qwen3_moe", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 5}, "test")
	if err != nil {
		t.Fatal(err)
	}
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

// TestSourceGone: once it is opened, a directory may go away.
func TestSourceGone(t *testing.T) {
	c := small(t)
	dir := fakeModel(t, c, "F32", counted, withOthers)
	layers := newLayers(c, false)
	if _, err := loadWhole(dir, layers, nil); err != nil {
		t.Fatal(err)
	}
	dtypes, data := tensorsOf(t, dir)
	source := opened(t, dir, layers)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for what, out := range saved(t, c, layers, source, F32) {
		sameTensors(t, what, out, dtypes, data)
	}
	if _, err := OpenSource(dir, c.Layouts(false)); err == nil || !strings.Contains(err.Error(), dir+": no model.safetensors") {
		t.Errorf("got %v", err)
	}
}

// TestSourceHeld: only files with tensors to copy stay open.
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

// TestSmallestPieces: tensors of fewer bytes than a piece of conversion takes, and
// names that JSON writes otherwise than Go does.
func TestSmallestPieces(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	header := `{"a\u0001\u00ad\"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
	write(t, filepath.Join(dir, singleName), safetensors(header, []byte{0, 0, 0x80, 0x3f}))
	w, err := OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := CopyModel(t.Context(), out, w, CopyOptions{DType: BF16}); err != nil {
		t.Fatal(err)
	}
	_, data := tensorsOf(t, out)
	if got := data["a\x01\u00ad\""]; !bytes.Equal(got, []byte{0x80, 0x3f}) {
		t.Errorf("%v", data)
	}
}

// TestBrokenLink: a link of the Hugging Face cache whose file is gone.
func TestBrokenLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("gone", filepath.Join(dir, singleName)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenWeights(dir); err == nil || !strings.Contains(err.Error(), "a link to a file that is not there; fetch it again with `hf download") {
		t.Errorf("got %v", err)
	}
}
