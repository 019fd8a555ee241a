package checkpoint

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"mt/host/optim"
	"mt/internal/testkit"
	"mt/model"
)

// TestResumeIsExact: a checkpoint loads bit for bit, from and into memory with bf16 or fp32
// weights. This holds for both saved dtypes, with compression and without, and for one file or
// several.
func TestResumeIsExact(t *testing.T) {
	for _, tied := range []bool{false, true} {
		c := config(t, map[string]any{"tie_word_embeddings": tied})
		for _, fromBF16 := range []bool{false, true} {
			from := newLayers(c, fromBF16)
			fillLayers(from, 5)
			want := values(from)
			for _, d := range []DType{BF16, F32} {
				for _, zstd := range []bool{false, true} {
					o := options(c, from, d)
					o.Zstd = zstd
					if zstd {
						o.MaxShardBytes = 1000
					}
					out := fastDir(t)
					testkit.NoError(t, save(out, from, o, testState))
					dir, _, skipped, err := Latest(out, nil)
					if err != nil || filepath.Base(dir) != "checkpoint-20" || len(skipped) > 0 {
						t.Fatalf("Latest: %q, %v, %v", dir, skipped, err)
					}
					for _, toBF16 := range []bool{false, true} {
						t.Run(fmt.Sprint("tied ", tied, " from bf16 ", fromBF16, " to ", toBF16, " as ", d, " zstd ", zstd), func(t *testing.T) {
							to := newLayers(c, toBF16)
							state := testkit.Must(Load(dir, to, nil))(t)
							if !reflect.DeepEqual(state, testState) {
								t.Errorf("state %+v", state)
							}
							sameValues(t, values(to), want)
							shared := newLayers(c, toBF16)
							for rank := range 3 {
								testkit.Must(Load(dir, partOf(shared, rank, 3), nil))(t)
							}
							sameValues(t, values(shared), want)
						})
					}
				}
			}
		}
	}
}

// partOf returns layers as one of several ranks has them: the same tiles, but only the rank's share
// of lower halves and planes.
func partOf(layers []Layer, rank, ranks int) []Layer {
	out := slices.Clone(layers)
	for i, l := range layers {
		own := optim.Share{From: l.Layout.Elems * int64(rank) / int64(ranks), To: l.Layout.Elems * int64(rank+1) / int64(ranks)}
		out[i].Share, out[i].Planes = &own, nil
		if l.Lo != nil {
			out[i].Lo = l.Lo[own.From:own.To:own.To]
		}
		for _, p := range l.Planes {
			p.From, p.Data = own.From, p.Data[4*own.From:4*own.To:4*own.To]
			out[i].Planes = append(out[i].Planes, p)
		}
	}
	return out
}

// TestPieces: a tensor that is too large to be converted in one piece is saved and loaded
// unchanged.
func TestPieces(t *testing.T) {
	testkit.NotShort(t)
	c := config(t, map[string]any{"vocab_size": 140_003, "hidden_size": 10, "num_hidden_layers": 1})
	if 10*140_003*4 <= pieceBytes {
		t.Fatal("the embedding fits into a piece")
	}
	for _, bf16 := range []bool{false, true} {
		from := newLayers(c, bf16)
		fillLayers(from, 6)
		for _, d := range []DType{BF16, F32} {
			o := options(c, from, d)
			o.Zstd = bf16
			out := fastDir(t)
			testkit.NoError(t, save(out, from, o, testState))
			to := newLayers(c, !bf16)
			testkit.Must(Load(filepath.Join(out, "checkpoint-20"), to, nil))(t)
			sameValues(t, values(to), values(from))
		}
	}
}

// TestSavedFiles: a checkpoint has exactly the expected files, and a save leaves no other files.
func TestSavedFiles(t *testing.T) {
	c := config(t, nil)
	layers := newLayers(c, true)
	fillLayers(layers, 1)
	out := t.TempDir()
	o := options(c, layers, BF16)
	o.MaxShardBytes = 2000
	testkit.NoError(t, save(out, layers, o, testState))
	if got := names(t, out); len(got) != 1 || got[0] != "checkpoint-20" {
		t.Fatalf("output holds %v", got)
	}
	dir := filepath.Join(out, "checkpoint-20")
	var index struct {
		Metadata struct {
			Size   int64 `json:"total_size"`
			Params int64 `json:"total_parameters"`
		}
		WeightMap map[string]string `json:"weight_map"`
	}
	testkit.NoError(t, json.Unmarshal(read(t, filepath.Join(dir, indexName)), &index))
	if index.Metadata.Params != c.Params() || index.Metadata.Size != 2*c.Params() {
		t.Errorf("index says %+v of %d parameters", index.Metadata, c.Params())
	}
	shards := map[string]bool{}
	for _, f := range index.WeightMap {
		shards[f] = true
	}
	if len(shards) < 3 || !shards[fmt.Sprintf("model-00001-of-%05d.safetensors", len(shards))] {
		t.Errorf("shards %v", shards)
	}
	dtypes, _ := tensorsOf(t, dir)
	if len(dtypes) != len(index.WeightMap) {
		t.Errorf("%d tensors, the index has %d", len(dtypes), len(index.WeightMap))
	}
	for name, d := range dtypes {
		if d != "BF16" {
			t.Errorf("%s is %s", name, d)
		}
	}
	if s := string(read(t, filepath.Join(dir, "config.json"))); !strings.Contains(s, `"torch_dtype": "bfloat16"`) {
		t.Errorf("config.json: %s", s)
	}
	for _, name := range []string{"tokenizer.json", "trainer_state.json", "manifest.json", "optimizer/layer-00003.safetensors"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	var total int64
	for _, pattern := range []string{"*.safetensors", "optimizer/*.safetensors"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, f := range files {
			total += int64(len(read(t, f)))
		}
	}
	if total < 12*c.Params() || total > 12*c.Params()+20000 {
		t.Errorf("a save of %d parameters takes %d bytes", c.Params(), total)
	}
}

// TestSaveAgain: a save of a step that has a checkpoint already replaces that checkpoint.
func TestSaveAgain(t *testing.T) {
	c := config(t, nil)
	layers := newLayers(c, false)
	out := t.TempDir()
	for seed := range uint64(2) {
		fillLayers(layers, seed)
		testkit.NoError(t, save(out, layers, options(c, layers, F32), testState))
	}
	if got := names(t, out); len(got) != 1 {
		t.Errorf("output holds %v", got)
	}
	to := newLayers(c, false)
	testkit.Must(Load(filepath.Join(out, "checkpoint-20"), to, nil))(t)
	sameValues(t, values(to), values(layers))
}

func TestWriterMisuse(t *testing.T) {
	c := config(t, nil)
	layers := newLayers(c, false)
	out := t.TempDir()
	w, err := NewWriter(out, options(c, layers, BF16))
	testkit.NoError(t, err)
	testkit.NoError(t, w.WriteLayer(1, layers[1]))
	err = w.Commit(testState, nil)
	if err == nil || !strings.Contains(err.Error(), "save checkpoint-20: layer 0 was not written") {
		t.Errorf("got %v", err)
	}
	if again := w.WriteLayer(0, layers[0]); again == nil || again.Error() != err.Error() {
		t.Errorf("after an error: %v", again)
	}
	if got := names(t, out); len(got) != 0 {
		t.Errorf("output holds %v", got)
	}

	if w, err = NewWriter(out, options(c, layers, BF16)); err != nil {
		t.Fatal(err)
	}
	w.Abort()
	w.Abort()
	if got := names(t, out); len(got) != 0 {
		t.Errorf("after Abort output holds %v", got)
	}

	for _, name := range []string{"../x", "a/b", "manifest.json", "model.safetensors", ".."} {
		err := WriteModel(out, layers, options(c, layers, BF16), map[string][]byte{name: nil})
		if err == nil || !strings.Contains(err.Error(), "extra file") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestWriteModel: a final model replaces an older one completely.
func TestWriteModel(t *testing.T) {
	c := config(t, nil)
	layers := newLayers(c, true)
	fillLayers(layers, 3)
	out := t.TempDir()
	write(t, filepath.Join(out, "model-notes.txt"), nil)
	for i, o := range []WriterOptions{
		{Config: c, SaveDType: F32, MaxShardBytes: 2000}, {Config: c, SaveDType: F32, MaxShardBytes: 4000}, {Config: c, SaveDType: F32},
	} {
		testkit.NoError(t, WriteModel(out, layers, o, map[string][]byte{"tokenizer.json": []byte("{}")}))
		to := newLayers(c, true)
		if extra, err := loadWhole(out, to, nil); err != nil || len(extra) > 0 {
			t.Fatalf("save %d: %v, %v", i, extra, err)
		}
		for j, l := range layers {
			for k, p := range l.Planes {
				copy(p.Data, to[j].Planes[k].Data)
			}
		}
		sameValues(t, values(to), values(layers))
	}
	if got := fmt.Sprint(names(t, out)); got != "[config.json model-notes.txt model.safetensors tokenizer.json]" {
		t.Errorf("output holds %v", got)
	}
}

// TestRounding: bf16 weights are saved with the same bits, whether memory holds fp32 weights or
// bf16 weights with lower halves.
func TestRounding(t *testing.T) {
	c := config(t, nil)
	var saved [2]map[string][]byte
	for i, bf16 := range []bool{false, true} {
		layers := newLayers(c, bf16)
		fillLayers(layers, 9)
		out := t.TempDir()
		testkit.NoError(t, WriteModel(out, layers, WriterOptions{Config: c}, nil))
		_, saved[i] = tensorsOf(t, out)
	}
	if len(saved[0]) == 0 || !reflect.DeepEqual(saved[0], saved[1]) {
		t.Error("the saved weights differ")
	}
}

// grouped returns a model some of whose tensors are always saved in fp32 (SavedF32).
func grouped(t *testing.T) *model.Config {
	t.Helper()
	c := testkit.Must(model.FromInline(map[string]any{"model_type": "glm4_moe", "vocab_size": 37, "hidden_size": 14, "intermediate_size": 11, "num_hidden_layers": 2,
		"num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 5}, "test"))(t)
	return c
}

// TestSavedF32: tensors that are always fp32 stay fp32 in a bf16 checkpoint and are loaded unchanged. They have no
// lower halves, neither in a file of their own nor in a linked one.
func TestSavedF32(t *testing.T) {
	for _, linked := range []bool{false, true} {
		c, dir := grouped(t), t.TempDir()
		from, to := newLayers(c, true), newLayers(c, true)
		fillLayers(from, 4)
		o := options(c, from, BF16)
		if linked {
			for range from {
				o.Linked = append(o.Linked, true)
			}
			from = inExtents(t, from, o, dir)
		}
		testkit.NoError(t, save(dir, from, o, testState))
		saved := filepath.Join(dir, "checkpoint-20")
		dtypes, _ := tensorsOf(t, saved)
		kept := 0
		for name, dtype := range dtypes {
			want := "BF16"
			if strings.HasSuffix(name, "e_score_correction_bias") {
				kept, want = kept+1, "F32"
			}
			if dtype != want {
				t.Errorf("%s is %s, want %s", name, dtype, want)
			}
		}
		if kept != c.ExpertBlocks() {
			t.Errorf("%d tensors are kept in fp32, want one for each of %d blocks", kept, c.ExpertBlocks())
		}
		testkit.Must(Load(saved, to, nil))(t)
		sameValues(t, values(to), values(from))
		if n := treeBytes(saved); n > o.CheckpointBytes() {
			t.Errorf("%d bytes, at most %d were expected", n, o.CheckpointBytes())
		}
	}
}

// TestCopyKeepsF32: a copy in bf16 leaves those tensors in fp32 that CopyOptions.F32 names.
func TestCopyKeepsF32(t *testing.T) {
	c := config(t, nil)
	w := testkit.Must(OpenWeights(fakeModel(t, c, "F32", counted, nil)))(t)
	defer w.Close()
	const kept = "model.layers.1.input_layernorm.weight"
	for _, d := range []DType{"", BF16} {
		out := t.TempDir()
		testkit.Must(CopyModel(t.Context(), out, w, CopyOptions{DType: d, F32: map[string]bool{kept: true}}))(t)
		if dtypes, _ := tensorsOf(t, out); dtypes[kept] != "F32" || d == BF16 && dtypes["model.norm.weight"] != "BF16" {
			t.Errorf("%q: %v", d, dtypes)
		}
	}
}

// onDisk returns the space in bytes that the files and directories below dir take, in whole blocks.
func onDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	testkit.NoError(t, filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += blocks(max(info.Size(), 1))
		}
		return err
	}))
	return n
}

// TestRoom: the space that CheckpointBytes and ModelBytes predict for a save suffices, and is not
// much more than the save takes.
func TestRoom(t *testing.T) {
	extra := map[string][]byte{"tokenizer.json": make([]byte, 300_000), "config.yaml": make([]byte, 2000)}
	for name, change := range map[string]func(*WriterOptions){
		"many tensors": func(*WriterOptions) {},
		"bf16":         func(*WriterOptions) {},
		"fp32":         func(o *WriterOptions) { o.SaveDType = F32 },
		"shards":       func(o *WriterOptions) { o.MaxShardBytes = 500 },
		"model only":   func(o *WriterOptions) { o.ModelOnly = true },
	} {
		c := config(t, nil)
		if name == "many tensors" {
			c = config(t, map[string]any{"num_hidden_layers": 60})
		}
		layers := newLayers(c, true)
		o := options(c, layers, BF16)
		o.FS = &faultyFS{}
		for _, data := range extra {
			o.Extra += blocks(int64(len(data)))
		}
		change(&o)
		out := fastDir(t)
		w, err := NewWriter(out, o)
		testkit.NoError(t, err)
		for i, l := range layers {
			testkit.NoError(t, w.WriteLayer(i, l))
		}
		testkit.NoError(t, w.Commit(testState, extra))
		taken, most := onDisk(t, filepath.Join(out, "checkpoint-20")), o.CheckpointBytes()
		if taken > most || most > taken+taken/3+256<<10 {
			t.Errorf("%s: a checkpoint takes %d bytes, %d are asked for", name, taken, most)
		}
		held, leftovers, err := Held(out)
		if err != nil || len(held) != 1 || held[0] > taken || held[0] < taken/3 || leftovers != 0 {
			t.Errorf("%s: held are %d and %d bytes of %d, %v", name, held, leftovers, taken, err)
		}
		model := filepath.Join(out, "model")
		testkit.NoError(t, WriteModel(model, layers, o, extra))
		if taken, most := onDisk(t, model), o.ModelBytes(); taken > most || most > taken+taken/3+256<<10 {
			t.Errorf("%s: a model takes %d bytes, %d are asked for", name, taken, most)
		}
	}
}

// TestHeld: Held lists the sizes of checkpoints from the oldest step to the newest, and the size of
// leftovers.
func TestHeld(t *testing.T) {
	out := t.TempDir()
	for name, n := range map[string]int{"checkpoint-5/a": 10, "checkpoint-20/a": 30, "checkpoint-20/optimizer/b": 7, "checkpoint-3/a": 5,
		"checkpoint-7.tmp-1/a": 11, "model.tmp-1/a": 2, "model.safetensors": 9} {
		path := filepath.Join(out, name)
		testkit.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		testkit.NoError(t, os.WriteFile(path, make([]byte, n), 0o600))
	}
	held, leftovers, err := Held(out)
	if len(held) != 3 || held[0] != 5 || held[1] != 10 || held[2] != 37 || leftovers != 13 || err != nil {
		t.Errorf("held %v, left over %d, %v", held, leftovers, err)
	}
	if held, leftovers, err := Held(filepath.Join(out, "nope")); held != nil || leftovers != 0 || err != nil {
		t.Errorf("nothing: held %v, left over %d, %v", held, leftovers, err)
	}
}

// meetingFS calls meet before its first rename, so that another writer can act at that moment.
type meetingFS struct {
	FS
	meet func()
}

func (f *meetingFS) Rename(from, to string) error {
	if meet := f.meet; meet != nil {
		f.meet = nil
		meet()
	}
	return f.FS.Rename(from, to)
}

// TestWriteShared: two simultaneous writers of one file both succeed, the last rename wins, and no other file
// stays.
func TestWriteShared(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	fs := &meetingFS{FS: OS(), meet: func() {
		if err := WriteShared(OS(), path, []byte("another's, which is longer")); err != nil {
			t.Error(err)
		}
	}}
	testkit.NoError(t, WriteShared(fs, path, []byte("its own")))
	b, err := os.ReadFile(path)
	if err != nil || string(b) != "its own" {
		t.Errorf("%q, %v", b, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
