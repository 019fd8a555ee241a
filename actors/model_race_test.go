//go:build race

package actors

// The counts of this file are for builds with the race detector. The model test runs all cores on
// one goroutine, so the race detector finds nothing there and makes it ten times slower. So it
// makes fewer random runs; builds without the race detector make all.
const interleavings, fewInterleavings = 5_000, 500

// schedules is twice the number of steps in newly drawn orders of streams' work
// (TestAdversarialSchedules). These orders come from the emulated driver, not from Go's scheduler,
// so the race detector adds nothing and few steps are enough.
const schedules, fewSchedules = 100, 100

// orders is the number of random orders of streams' work in which the emulated CUDA driver runs
// each large trial. It is a third of the number without the race detector.
const orders, fewOrders = 1, 1

// failEvery: with the race detector, TestEveryCUDACallMayFail makes only each 50th call of the CUDA
// libraries fail.
const failEvery, seldomFail = 50, 1

// manyFaultRuns is the number of runs of TestRandomFaults, and fewFaultRuns without long tests.
const manyFaultRuns, fewFaultRuns = 6, 3
