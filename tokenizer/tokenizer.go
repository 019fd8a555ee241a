package tokenizer

// Tokenizer is a vocabulary with its two directions. All methods may be called
// from several goroutines at once.
type Tokenizer interface {
	// Encode appends the ids of text to dst. Added tokens in the text are
	// recognised as the tokenizer's file says; nothing is put around it.
	Encode(dst []int32, text []byte) ([]int32, error)
	// EncodeSpans is Encode that also appends to starts, for each id, the byte of
	// text where what it stands for starts. The ids are always those of Encode;
	// starts never fall.
	EncodeSpans(ids []int32, starts []int, text []byte) ([]int32, []int, error)
	// AddSpecial is ids with what belongs around a text: the token that begins
	// one, the token that ends one, or nothing. It does not change ids, and
	// returns them where there is nothing to add.
	AddSpecial(ids []int32) []int32
	// Decode is the text of ids. Special tokens are dropped; so are ids without a
	// text, which Bytes prints as "<id>".
	Decode(ids []int32) []byte
	// DecodeSpecial is Decode with special tokens kept.
	DecodeSpecial(ids []int32) []byte
	// Token is id as the vocabulary writes it, "" where there is no such id.
	Token(id int32) string
	// TokenID is the id of what the vocabulary writes as token.
	TokenID(token string) (id int32, ok bool)
	// IsSpecial tells whether Decode drops id.
	IsSpecial(id int32) bool
	// VocabSize is one more than the largest id.
	VocabSize() int
	// BOS is the id that begins a text; false where there is none.
	BOS() (int32, bool)
	// EOS is the id that ends a document; false where there is none.
	EOS() (int32, bool)
	// ID names the encoding: equal IDs encode equally. For cache keys.
	ID() string
	// Files are to be put beside a saved model, by name.
	Files() map[string][]byte
}

// Splitter is a Tokenizer that can encode a long text piece by piece.
type Splitter interface {
	Tokenizer
	// Split is the length of a prefix of text that may be encoded apart from
	// all that follows it, in text or later. It is 0 where there is none.
	Split(text []byte) int
}

// EndOfText is how the token that ends a document is written.
const EndOfText = "<|endoftext|>"
