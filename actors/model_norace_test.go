//go:build !race

package actors

// interleavings is the number of random runs of the model test, and fewInterleavings without long tests.
const interleavings, fewInterleavings = 100_000, 5_000

// schedules is the number of drawn orders of the streams' work.
const schedules, fewSchedules = 10_000, 300

// orders is the number of orders in which an emulated driver runs whole trials. Small trials run in ten times as many,
// or four times as many without long tests.
const orders, fewOrders = 3, 1

// failEvery: one in this many calls of the CUDA libraries fails. Without long tests it is one in seldomFail times as
// many.
const failEvery, seldomFail = 1, 28

// manyFaultRuns is the number of runs of TestRandomFaults, and fewFaultRuns without long tests.
const manyFaultRuns, fewFaultRuns = 24, 6
