//go:build !race

package actors

// interleavings is how many random runs the model test makes, and how many of
// them where long tests are left out.
const interleavings, fewInterleavings = 100_000, 5_000

// schedules is how many orders of the streams' work are drawn.
const schedules, fewSchedules = 10_000, 300

// orders is in how many orders an emulated driver runs whole trials; small trials run in
// ten times as many, or in four times as many where long tests are left out.
const orders, fewOrders = 3, 1

// failEvery: one call in so many of the CUDA libraries is made to fail, and one in
// seldomFail times as many where long tests are left out.
const failEvery, seldomFail = 1, 28

// manyFaultRuns of TestRandomFaults, and a few where long tests are left out.
const manyFaultRuns, fewFaultRuns = 24, 6
