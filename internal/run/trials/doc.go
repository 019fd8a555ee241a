// Package trials runs a configuration or a model over random tokens, for benchmarks and tuning.
//
// It imports predict. Invariant: it reads no data and leaves output_dir alone.
package trials
