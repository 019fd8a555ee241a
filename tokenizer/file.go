package tokenizer

// The files of Hugging Face tokenizers, as far as the byte-level vocabulary
// needs them.

type addedToken struct {
	ID         int    `json:"id"`
	Content    string `json:"content"`
	SingleWord bool   `json:"single_word"`
	LStrip     bool   `json:"lstrip"`
	RStrip     bool   `json:"rstrip"`
	Normalized bool   `json:"normalized"`
	Special    bool   `json:"special"`
}

// byteStep is the ByteLevel pre-tokenizer, post-processor and decoder.
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
