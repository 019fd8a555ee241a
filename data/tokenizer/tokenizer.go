package tokenizer

// Tokenizer is a vocabulary with its two directions. All methods may be called
// from several goroutines at once.
type Tokenizer interface {
	// Encode appends the ids of text to dst. It adds no special token, and text
	// that spells one is text like any other.
	Encode(dst []int32, text []byte) ([]int32, error)
	// Decode is the text of ids. Special tokens are dropped; an id without a
	// text prints as "<id>".
	Decode(ids []int32) []byte
	// VocabSize is one more than the largest id.
	VocabSize() int
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
	// all that follows it, in text or later.
	Split(text []byte) int
}

// EndOfText is how the token that ends a document is written.
const EndOfText = "<|endoftext|>"
