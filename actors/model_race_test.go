//go:build race

package actors

// Cores run on one goroutine each, so the race detector finds nothing in them and slows them tenfold. The build without
// it makes all runs; this one makes fewer.
const interleavings, fewInterleavings = 5_000, 1_500

// schedules: an emulated driver's order is not Go's, so fewer are enough here too.
const schedules, fewSchedules = 100, 100

// orders: a third of the orders in which an emulated driver runs whole trials.
const orders, fewOrders = 1, 1

// failEvery: one in this many calls of the CUDA libraries fails.
const failEvery, seldomFail = 50, 1

// manyFaultRuns is the number of runs of TestRandomFaults, and fewFaultRuns without long tests.
const manyFaultRuns, fewFaultRuns = 6, 3
