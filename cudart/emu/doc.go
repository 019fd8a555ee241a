// Package emu is the CUDA driver in plain Go, for tests and for machines without a GPU. It provides libcudart,
// libcuda, libcublasLt and libnvidia-ml as C functions behind cudart.Symbols, so that cudart calls them like the real
// libraries. It imports cudart, emu/ptx and base helpers.
//
// Device memory is Go memory at addresses that no host pointer has. emu/ptx executes the loaded PTX kernels. Matrix
// products run on the host's cores. Enqueued work runs late, in an order that only streams and events restrict
// (Options.Mode). A seed draws the order where events leave it open.
//
// The driver checks every access: its bounds, use after free, and order. Accesses to the same bytes must be ordered by
// streams, events or synchronization, regardless of the order in which they ran. Driver.Faults returns the mistakes.
// Driver.Live lists objects that were not released.
//
// The driver can also:
//
//   - fail any call, or lose the device
//   - emulate several devices (Options.Devices); access to another device's memory is a fault, except for copies with
//     peer access
//   - report a call on a thread without a context as a fault
//   - count the instructions of each block
//   - let the blocks of a launch take turns in a drawn order, so that tests see blocks wait for each other
//
// Invariant: a program that runs here without faults relies only on guarantees of CUDA. If CUDA leaves a choice
// open, the emulator makes the choice that is hardest on the program: fresh memory is filled with NaN, pageable copies
// block the host, and nothing runs before it must (Lazy).
package emu
