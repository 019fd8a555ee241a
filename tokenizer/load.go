package tokenizer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"

	"mt/internal/files"
)

// vocabularyFiles are what a vocabulary may be kept in where tokenizer.json is
// not.
var vocabularyFiles = []string{"tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json"}

// companions are the files that go beside a saved model as they are.
var companions = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"}

// maxFile bounds the memory that a file of a tokenizer takes.
const maxFile = 256 << 20

// Load is the tokenizer of the model in dir, which has vocabSize tokens:
// tokenizer.json, with what tokenizer_config.json, special_tokens_map.json,
// generation_config.json and config.json say about the tokens that begin and
// end texts, first to last. No directory (""), or one without a tokenizer whose
// vocabulary has about as many tokens as there are bytes, means Bytes. The error names the file, the key and the way out.
func Load(dir string, vocabSize int) (Tokenizer, error) {
	if dir != "" {
		t, err := load(dir)
		if t != nil || err != nil {
			return t, err
		}
	}
	if vocabSize < byteVocab {
		return nil, fmt.Errorf("a vocabulary of %d tokens is too small for text, which takes %d (one for each byte); "+
			"give input_ids (JSONL) instead, or set vocab_size to at least %d", vocabSize, byteVocab, byteVocab)
	}
	if _, err := os.Stat(filepath.Join(dir, "tokenizer.json")); dir != "" && vocabSize > mostByteRows && errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no tokenizer.json, and a vocabulary of %d tokens is not that of bytes: put the model's tokenizer.json and tokenizer_config.json "+
			"there; or give input_ids (JSONL) instead", dir, vocabSize)
	}
	return Bytes(), nil
}

// mostByteRows is how many rows the table of a vocabulary of bytes has at most, padded for matrix products.
const mostByteRows = 2 * byteVocab

// load is the tokenizer that dir has; nil for Bytes.
func load(dir string) (Tokenizer, error) {
	name := filepath.Join(dir, "tokenizer.json")
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		for _, other := range vocabularyFiles {
			name := filepath.Join(dir, other)
			if _, err := os.Stat(name); err == nil {
				return nil, fmt.Errorf("%s: only tokenizer.json is read, and there is none beside it; let Transformers write it: "+
					"AutoTokenizer.from_pretrained(dir).save_pretrained(dir); or give input_ids (JSONL) instead", name)
			}
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if isByteLevel(text) {
		return nil, nil
	}
	t, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := t.readFiles(dir, text); err != nil {
		return nil, err
	}
	return t.splitter(), nil
}

// readFile reads a file that is not too large and is not a Git LFS pointer.
func readFile(name string) ([]byte, error) {
	text, err := files.Read(name, maxFile)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read tokenizer: %w", err)
	case bytes.HasPrefix(text, []byte("version https://git-lfs")):
		return nil, fmt.Errorf("%s: this is a Git LFS pointer, not the file; get it with `git lfs pull`", name)
	}
	return text, nil
}

// parse reads tokenizer.json.
func parse(text []byte) (*hf, error) {
	text = files.JSON(text)
	if !json.Valid(text) {
		var v any
		return nil, fmt.Errorf("it is not JSON: %w", json.Unmarshal(text, &v))
	}
	top := map[string][]byte{}
	err := jsonObject(text, func(key string, value []byte) error {
		top[key] = value
		return nil
	})
	if err != nil {
		return nil, err
	}
	if top["model"] == nil {
		return nil, errors.New("model: missing")
	}
	t := &hf{bos: -1, eos: -1, lastAdded: -1}
	var letters bool
	if t.norms, err = readParts("normalizer", top["normalizer"], (*part).normalizer); err != nil {
		return nil, err
	}
	if t.pre, letters, err = readPreTokenizers(top["pre_tokenizer"]); err != nil {
		return nil, err
	}
	if t.model, err = readModel(top["model"], letters); err != nil {
		return nil, err
	}
	if err := t.readAdded(top["added_tokens"]); err != nil {
		return nil, err
	}
	if t.post, err = readParts("post_processor", top["post_processor"], t.postProcessor); err != nil {
		return nil, err
	}
	if t.decoders, err = readParts("decoder", top["decoder"], (*part).decoder); err != nil {
		return nil, err
	}
	t.finish(letters)
	return t, t.index()
}

// finish fills in what follows from what was read.
func (t *hf) finish(letters bool) {
	if letters && !t.model.raw {
		t.pre = append(t.pre, letterPieces{})
	}
	if len(t.pre) == 1 && t.model.raw {
		if s, ok := t.pre[0].(*splitter); ok && (s.behavior == isolated && !s.invert || s.behavior == removed && s.invert) {
			t.scan, _ = s.f.(*scanner)
		}
	}
	for _, p := range t.pre {
		if m, ok := p.(*metaspaces); ok && m.first && len(t.norms) > 0 {
			t.origins = true
		}
	}
}

// isByteLevel tells whether text, a tokenizer.json, encodes as Bytes does.
func isByteLevel(text []byte) bool {
	const most = 1 << 16 // ours are far smaller
	var f tokenizerFile
	if len(text) > most || json.Unmarshal(text, &f) != nil {
		return false
	}
	pre := f.PreTokenizer
	if f.Normalizer != nil || pre == nil || pre.Type != "ByteLevel" || pre.AddPrefixSpace {
		return false
	}
	if post := f.PostProcessor; post != nil && post.Type != "ByteLevel" {
		return false
	}
	m := f.Model
	if m.Type != "BPE" || len(m.Merges) != 0 || m.Prefix != nil || m.Suffix != nil {
		return false
	}
	return maps.Equal(m.Vocab, byteLevelVocab) && reflect.DeepEqual(f.AddedTokens, newTokenizerFile(nil).AddedTokens)
}
