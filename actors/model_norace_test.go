//go:build !race

package actors

// interleavings is the number of random runs that the model test makes with all actors' cores;
// fewInterleavings is the number without long tests.
const interleavings, fewInterleavings = 100_000, 5_000

// schedules is twice the number of steps of TestAdversarialSchedules, each in a newly drawn order
// of the streams' work; fewSchedules is the same without long tests.
const schedules, fewSchedules = 10_000, 300

// orders is the number of random orders of streams' work in which the emulated CUDA driver runs
// each large trial; fewOrders is the number without long tests. Small trials run in ten times as
// many orders, or four times as many without long tests.
const orders, fewOrders = 3, 1

// failEvery sets which calls of the CUDA libraries TestEveryCUDACallMayFail makes fail: each
// failEvery-th call, or each failEvery·seldomFail-th without long tests.
const failEvery, seldomFail = 1, 28

// manyFaultRuns is the number of runs of TestRandomFaults, and fewFaultRuns without long tests.
const manyFaultRuns, fewFaultRuns = 24, 6
