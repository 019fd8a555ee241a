//go:build !race

package actors

// interleavings is how many random runs the model test makes.
const interleavings = 100_000

// schedules is how many orders of the streams' work are drawn.
const schedules = 10_000

// orders are in how many ways an emulated driver runs whole trials; small ones
// ten times as many.
const orders = 3

// failEvery: every call of the CUDA libraries is made to fail.
const failEvery = 1

// faultRunsByDefault of TestRandomFaults.
const faultRunsByDefault = 12
