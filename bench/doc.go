// Package bench measures what this program is made of, as a library: `mt bench`
// runs it and prints tables or JSON. Tests never measure.
//
// It may import internal/doctor and everything below it; only cmd imports it.
//
// A Contact is what bench/gpu.sh left of a machine: WriteMarkdown is its page, Learn makes rates of it.
//
// Rates of one machine (copy, attention, matmul) are measured by internal/doctor/measure.
//
// Invariant: whatever is compared runs in turns, within one lifetime of each
// side, and is reported as a ratio of runs that were neighbours in time, with
// its spread: speeds of shared machines drift by a third, ratios do not.
package bench
