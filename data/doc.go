// Package data turns text, rows of JSON and Parquet, chats and ready token ids
// into batches: readers, chat templates applied, the token cache on disk, the mix
// of several data sets, packing, the seeded order of rows, and the split of a
// step's rows into ragged micro-batches.
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
// It imports tokenizer, jinja and base/files. Invariant:
// which rows make up a step, and in which order, follows from the data set, the
// seed and the step's number alone.
package data
