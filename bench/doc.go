// Package bench measures the components of mt, as a library: `mt bench` runs it and prints tables or JSON. Tests never
// measure.
//
// It may import internal/doctor and everything below it; only cmd imports it.
//
// A Contact is the output of bench/gpu.sh on a machine. WriteMarkdown writes its report, and Learn turns its figures
// into rates.
//
// Package internal/doctor/measure measures the rates of one machine (copy, attention, matmul).
//
// Invariant: compared sides run in turns, each within one process lifetime. The report has the ratio of neighbouring
// runs and its spread, because the speed of a shared machine drifts by a third while ratios do not.
package bench
