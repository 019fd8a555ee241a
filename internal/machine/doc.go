// Package machine finds and opens what this machine has to compute on: an NVIDIA
// GPU, in a build with the tag emu an emulator in its place, or the CPU. Its
// caller chooses among them.
//
// It imports device, device/op, device/cpu, device/cuda, cudart, host,
// internal/config and internal/doctor/measure; in a build with the tag emu also cudart/emu.
//
// Invariant: a device that is opened here is given back by its Close alone; so is
// the emulator that it may be on.
package machine
