// Package data turns text, JSONL and ready token ids into batches: readers,
// the token cache on disk, packing, the seeded order of rows, and the split of
// a step's rows into ragged micro-batches.
//
// It imports nothing of ours but data/tokenizer. Invariant: which rows make up a
// step, and in which order, follows from the data set, the seed and the step's
// number alone.
package data
