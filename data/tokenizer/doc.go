// Package tokenizer turns text into token ids and back. A token is a byte (Bytes), or the vocabulary comes from a
// tokenizer.json (Load).
//
// Load supports BPE models, byte-level and with byte fallback, with their normalizers, pre-tokenizers, added tokens,
// post-processors and decoders. Every text gets the same ids as with PyPI `tokenizers` 0.23;
// testdata/differences.py compares the two. Load refuses an unsupported part and names it. The steps run in the
// library's order:
//
//	added tokens (added.go) → normalizers (norm.go) → added tokens →
//	pre-tokenizers (pretokenize.go, scan.go, regex.go) → BPE (bpe.go)
//
// As in Transformers, the set of added tokens also depends on the files beside tokenizer.json (named.go).
//
// Two differences from `tokenizers` are on purpose. Decode drops every special token, even if a normalizer spells
// the token differently. Offsets cover whole tokens, with the space before a word, whatever a post-processor's
// trim_offsets says.
//
// It imports base/files alone. Package data and all code that prints or saves tokens import it.
//
// Invariant: the ids of a text depend neither on cuts at places that Split returns, nor on earlier calls, nor on
// the method used. The files a tokenizer returns for a saved model describe exactly this encoding.
package tokenizer
