// Package tokenizer turns text into token ids and back: a token is a byte
// (Bytes), or what a tokenizer.json says (Load).
//
// Of tokenizer.json it reads BPE, byte-level and with byte fallback, with the
// normalizers, pre-tokenizers, added tokens, post-processors and decoders
// around it, and makes what PyPI `tokenizers` 0.23 makes of every text:
// testdata/differences.py compares. What it does not read is refused by name.
// The parts follow each other as there:
//
//	added tokens (added.go) → normalizers (norm.go) → added tokens →
//	pre-tokenizers (pretokenize.go, scan.go, regex.go) → BPE (bpe.go)
//
// Which added tokens there are also depends on the files beside it (named.go), as
// in Transformers.
//
// Two things differ on purpose: Decode drops every special token, also one that
// a normalizer spells differently; and offsets are those of whole tokens, with
// the space before a word, whatever a post-processor's trim_offsets says.
//
// It imports base/files alone; data and whatever prints or saves tokens import
// it.
//
// Invariant: the ids of a text do not depend on how it was cut where Split
// allows, on what was encoded before, or on which method was called; and the
// files a tokenizer gives for a saved model describe exactly that encoding.
package tokenizer
