// Package tokenizer turns text into token ids and back. There is one vocabulary
// now: a token is a byte.
//
// It imports nothing of ours; data and whatever prints or saves tokens import
// it.
//
// Invariant: Decode of what Encode made is the text, byte for byte, and the
// files a tokenizer gives for a saved model describe exactly that encoding.
package tokenizer
