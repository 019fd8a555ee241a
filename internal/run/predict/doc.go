// Package predict prints what a run would take: memory, disk space, and the time of a step. It measures this machine
// or predicts another one.
//
// It imports save. Invariant: it trains nothing and writes nothing except a requested trace.
package predict
