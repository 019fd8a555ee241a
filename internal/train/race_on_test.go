//go:build race

package train

// raceSlowdown divides the length of tests that take long under the race
// detector.
const raceSlowdown = 3
