//go:build !race

package main

// raceDetector says whether this is a build with the race detector.
const raceDetector = false
