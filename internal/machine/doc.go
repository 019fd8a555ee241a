// Package machine finds and opens what this machine has to compute on: an NVIDIA
// GPU, the emulator of a build with the tag emu in its place, or the CPU. It knows
// of no job: which of them a run takes, the run decides.
//
// It imports device/cpu, device/cuda, cudart and internal/config; in a build with
// the tag emu also cudart/emu.
//
// Invariant: a device that is opened here is given back by its Close alone; so is
// the emulator that it may be on.
package machine
