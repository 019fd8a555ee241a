package export

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"mt/checkpoint"
	"mt/checkpoint/gguf"
)

// tokenizerFile is the part of a tokenizer.json that determines llama.cpp's keys.
type tokenizerFile struct {
	AddedTokens []struct {
		ID      int    `json:"id"`
		Content string `json:"content"`
		Special bool   `json:"special"`
		RStrip  bool   `json:"rstrip"`
	} `json:"added_tokens"`
	Normalizer    *step `json:"normalizer"`
	PreTokenizer  *step `json:"pre_tokenizer"`
	PostProcessor *step `json:"post_processor"`
	Model         struct {
		Type         string         `json:"type"`
		UnkToken     *string        `json:"unk_token"`
		ByteFallback bool           `json:"byte_fallback"`
		IgnoreMerges bool           `json:"ignore_merges"`
		Vocab        map[string]int `json:"vocab"`
		Merges       []merge        `json:"merges"`
	} `json:"model"`
}

// step is one step of the normalizer, the pre-tokenizer or the post-processor in a tokenizer.json.
type step struct {
	Type    string `json:"type"`
	Pattern struct {
		Regex string `json:"Regex"`
	} `json:"pattern"`
	UseRegex       *bool  `json:"use_regex"`
	AddPrefixSpace bool   `json:"add_prefix_space"`
	PrependScheme  string `json:"prepend_scheme"`
	Single         []struct {
		SpecialToken *struct {
			ID string `json:"id"`
		} `json:"SpecialToken"`
	} `json:"single"`
	Steps []*step `json:"pretokenizers"`
	Norms []*step `json:"normalizers"`
	Procs []*step `json:"processors"`
}

// flat returns the parts of s if s is a Sequence, otherwise s itself; none if s is nil.
func (s *step) flat() []*step {
	if s == nil {
		return nil
	}
	if s.Type != "Sequence" {
		return []*step{s}
	}
	var out []*step
	for _, list := range [][]*step{s.Steps, s.Norms, s.Procs} {
		for _, one := range list {
			out = append(out, one.flat()...)
		}
	}
	return out
}

// merge is a pair of pieces that merge into one. The JSON is "a b" or ["a", "b"].
type merge [2]string

// UnmarshalJSON implements json.Unmarshaler.
func (m *merge) UnmarshalJSON(raw []byte) error {
	var pair []string
	if err := json.Unmarshal(raw, &pair); err != nil {
		var text string
		if err := json.Unmarshal(raw, &text); err != nil {
			return fmt.Errorf("a merge is neither two strings nor one: %s", raw)
		}
		a, b, _ := strings.Cut(text, " ")
		pair = []string{a, b}
	}
	if len(pair) != 2 || pair[0] == "" || pair[1] == "" {
		return fmt.Errorf("a merge of %q", pair)
	}
	*m = merge(pair)
	return nil
}

// Types of tokens, with llama.cpp's numbers.
const (
	tokenNormal      = 1
	tokenUnknown     = 2
	tokenControl     = 3
	tokenUserDefined = 4
	tokenUnused      = 5
	tokenByte        = 6
)

// vocabulary sets the keys of the tokenizer in dir.
func (p *plan) vocabulary(dir string) error {
	t, config, err := readTokenizer(dir)
	if err != nil {
		return err
	}
	if t == nil {
		p.note("no tokenizer.json: the file has no vocabulary, and programs must pass token ids")
		p.kvs = append(p.kvs, gguf.KV{Key: "tokenizer.ggml.model", Value: "none"})
		return nil
	}
	v, err := p.newVocab(t)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, "tokenizer.json"), err)
	}
	if t.Model.ByteFallback {
		v.pieces(p)
	} else if err := v.byteLevel(p); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, "tokenizer.json"), err)
	}
	v.special(p, config)
	v.strips(p)
	for _, s := range t.Normalizer.flat() {
		if strings.HasPrefix(s.Type, "NF") {
			p.note("llama.cpp does not normalise text (" + s.Type + " in tokenizer.json): it splits text that is not in that form otherwise")
		}
	}
	return p.template(dir, config)
}

// strips makes llama.cpp drop white space after added tokens exactly if tokenizer.json says so
// (rstrip). llama.cpp has no key for this. It drops the space if general.name contains Phi-3; the
// vocabulary must then have <unk>, <s> and <|endoftext|>. So strips adds Phi-3 to general.name, or
// breaks the name up, if necessary.
func (v *vocab) strips(p *plan) {
	wanted, can := false, true
	for _, a := range v.file.AddedTokens {
		wanted = wanted || a.RStrip
	}
	for _, token := range []string{"<unk>", "<s>", "<|endoftext|>"} {
		_, ok := v.ids[token]
		can = can && ok
	}
	for i, kv := range p.kvs {
		if kv.Key != "general.name" {
			continue
		}
		name := kv.Value.(string)
		lower := strings.ToLower(name)
		says := strings.Contains(lower, "phi-3") || strings.Contains(lower, "phi3")
		switch {
		case says && !(wanted && can):
			name = strings.NewReplacer("-3", " 3", "i3", "i 3", "I3", "I 3").Replace(name)
		case !says && wanted && can:
			name = "Phi-3 " + name
		}
		p.kvs[i].Value = name
	}
	if wanted && !can {
		p.note("llama.cpp does not drop white space after added tokens (rstrip in tokenizer.json)")
	}
}

// readTokenizer reads tokenizer.json and tokenizer_config.json. It returns nil for a missing tokenizer.json.
func readTokenizer(dir string) (*tokenizerFile, *settings, error) {
	config := &settings{file: filepath.Join(dir, "tokenizer_config.json")}
	v, err := readJSON(config.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	config.vals, _ = v.(map[string]any)
	file := filepath.Join(dir, "tokenizer.json")
	raw, err := checkpoint.ReadCompanion(file)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(dir, "tokenizer.model")); err == nil {
			return nil, nil, fmt.Errorf("%s: only tokenizer.model is here, which is not read; write tokenizer.json with "+
				"AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)", dir)
		}
		return nil, config, nil
	}
	if err != nil {
		return nil, nil, err
	}
	t := &tokenizerFile{}
	if err := json.Unmarshal(raw, t); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	if t.Model.Type != "BPE" {
		return nil, nil, fmt.Errorf("%s: model.type: %q cannot be written as GGUF, only BPE", file, t.Model.Type)
	}
	return t, config, nil
}

// vocab holds the vocabulary of the GGUF file: text and type of each token, by id.
type vocab struct {
	file   *tokenizerFile
	tokens []string
	types  []int32
	ids    map[string]int // ids of all tokens, added ones included
}

// newVocab returns a vocabulary with one token per row of the embedding. Rows for which tokenizer.json has no token
// become unused tokens.
func (p *plan) newVocab(t *tokenizerFile) (*vocab, error) {
	n := p.s.need("vocab_size")
	v := &vocab{file: t, tokens: make([]string, n), types: make([]int32, n), ids: map[string]int{}}
	for i := range v.tokens {
		v.tokens[i], v.types[i] = fmt.Sprintf("[PAD%d]", i), tokenUnused
	}
	beyond := 0
	set := func(token string, id int, kind int32) error {
		if id < 0 {
			return fmt.Errorf("token %q: its id is %d", token, id)
		}
		if id >= n {
			beyond++
			return nil
		}
		v.tokens[id], v.types[id], v.ids[token] = token, kind, id
		return nil
	}
	for token, id := range t.Model.Vocab {
		if id >= 0 && id < n && v.types[id] != tokenUnused {
			return nil, fmt.Errorf("tokens %q and %q: both have id %d", min(token, v.tokens[id]), max(token, v.tokens[id]), id)
		}
		if err := set(token, id, tokenNormal); err != nil {
			return nil, err
		}
	}
	for _, a := range t.AddedTokens {
		kind := int32(tokenUserDefined)
		if a.Special || looksSpecial(a.Content) {
			kind = tokenControl
		}
		if err := set(a.Content, a.ID, kind); err != nil {
			return nil, err
		}
	}
	if beyond > 0 {
		p.note(fmt.Sprintf("%d tokens with ids from vocab_size %d on are left out: the embedding has no row for them", beyond, n))
	}
	return v, p.s.err
}

// looksSpecial reports whether a token is certainly not text, such as <|im_end|>, even if tokenizer.json does not
// mark it as special. Source: llama.cpp's converter, does_token_look_special.
func looksSpecial(token string) bool {
	wrapped := func(a, b string) bool { return strings.HasPrefix(token, a) && strings.HasSuffix(token, b) }
	return token == "<pad>" || token == "<mask>" || token == "<2mass>" || token == "[@BOS@]" ||
		wrapped("<|", "|>") || wrapped("<｜", "｜>") || wrapped("<unused", ">")
}

// byteLevel sets the keys of a byte-level vocabulary with merges.
func (v *vocab) byteLevel(p *plan) error {
	pre, ok := v.file.preTokenizer()
	if !ok {
		return errors.New("pre_tokenizer: llama.cpp has no name for this way of splitting text; known are those of Llama 3, Qwen 2, GPT-2, GPT-4o and Mistral")
	}
	merges := []string{}
	for _, m := range v.file.Model.Merges {
		merges = append(merges, m[0]+" "+m[1])
	}
	p.kvs = append(p.kvs,
		gguf.KV{Key: "tokenizer.ggml.model", Value: "gpt2"},
		gguf.KV{Key: "tokenizer.ggml.pre", Value: pre},
		gguf.KV{Key: "tokenizer.ggml.tokens", Value: v.tokens},
		gguf.KV{Key: "tokenizer.ggml.token_type", Value: v.types},
		gguf.KV{Key: "tokenizer.ggml.merges", Value: merges})
	return nil
}

// pieces sets the keys of a vocabulary like SentencePiece's, whose tokens are pieces of text with ▁
// for spaces.
func (v *vocab) pieces(p *plan) {
	prefix := false
	for _, s := range append(v.file.Normalizer.flat(), v.file.PreTokenizer.flat()...) {
		prefix = prefix || s.Type == "Prepend" || s.Type == "Metaspace" && s.PrependScheme != "never"
	}
	for i, token := range v.tokens {
		switch {
		case v.types[i] == tokenNormal && isByte(token):
			v.types[i] = tokenByte
		case v.types[i] == tokenUserDefined:
			v.tokens[i] = strings.ReplaceAll(token, "▁", " ")
		case v.file.Model.UnkToken != nil && token == *v.file.Model.UnkToken:
			v.types[i] = tokenUnknown
		}
	}
	scores, other := v.scores()
	if other > 0 {
		p.note(fmt.Sprintf("llama.cpp may split some text otherwise: it has no list of merges for this kind of tokenizer, and %d pieces can be put together in "+
			"ways that tokenizer.json does not list", other))
	}
	p.kvs = append(p.kvs,
		gguf.KV{Key: "tokenizer.ggml.model", Value: "llama"},
		gguf.KV{Key: "tokenizer.ggml.pre", Value: "default"},
		gguf.KV{Key: "tokenizer.ggml.tokens", Value: v.tokens},
		gguf.KV{Key: "tokenizer.ggml.scores", Value: scores},
		gguf.KV{Key: "tokenizer.ggml.token_type", Value: v.types},
		gguf.KV{Key: "tokenizer.ggml.add_space_prefix", Value: prefix})
}

// isByte reports whether token is one of <0x00> to <0xFF>.
func isByte(token string) bool {
	var b byte
	n, err := fmt.Sscanf(token, "<0x%02X>", &b)
	return n == 1 && err == nil && len(token) == 6
}

// maxPiece is the longest token in bytes for which scores looks for other merges. It bounds the
// time for an unusual tokenizer; real tokens have at most some dozen bytes.
const maxPiece = 1 << 12

// scores returns a score for every token, as SentencePiece has them: minus the rank of the merge that makes the
// token. Tokens that no merge makes come last.
//
// other counts tokens that can also be made from a pair of tokens for which tokenizer.json lists no merge.
// llama.cpp merges any pair by the score of the result. So it may split text with such tokens differently.
func (v *vocab) scores() (scores []float32, other int) {
	rank := map[string]int{}
	pairs := map[merge]bool{}
	for i, m := range v.file.Model.Merges {
		pairs[m] = true
		if _, ok := rank[m[0]+m[1]]; !ok {
			rank[m[0]+m[1]] = i
		}
	}
	scores = make([]float32, len(v.tokens))
	for i, token := range v.tokens {
		r, made := rank[token]
		if !made {
			r = len(v.file.Model.Merges)
		}
		scores[i] = float32(-r)
		for at := range token {
			if at == 0 || !made || len(token) > maxPiece {
				continue
			}
			m := merge{token[:at], token[at:]}
			_, a := v.file.Model.Vocab[m[0]]
			_, b := v.file.Model.Vocab[m[1]]
			if a && b && !pairs[m] {
				other++
				break
			}
		}
	}
	return scores, other
}

// special sets the ids of special tokens, and whether BOS and EOS are added to a text.
func (v *vocab) special(p *plan, config *settings) {
	ids := map[string]int{}
	for _, name := range []string{"bos", "eos", "unk", "pad"} {
		id := -1
		if token := tokenText(config.vals[name+"_token"]); token != "" {
			if n, ok := v.ids[token]; ok {
				id = n
			}
		}
		if name == "unk" && id < 0 && v.file.Model.UnkToken != nil {
			if n, ok := v.ids[*v.file.Model.UnkToken]; ok {
				id = n
			}
		}
		if id < 0 {
			id = p.s.id(name + "_token_id")
		}
		if id < 0 || id >= len(v.tokens) {
			continue
		}
		ids[name] = id
		key := map[string]string{"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}[name]
		p.kvs = append(p.kvs, gguf.KV{Key: "tokenizer.ggml." + key + "_token_id", Value: uint32(id)})
	}
	first, last := v.around()
	p.kvs = append(p.kvs,
		gguf.KV{Key: "tokenizer.ggml.add_bos_token", Value: v.puts(config.vals["add_bos_token"], first, ids, "bos")},
		gguf.KV{Key: "tokenizer.ggml.add_eos_token", Value: v.puts(config.vals["add_eos_token"], last, ids, "eos")})
}

// puts reports whether the special token called name is added to every text. If said, a value from
// tokenizer_config.json, is true or false, it decides. Otherwise the token is added if token, from
// the post-processor's template, has the same id.
func (v *vocab) puts(said any, token string, ids map[string]int, name string) bool {
	if b, ok := said.(bool); ok {
		return b
	}
	id, known := ids[name]
	n, ok := v.ids[token]
	return known && ok && n == id
}

// around returns the special tokens that the post-processor's template puts before and after a single text; "":
// none.
func (v *vocab) around() (first, last string) {
	for _, s := range v.file.PostProcessor.flat() {
		if s.Type != "TemplateProcessing" || len(s.Single) < 2 {
			continue
		}
		if t := s.Single[0].SpecialToken; t != nil {
			first = t.ID
		}
		if t := s.Single[len(s.Single)-1].SpecialToken; t != nil {
			last = t.ID
		}
	}
	return first, last
}

// tokenText returns the text of a token in tokenizer_config.json: a string, or an object with a content.
func tokenText(v any) string {
	if m, ok := v.(map[string]any); ok {
		v = m["content"]
	}
	s, _ := v.(string)
	return s
}

// template sets the keys of the chat templates. They come from chat_template.jinja, otherwise from
// tokenizer_config.json, otherwise from an image processor's chat_template.json.
func (p *plan) template(dir string, config *settings) error {
	add := func(key, text string) { p.kvs = append(p.kvs, gguf.KV{Key: key, Value: text}) }
	const key = "tokenizer.chat_template"
	raw, err := checkpoint.ReadCompanion(filepath.Join(dir, "chat_template.jinja"))
	if err == nil {
		add(key, string(raw))
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	of := config.vals["chat_template"]
	if of == nil {
		v, err := readJSON(filepath.Join(dir, "chat_template.json"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		o, _ := v.(map[string]any)
		of = o["chat_template"]
	}
	switch t := of.(type) {
	case string:
		add(key, t)
	case []any:
		var names []string
		for _, v := range t {
			one, _ := v.(map[string]any)
			name, _ := one["name"].(string)
			text, _ := one["template"].(string)
			if name == "default" {
				add(key, text)
			} else if name != "" {
				add(key+"."+name, text)
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			p.kvs = append(p.kvs, gguf.KV{Key: "tokenizer.chat_templates", Value: names})
		}
	}
	return nil
}

// pattern is a regular expression of a tokenizer.json that splits text before merging, and llama.cpp's names for
// it.
type pattern struct {
	regex string
	// llama.cpp's name for a pattern also implies whether text that is a token as a whole is left unmerged
	// (ignore_merges). whole is the name if so, merged if not.
	whole, merged string
}

// patterns are the patterns of published tokenizers. Sources: the models' tokenizer.json, and llama_vocab_pre_type
// in llama.cpp's src/llama-vocab.cpp.
var patterns = []pattern{
	{ // Llama 3
		regex: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "llama-bpe", merged: "dbrx",
	},
	{ // cl100k as Phi-4 spells it; it matches the same text as the pattern above
		regex: `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`,
		whole: "llama-bpe", merged: "dbrx",
	},
	{ // Qwen 2, 2.5, 3
		regex: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "qwen2", merged: "qwen2",
	},
	{ // GPT-4o (o200k), Phi-4-mini
		regex: `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|` +
			`\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "gpt-4o", merged: "gpt-4o",
	},
	{ // Mistral's tekken
		regex: `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|` +
			`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
			`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
		whole: "tekken", merged: "tekken",
	},
	{ // GPT-2, which ByteLevel with use_regex has built in
		regex: `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
		whole: "gpt-2", merged: "gpt-2",
	},
}

// gpt2 is GPT-2's pattern, the last of patterns.
var gpt2 = patterns[len(patterns)-1].regex

// preTokenizer returns llama.cpp's name for the way in which the tokenizer splits text; false:
// llama.cpp has no such name. If the model has no merges, every way gives the same tokens, and the
// name is gpt-2.
func (t *tokenizerFile) preTokenizer() (string, bool) {
	var regex []string
	bytes := false
	for _, step := range t.PreTokenizer.flat() {
		switch step.Type {
		case "Split":
			regex = append(regex, step.Pattern.Regex)
		case "ByteLevel":
			bytes = true
			if step.UseRegex == nil || *step.UseRegex {
				regex = append(regex, gpt2)
			}
			if step.AddPrefixSpace {
				return "", false
			}
		default:
			return "", false
		}
	}
	if !bytes {
		return "", false
	}
	if len(t.Model.Merges) == 0 {
		return "gpt-2", true
	}
	for _, p := range patterns {
		if len(regex) == 1 && regex[0] == p.regex {
			if t.Model.IgnoreMerges {
				return p.whole, true
			}
			return p.merged, true
		}
	}
	return "", false
}
