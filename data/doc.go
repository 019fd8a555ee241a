// Package data turns text, rows of JSON and Parquet, chats and token ids into batches. It reads files, applies chat
// templates, keeps a token cache on disk, mixes data sets, packs rows, orders rows by a seed, and splits a step's
// rows into ragged micro-batches.
//
// A chat row passes these files, in this order:
//
//	stream.go     reads the file; jsonl.go cuts it into rows, and rows into fields
//	forms.go      recognises the row's form by its fields
//	chat.go       makes a conversation of the fields
//	rendered.go   has the chat template write the conversation (jinja, repair.go)
//	supervise.go  labels the tokens of the answers (encode.go calls the tokenizer)
//	build.go      writes documents in their order to the cache (cache.go)
//	packing.go    makes rows of documents; dataset.go divides the rows
//	batch.go      makes batches of rows
//
// It imports tokenizer, jinja and base/files. Invariant: the rows of a step and their order depend only on the data
// set, the seed and the step's number.
package data
