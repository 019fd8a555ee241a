// Package machine finds and opens the devices of this machine: an NVIDIA GPU or the CPU. A build with the tag emu has
// an emulator in the GPU's place. The caller chooses among the devices.
//
// It imports device, device/op, device/cpu, device/cuda, cudart, host, internal/run/config and
// internal/doctor/measure; in a build with the tag emu also cudart/emu.
//
// Invariant: only a device's Close frees the device, and the emulator below it.
package machine
