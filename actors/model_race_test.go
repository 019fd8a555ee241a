//go:build race

package actors

// The race detector finds nothing in cores that run on one goroutine each, and
// slows them tenfold: fewer runs, all of them in the build without it.
const interleavings, fewInterleavings = 5_000, 1_500

// schedules of an emulated driver, whose order is not Go's: fewer here too.
const schedules, fewSchedules = 100, 100

// orders: of those in which an emulated driver runs whole trials, a third.
const orders, fewOrders = 1, 1

// failEvery: one call in so many of the CUDA libraries is made to fail.
const failEvery, seldomFail = 50, 1

// manyFaultRuns of TestRandomFaults, and a few where long tests are left out.
const manyFaultRuns, fewFaultRuns = 6, 3
