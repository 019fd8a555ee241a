package tokenizer

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mt/base/files"
)

// vocabularyFiles are files in which other programs store a vocabulary. If one of them is present and tokenizer.json
// is missing, Load returns an error.
var vocabularyFiles = []string{"tokenizer.model", "spiece.model", "vocab.json", "vocab.txt", "tekken.json"}

// companions are the files of a tokenizer that are copied unchanged beside a saved model.
var companions = []string{"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "chat_template.json"}

// maxFile bounds the size of a tokenizer's file in bytes, and so the memory it takes.
const maxFile = 256 << 20

// Load returns the tokenizer of the model in dir, whose vocabulary has vocabSize tokens. It reads tokenizer.json.
// BOS and EOS come from the first of tokenizer_config.json, special_tokens_map.json, generation_config.json and
// config.json that names them. Load returns Bytes if dir is "", or if dir has no tokenizer and vocabSize is at most
// mostByteRows. Errors name the file, the key and what to do.
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

// mostByteRows is the largest vocabulary size for which Load takes bytes as tokens. It exceeds the number of bytes,
// since models pad their embedding to a size that suits matrix products.
const mostByteRows = 2 * byteVocab

// load returns the tokenizer in dir; nil without an error: dir has no tokenizer.
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

// readFile reads a file. It fails if the file exceeds maxFile or is a Git LFS pointer.
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

// parse builds the tokenizer from text, the content of a tokenizer.json.
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

// finish computes the fields of t that depend on more than one part of tokenizer.json. letters reports that the
// pre-tokenizer writes each byte of a word as a letter.
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

// isByteLevel reports whether text, the content of a tokenizer.json, describes the byte vocabulary
// that Bytes returns.
func isByteLevel(text []byte) bool {
	const most = 1 << 16 // the files that Bytes writes are far smaller
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

// The structures of Hugging Face's tokenizer files, as far as the byte-level vocabulary needs them.

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// byteStep is the pre-tokenizer, post-processor or decoder ByteLevel.
type byteStep struct {
	Type           string `json:"type"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	TrimOffsets    bool   `json:"trim_offsets"`
	UseRegex       bool   `json:"use_regex"`
}

type bpeModel struct {
	modelOptions
	Vocab  map[string]int `json:"vocab"`
	Merges []any          `json:"merges"`
}

type tokenizerFile struct {
	Version       string       `json:"version"`
	Truncation    any          `json:"truncation"`
	Padding       any          `json:"padding"`
	AddedTokens   []addedToken `json:"added_tokens"`
	Normalizer    any          `json:"normalizer"`
	PreTokenizer  *byteStep    `json:"pre_tokenizer"`
	PostProcessor *byteStep    `json:"post_processor"`
	Decoder       *byteStep    `json:"decoder"`
	Model         bpeModel     `json:"model"`
}

func newTokenizerFile(vocab map[string]int) tokenizerFile {
	return tokenizerFile{
		Version:      "1.0",
		AddedTokens:  []addedToken{{Content: EndOfText, Special: true}},
		PreTokenizer: &byteStep{Type: "ByteLevel"},
		Decoder:      &byteStep{Type: "ByteLevel"},
		Model:        bpeModel{modelOptions: modelOptions{Type: "BPE"}, Vocab: vocab, Merges: []any{}},
	}
}

type tokenizerConfig struct {
	Class          string `json:"tokenizer_class"`
	EOS            string `json:"eos_token"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	CleanUpSpaces  bool   `json:"clean_up_tokenization_spaces"`
}

func newTokenizerConfig() tokenizerConfig {
	return tokenizerConfig{Class: "PreTrainedTokenizerFast", EOS: EndOfText}
}

// The json functions below walk through JSON that json.Valid has accepted. They allocate nothing for the parts they
// skip, since a vocabulary is large.

// jsonSpace skips white space, commas and colons from offset i on. It returns the offset of the next value or
// bracket.
func jsonSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
			continue
		}
		break
	}
	return i
}

// jsonEnd returns the offset after the JSON value that starts at offset i of b.
func jsonEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		for i++; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = jsonEnd(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && bytes.IndexByte([]byte(" \t\r\n,}]"), b[i]) < 0 {
		i++
	}
	return i
}

// jsonText returns the string that the JSON value raw holds; false: raw is not a string.
func jsonText(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// jsonObject calls f for each member of the JSON object raw. It returns the first error of f, or an error if raw is
// no object.
func jsonObject(raw []byte, f func(key string, value []byte) error) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return fmt.Errorf("it is %s, not an object", shorten(raw))
	}
	for i := jsonSpace(raw, 1); raw[i] != '}'; i = jsonSpace(raw, i) {
		end := jsonEnd(raw, i)
		key, _ := jsonText(raw[i:end])
		i = jsonSpace(raw, end)
		end = jsonEnd(raw, i)
		if err := f(key, raw[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// jsonArray calls f for each element of the JSON array raw, with the element's index n. It returns the first error of
// f, or an error if raw is no array.
func jsonArray(raw []byte, f func(n int, value []byte) error) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return fmt.Errorf("it is %s, not an array", shorten(raw))
	}
	n := 0
	for i := jsonSpace(raw, 1); raw[i] != ']'; i = jsonSpace(raw, i) {
		end := jsonEnd(raw, i)
		if err := f(n, raw[i:end]); err != nil {
			return err
		}
		n++
		i = end
	}
	return nil
}

// shorten returns raw, cut to a length that fits an error message.
func shorten(raw []byte) string {
	const most = 60
	if len(raw) == 0 {
		return "missing"
	}
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "…"
	}
	return string(raw)
}

// encodingVersion is part of ID. Increase it when the same file yields other ids than before.
const encodingVersion = 2

// readFiles reads the files beside tokenizer.json and finds BOS and EOS. text is the content of tokenizer.json.
func (t *hf) readFiles(dir string, text []byte) error {
	t.files = map[string][]byte{"tokenizer.json": text}
	for _, name := range companions[1:] {
		b, err := readFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		t.files[name] = b
	}
	if err := t.readNamed(dir); err != nil {
		return err
	}
	for _, name := range []string{"generation_config.json", "config.json"} {
		if err := t.readEnds(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if t.bos < 0 {
		t.bos = edge(t.post, func(p postProcessor) []int32 { return p.before })
	}
	if t.eos < 0 {
		t.eos = edge(t.post, func(p postProcessor) []int32 { return p.behind })
	}
	t.identify()
	return nil
}

// identify sets t.id to a hash of everything that the ids of a text depend on.
func (t *hf) identify() {
	h := sha256.New()
	h.Write(t.files["tokenizer.json"])
	fmt.Fprintf(h, "\n%d %d %q", t.bos, t.eos, t.order)
	for _, id := range slices.Sorted(maps.Keys(t.added)) {
		fmt.Fprintf(h, "\n%d %v %+v", id, t.IsSpecial(id), *t.added[id])
	}
	t.id = fmt.Sprintf("bpe-%d-%s", encodingVersion, hex.EncodeToString(h.Sum(nil)[:16]))
}

// edge returns the token that all post-processors together put on one side of a text; side selects before or behind.
// -1: there is no token, or more than one.
func edge(post []postProcessor, side func(postProcessor) []int32) int32 {
	var all []int32
	for _, p := range post {
		all = append(all, side(p)...)
	}
	if len(all) != 1 {
		return -1
	}
	return all[0]
}

// readEnds reads bos_token_id and eos_token_id from the file called name. It sets BOS and EOS only
// if they are still unknown. If a value is a list of numbers, the first counts.
func (t *hf) readEnds(name string) error {
	_, told := t.files["tokenizer_config.json"] // the file would name BOS if there were one
	if (t.bos >= 0 || told) && t.eos >= 0 {
		return nil
	}
	text, err := readFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var f map[string]json.RawMessage
	if err := files.Unmarshal(text, &f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for key, id := range map[string]*int32{"bos_token_id": &t.bos, "eos_token_id": &t.eos} {
		var list []int64
		if told && id == &t.bos {
			continue
		}
		if raw := f[key]; json.Unmarshal(raw, &list) != nil {
			list = []int64{-1}
			_ = json.Unmarshal(raw, &list[0]) // neither a number nor a list: treated as missing
		}
		if *id < 0 && len(list) > 0 && t.known("", list[0]) == nil {
			*id = int32(list[0])
		}
	}
	return nil
}

// maxID is the limit below which all ids must be: ids index tables, so a huge id would take much memory.
const maxID = 1 << 22

// modelOptions are the options of the part model of a tokenizer.json: all its members but vocab and merges.
type modelOptions struct {
	Type         string   `json:"type"`
	Dropout      *float64 `json:"dropout"`
	Unk          *string  `json:"unk_token"`
	Prefix       *string  `json:"continuing_subword_prefix"`
	Suffix       *string  `json:"end_of_word_suffix"`
	FuseUnk      bool     `json:"fuse_unk"`
	ByteFallback bool     `json:"byte_fallback"`
	IgnoreMerges bool     `json:"ignore_merges"`
}

// readModel reads the part model of tokenizer.json. letters reports that the pre-tokenizer writes each byte of a word
// as a letter.
func readModel(raw []byte, letters bool) (*bpe, error) {
	var o modelOptions
	var vocab, merges []byte
	rest := map[string][]byte{}
	err := jsonObject(raw, func(key string, value []byte) error {
		switch key {
		case "vocab":
			vocab = value
		case "merges":
			merges = value
		default:
			rest[key] = value
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if err := o.read(rest); err != nil {
		return nil, err
	}
	if err := o.check(merges != nil); err != nil {
		return nil, err
	}
	m := &bpe{unk: -1, fuseUnk: o.FuseUnk, ignoreMerges: o.IgnoreMerges, prefix: text(o.Prefix), suffix: text(o.Suffix)}
	if err := m.readVocab(vocab); err != nil {
		return nil, err
	}
	if o.Unk != nil {
		id, ok := m.ids[*o.Unk]
		if !ok {
			return nil, fmt.Errorf("model.unk_token: %q is not in model.vocab", *o.Unk)
		}
		m.unk = id
	}
	m.tables(letters, o.ByteFallback)
	return m, m.readMerges(merges)
}

// read reads the options of a model from members, the members of the part model.
func (o *modelOptions) read(members map[string][]byte) error {
	for key, raw := range members {
		one := append(append([]byte(`{"`+key+`":`), raw...), '}')
		if !json.Valid(one) { // no option's key needs escaping
			continue
		}
		if err := json.Unmarshal(one, o); err != nil {
			return fmt.Errorf("model.%s: %s is not of the right type", key, shorten(raw))
		}
	}
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// check returns an error if the model is of a kind, or has options, that mt does not support. merges reports that it
// has merges.
func (o *modelOptions) check(merges bool) error {
	switch {
	case o.Type == "" && !merges || o.Type != "" && o.Type != "BPE":
		return fmt.Errorf("model.type: %q is not read, only BPE is; give input_ids (JSONL) that another tool has made", o.Type)
	case o.Dropout != nil && *o.Dropout != 0:
		return fmt.Errorf("model.dropout: %g would make the ids random; set it to null", *o.Dropout)
	case o.ByteFallback && (text(o.Prefix) != "" || text(o.Suffix) != ""):
		return fmt.Errorf("model.byte_fallback: not together with continuing_subword_prefix or end_of_word_suffix")
	}
	return nil
}

func (m *bpe) readVocab(raw []byte) error {
	m.ids = make(map[string]int32, len(raw)/24)
	most := int32(-1)
	err := jsonObject(raw, func(token string, value []byte) error {
		id, err := strconv.ParseUint(string(value), 10, 64)
		if err != nil || id >= maxID {
			return fmt.Errorf("the id of %q is %s, and ids go from 0 to %d", token, shorten(value), maxID-1)
		}
		m.ids[token] = int32(id)
		most = max(most, int32(id))
		return nil
	})
	if err != nil {
		return fmt.Errorf("model.vocab: %w", err)
	}
	m.tokens = make([]string, most+1)
	for token, id := range m.ids {
		if other := m.tokens[id]; other != "" {
			return fmt.Errorf("model.vocab: %q and %q have the same id %d", min(token, other), max(token, other), id)
		}
		m.tokens[id] = token
	}
	return nil
}

// tables computes the tables of m that follow from its vocabulary. If letters is set, each byte of
// a word is written as a letter. If fallback is set, byte fallback is on.
func (m *bpe) tables(letters, fallback bool) {
	m.raw = letters && m.prefix == "" && m.suffix == ""
	for b := range byteVocab {
		id, ok := m.ids[string(byteAlphabet[b])]
		m.letters[b] = id
		m.raw = m.raw && ok
		m.fallback[b] = -1
		if id, ok := m.ids[fmt.Sprintf("<0x%02X>", b)]; ok && fallback {
			m.fallback[b] = id
		}
	}
	for b := range utf8.RuneSelf {
		id, ok := m.ids[string(rune(b))]
		if !ok {
			id = -1
		}
		m.ascii[b] = id
	}
	m.sizes = make([]int32, len(m.tokens))
	for id, token := range m.tokens {
		m.sizes[id] = int32(m.sizeOf(int32(id), token))
		m.long = max(m.long, len(token))
	}
	_, ok := m.ids[metaspace]
	// If unknown characters are dropped, their neighbours can merge. A cut between these would then
	// change the tokens.
	ok = ok && (m.unk >= 0 || slices.Min(m.fallback[:]) >= 0)
	m.cuts = ok && !m.raw && !m.ignoreMerges && m.prefix == "" && m.suffix == ""
	m.joins = map[rune]bool{}
}

// sizeOf returns how many bytes of text the token stands for; 0: the number varies or is unknown.
func (m *bpe) sizeOf(id int32, token string) int {
	switch {
	case m.prefix != "" || m.suffix != "" || id == m.unk:
		return 0
	case m.raw:
		text, _ := fromLetters(token)
		return len(text)
	}
	if b, ok := byteToken(token); ok && m.fallback[b] == id {
		return 1
	}
	return len(token)
}

func (m *bpe) readMerges(raw []byte) error {
	if raw == nil {
		raw = []byte("[]")
	}
	count := 0
	if err := jsonArray(raw, func(int, []byte) error { count++; return nil }); err != nil {
		return fmt.Errorf("model.merges%w", err)
	}
	m.pairs = newPairs(count)
	var both []byte
	rank := int32(0)
	err := jsonArray(raw, func(n int, value []byte) error {
		a, b, err := mergeOf(value)
		if err != nil {
			return fmt.Errorf("[%d]: %w", n, err)
		}
		if a == "" && b == "" { // the version line of merges.txt
			return nil
		}
		left, okLeft := m.ids[a]
		right, okRight := m.ids[b]
		both = append(append(both[:0], a...), strings.TrimPrefix(b, m.prefix)...)
		id, ok := m.ids[string(both)]
		switch {
		case !okLeft:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, a)
		case !okRight:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, b)
		case !ok:
			return fmt.Errorf("[%d]: %q is not in model.vocab", n, both)
		}
		m.pairs.set(left, right, merge{rank, id})
		rank++
		m.join(both)
		return nil
	})
	if err != nil {
		return fmt.Errorf("model.merges%w", err)
	}
	return nil
}

// join records in m.joins each character that stands before a metaspace inside token, the result of a merge. A word
// must not be cut between such a character and a metaspace, since this merge would cross the cut.
func (m *bpe) join(token []byte) {
	for i := 1; m.cuts && i < len(token); {
		n := bytes.Index(token[i:], []byte(metaspace))
		if n < 0 {
			return
		}
		r, _ := utf8.DecodeLastRune(token[:i+n])
		m.joins[r] = true
		i += n + 1
	}
}

// mergeOf returns the two tokens of a merge, which raw writes as "a b" or ["a", "b"]. For the version line, which
// merges.txt begins with, both are "".
func mergeOf(raw []byte) (a, b string, err error) {
	if line, ok := jsonText(raw); ok {
		if strings.HasPrefix(line, "#version") {
			return "", "", nil
		}
		a, b, ok = strings.Cut(line, " ")
		if !ok || strings.Contains(b, " ") {
			return "", "", fmt.Errorf("%s is not two tokens with a space between them", shorten(raw))
		}
		return a, b, nil
	}
	var pair [2]string
	count := 0
	err = jsonArray(raw, func(n int, value []byte) error {
		s, ok := jsonText(value)
		if count++; !ok || n > 1 {
			return fmt.Errorf("%s is not two tokens", shorten(raw))
		}
		pair[n] = s
		return nil
	})
	if err == nil && count != 2 {
		err = fmt.Errorf("%s is not two tokens", shorten(raw))
	}
	return pair[0], pair[1], err
}
