package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"mt/internal/testkit"
)

func TestHeaderRefuses(t *testing.T) {
	four := make([]byte, 4)
	cases := []struct {
		name string
		file []byte
		want string
	}{
		{"empty", nil, "truncated: the file ends in its first 8 bytes"},
		{"short", []byte("abc"), "truncated: the file ends in its first 8 bytes"},
		{"LFS pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0"), "Git LFS pointer"},
		{"header longer than the file", binary.LittleEndian.AppendUint64(nil, 1000), "truncated: the header is 1000 bytes long, the file 8"},
		{"absurd header", append(binary.LittleEndian.AppendUint64(nil, 1<<62), four...), "its header would be 4611686018427387904 bytes long"},
		{"negative header", append(binary.LittleEndian.AppendUint64(nil, 1<<63+5), four...), "not a safetensors file"},
		{"not JSON", safetensors("hello", nil), "not a JSON object"},
		{"broken JSON", safetensors(`{"a": `, nil), "header: "},
		{"unclosed", safetensors(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, nil), "header: "},
		{"text after", safetensors(`{} x`, nil), "text after the closing brace"},
		{"wrong kinds", safetensors(`{"a": 7}`, four), `tensor "a": header: `},
		{"twice", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, four), `tensor "a": appears twice`},
		{"dtype", safetensors(`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, four), `tensor "a": unknown dtype "Q4"`},
		{"no offsets", safetensors(`{"a":{"dtype":"F32","shape":[1]}}`, four), `tensor "a": impossible data_offsets []`},
		{"three offsets", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,8]}}`, four), `tensor "a": impossible data_offsets [0 4 8]`},
		{"backwards", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, four), `tensor "a": impossible data_offsets [4 0]`},
		{"negative offset", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}`, four), `tensor "a": impossible data_offsets`},
		{"huge offset", safetensors(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}}`, four), `tensor "a": impossible data_offsets`},
		{"negative shape", safetensors(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, four), `tensor "a": impossible shape [-1]`},
		{"overflowing shape", safetensors(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, nil), `tensor "a": impossible shape`},
		{"shape and bytes", safetensors(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, four), `tensor "a": F32 [2] takes 8 bytes, data_offsets [0 4] have 4`},
		{"misaligned", safetensors(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}}`, make([]byte, 5)), `tensor "a": misaligned: its data begin at 1`},
		{"overlap", safetensors(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, make([]byte, 12)), `tensor "b": its data overlap those of tensor "a"`},
		{"overlap of the last", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},"c":{"dtype":"U8","shape":[4],"data_offsets":[7,11]}}`, make([]byte, 11)), `tensor "c": its data overlap those of tensor "b"`},
		{"same place", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, four), `overlap those of tensor "a"`},
		{"gap", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, make([]byte, 8)), `tensor "a": 4 unused bytes before its data`},
		{"out of range", safetensors(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, four), `tensor "a": truncated: its data end at byte`},
		{"too long", safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 7)), "3 bytes after the last tensor"},
	}
	for _, tc := range cases {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "model.safetensors"), tc.file)
		_, err := openSource(dir)
		want := filepath.Join(dir, "model.safetensors") + ": "
		if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s … %s", tc.name, err, want, tc.want)
		}
	}
}

func TestHeaderReads(t *testing.T) {
	text := `{"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},"e":{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}   `
	file := safetensors(text, make([]byte, 10))
	for _, size := range []int64{int64(len(file)), -1} {
		h := testkit.Must(readHeader(bytes.NewReader(file), size))(t)
		var got []string
		for _, x := range h.tensors {
			got = append(got, x.name)
		}
		if strings.Join(got, "") != "aeb" || h.tensors[2].off != int64(8+len(text)+8) || h.tensors[2].bytes != 2 {
			t.Errorf("got %+v", h)
		}
	}
}

// TestHeaderEnds: if a stream of unknown size ends inside its header, it counts as truncated. An
// error of reading is returned unchanged.
func TestHeaderEnds(t *testing.T) {
	file := append(binary.LittleEndian.AppendUint64(nil, 100), "{}"...)
	if _, err := readHeader(bytes.NewReader(file), -1); err == nil || err.Error() != "truncated: the file ends in its header" {
		t.Errorf("cut in the header: %v", err)
	}
	if _, err := readHeader(io.MultiReader(bytes.NewReader(file), iotest.ErrReader(errDisk)), -1); !errors.Is(err, errDisk) {
		t.Errorf("cannot be read: %v", err)
	}
}

// TestHeaderBytes: the header that a planned file gets is read back with the same tensors, and the
// data are aligned to 8 bytes.
func TestHeaderBytes(t *testing.T) {
	for i, l := range config(t, nil).Layouts(true) {
		f := optimizerFile(i, l, planes.Of(l), BF16, false)
		h := testkit.Must(readHeader(bytes.NewReader(f.header), -1))(t)
		if len(f.header)%8 != 0 || h.end() != f.bytes || len(h.tensors) != len(f.entries) {
			t.Errorf("layer %d: header of %d bytes, data to %d of %d", i, len(f.header), h.end(), f.bytes)
		}
		for j, x := range h.tensors {
			if e := f.entries[j]; x.name != e.name || x.off != e.off || x.bytes != e.bytes {
				t.Errorf("layer %d: got %+v, want %+v", i, x, e.tensor)
			}
		}
	}
}

func TestSourceRefuses(t *testing.T) {
	shard := safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, make([]byte, 4))
	cases := []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing", nil, "no model.safetensors and no model.safetensors.index.json"},
		{"pickled", map[string]string{"pytorch_model.bin": "x"}, "it holds pickled weights (pytorch_model.bin), which are not read"},
		{"no index", map[string]string{"model-00001-of-00002.safetensors": "x"}, "the index model.safetensors.index.json is missing"},
		{"bad index", map[string]string{indexName: "{"}, indexName + ": unexpected end of JSON"},
		{"LFS index", map[string]string{indexName: "version https://git-lfs.github.com/spec/v1\n"}, "git lfs pull"},
		{"empty index", map[string]string{indexName: "{}"}, "weight_map is missing or empty"},
		{"index of null", map[string]string{indexName: `{"weight_map": null}`}, "weight_map is not a mapping of tensors to shards"},
		{"index of numbers", map[string]string{indexName: `{"weight_map":{"a":1}}`}, `tensor "a": the shard 1 is not text`},
		{"index of NaN", map[string]string{indexName: `{"metadata":NaN,"weight_map":{"a":NaN}}`}, `tensor "a": the shard null is not text`},
		{"outside", map[string]string{indexName: `{"weight_map":{"a":"../x.safetensors"}}`}, `tensor "a": the shard "../x.safetensors" is not a file of this directory`},
		{"absolute", map[string]string{indexName: `{"weight_map":{"a":"/etc/passwd"}}`}, `tensor "a": the shard "/etc/passwd" is not`},
		{"parent of a folder", map[string]string{indexName: `{"weight_map":{"a":"x/../../y.safetensors"}}`}, `tensor "a": the shard "x/../../y.safetensors" is not`},
		{"detour", map[string]string{indexName: `{"weight_map":{"a":"./y.safetensors"}}`}, `tensor "a": the shard "./y.safetensors" is not`},
		{"parent", map[string]string{indexName: `{"weight_map":{"a":".."}}`}, `tensor "a": the shard ".." is not`},
		{"missing shard", map[string]string{indexName: `{"weight_map":{"a":"x.safetensors"}}`}, "x.safetensors: missing, but model.safetensors.index.json names it; fetch it again with `hf download ORG/NAME x.safetensors --local-dir"},
		{"LFS shard", map[string]string{indexName: `{"weight_map":{"a":"x.safetensors"}}`, "x.safetensors": "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"},
			"x.safetensors: this is a Git LFS pointer, not the weights; fetch them with `git lfs pull`"},
		{"truncated shard", map[string]string{indexName: `{"weight_map":{"a":"x.safetensors"}}`, "x.safetensors": string(shard[:len(shard)-1])},
			"tensor \"a\": truncated: its data end at byte"},
		{"truncated, way out", map[string]string{singleName: string(shard[:len(shard)-1])}, "; fetch it again with `hf download ORG/NAME model.safetensors"},
		{"directory", map[string]string{"model.safetensors/x": "x"}, "is a directory"},
	}
	for _, tc := range cases {
		dir := t.TempDir()
		for name, text := range tc.files {
			write(t, filepath.Join(dir, name), []byte(text))
		}
		_, err := openSource(dir)
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.name, err, tc.want)
		}
	}
}

// TestFetch: for a directory in the Hugging Face cache, the suggested download command names the
// model.
func TestFetch(t *testing.T) {
	got := fetch("/c/hub/models--org--name-7b/snapshots/abc", "x.safetensors")
	if got != "fetch it again with `hf download --force-download org/name-7b x.safetensors`" {
		t.Error(got)
	}
}

// TestUnindexed: a tensor of a shard is found even if the index does not list it.
func TestUnindexed(t *testing.T) {
	dir := t.TempDir()
	header := `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`
	write(t, filepath.Join(dir, "x.safetensors"), safetensors(header, make([]byte, 8)))
	write(t, filepath.Join(dir, indexName), []byte(`{"weight_map":{"a":"x.safetensors"}}`))
	src := testkit.Must(openSource(dir))(t)
	defer src.Close()
	if got := strings.Join(src.names(), " "); got != "a b" {
		t.Errorf("tensors %s", got)
	}
}

// TestCompanions: the files that belong beside a model's weights, such as the tokenizer's, are
// copied unchanged, and no other files.
func TestCompanions(t *testing.T) {
	dir := t.TempDir()
	taken := []string{"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
		"vocab.json", "chat_template.jinja", "chat_template.json", "tekken.json", "preprocessor_config.json", "video_preprocessor_config.json",
		"processor_config.json", "configuration_x.py", "modeling_x.py", "LICENSE", "LICENSE.txt", "NOTICE.md",
		"additional_chat_templates/rag.jinja", "additional_chat_templates/tool_use.jinja"}
	for _, name := range append([]string{"config.json", "model.safetensors", "README.md", ".LICENSE", "tokenizer.json.bak", "configurationx.py", "merges.txt/x",
		"additional_chat_templates/notes.txt", "additional_chat_templates/x.jinja/x.jinja", "templates/tool_use.jinja"}, taken...) {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	got, err := Companions(dir)
	if err != nil || len(got) != len(taken) {
		t.Errorf("%d of %d files, %v", len(got), len(taken), err)
	}
	for _, name := range taken {
		if string(got[name]) != name {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	testkit.NoError(t, os.RemoveAll(filepath.Join(dir, "merges.txt")))
	write(t, filepath.Join(dir, "merges.txt"), []byte("a b"))
	if got, err = Companions(dir); err != nil || string(got["merges.txt"]) != "a b" {
		t.Errorf("merges.txt is %q, %v", got["merges.txt"], err)
	}
	write(t, filepath.Join(dir, "tokenizer.model"), []byte("version https://git-lfs.github.com/spec/v1"))
	if _, err := Companions(dir); err == nil || !strings.Contains(err.Error(), "tokenizer.model: this is a Git LFS pointer") {
		t.Errorf("got %v", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(safetensors(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[2,1],"data_offsets":[4,8]}}`, make([]byte, 8)))
	f.Add(safetensors(`{"__metadata__":{"format":"pt"}}`, nil))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1"))
	f.Add(safetensors(`{"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"I64","shape":[0,9],"data_offsets":[1,1]}}`, make([]byte, 1)))
	f.Add(safetensors(`{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,9223372036854775807]}}`, nil))
	f.Add(binary.LittleEndian.AppendUint64(nil, maxHeader))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := readHeader(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		at := h.bytes
		for _, x := range h.tensors {
			if x.off != at || x.bytes < 0 {
				t.Fatalf("tensor %q at %d, want %d", x.name, x.off, at)
			}
			at += x.bytes
		}
		if at != int64(len(file)) {
			t.Fatalf("data end at %d of %d", at, len(file))
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}}`))
	f.Add([]byte(`{"weight_map":{"a":"../x"}}`))
	f.Add([]byte("version https://git-lfs.github.com/spec/v1"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		index, err := parseIndex(raw)
		if err != nil {
			return
		}
		for name, shard := range index {
			if shard != filepath.Clean(shard) || !filepath.IsLocal(shard) {
				t.Fatalf("tensor %q: the shard %q lies elsewhere", name, shard)
			}
		}
	})
}

func TestFixtureHeaders(t *testing.T) {
	var files []string
	for _, dir := range testkit.Recordings(t) {
		found, _ := filepath.Glob(filepath.Join(dir, "model", "*.safetensors"))
		files = append(files, found...)
	}
	for _, path := range files {
		st := testkit.Must(os.Stat(path))(t)
		if _, err := readHeader(bytes.NewReader(read(t, path)), st.Size()); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
