// Package trials runs a configuration, or a model, over random tokens, for benchmarks and for tuning.
//
// It imports predict. Invariant: no data is read, and output_dir is not touched.
package trials
