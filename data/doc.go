// Package data turns text, rows of JSON and Parquet, chats and ready token ids
// into batches: readers, chat templates applied, the token cache on disk, the mix
// of several data sets, packing, the seeded order of rows, and the split of a
// step's rows into ragged micro-batches.
//
// It imports tokenizer, jinja and base/files. Invariant:
// which rows make up a step, and in which order, follows from the data set, the
// seed and the step's number alone.
package data
