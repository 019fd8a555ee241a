package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
)

// otherFiles are what a vocabulary may be kept in where tokenizer.json is not.
var otherFiles = []string{"tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json"}

// Load is the tokenizer of the model in dir, which has vocabSize tokens. A
// directory without a tokenizer, or no directory (""), means Bytes. The error
// names the file and the way out.
func Load(dir string, vocabSize int) (Tokenizer, error) {
	if dir != "" {
		if err := check(dir); err != nil {
			return nil, err
		}
	}
	if vocabSize < byteVocab {
		return nil, fmt.Errorf("a vocabulary of %d tokens is too small for text, which takes %d (one for each byte); "+
			"give input_ids (JSONL) instead, or set vocab_size to at least %d", vocabSize, byteVocab, byteVocab)
	}
	return Bytes(), nil
}

// check refuses a directory whose tokenizer is another than Bytes.
func check(dir string) error {
	name := filepath.Join(dir, "tokenizer.json")
	text, err := os.ReadFile(name)
	if err == nil {
		if !isByteLevel(text) {
			return unsupported(name)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read tokenizer: %w", err)
	}
	for _, other := range otherFiles {
		name := filepath.Join(dir, other)
		if _, err := os.Stat(name); err == nil {
			return unsupported(name)
		}
	}
	return nil
}

func unsupported(name string) error {
	return fmt.Errorf("%s: this tokenizer is not supported yet; give input_ids (JSONL) instead", name)
}

// isByteLevel tells whether text, a tokenizer.json, encodes as Bytes does.
func isByteLevel(text []byte) bool {
	var f tokenizerFile
	if json.Unmarshal(text, &f) != nil {
		return false
	}
	pre := f.PreTokenizer
	if f.Normalizer != nil || pre == nil || pre.Type != "ByteLevel" || pre.AddPrefixSpace {
		return false
	}
	m := f.Model
	if m.Type != "BPE" || len(m.Merges) != 0 || m.ContinuingSubwordPrefix != nil || m.EndOfWordSuffix != nil {
		return false
	}
	return maps.Equal(m.Vocab, byteLevelVocab) && reflect.DeepEqual(f.AddedTokens, newTokenizerFile(nil).AddedTokens)
}
