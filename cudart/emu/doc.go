// Package emu is the CUDA driver in plain Go, for tests and for machines without a GPU. It provides
// libcudart, libcuda, libcublasLt and libnvidia-ml as C functions behind cudart.Symbols, so that
// cudart calls them like the real libraries. It imports cudart, emu/ptx and base helpers.
//
// Device memory is Go memory at addresses that no host pointer has. Package emu/ptx interprets the
// loaded PTX kernels. Matrix products run on the host's cores. Enqueued work runs late, in an order
// that only streams and events restrict (Options.Mode). If they leave the order open, it is random,
// from a seed.
//
// The driver checks every access: its bounds, use after free, and order. Accesses to the same bytes
// must be ordered by streams, events or synchronization, whatever the order in which they happened
// to run. Driver.Faults returns the mistakes of the program. Driver.Live lists objects that were
// not released.
//
// The driver can also:
//
//   - fail any call, or lose the device
//   - emulate several devices (Options.Devices); access to another device's memory is a fault, except for copies with
//     peer access
//   - report a call on a thread without a context as a fault
//   - count the instructions of each block
//   - run the blocks of a launch by turns in a random order, so that tests see blocks wait for each other
//
// Invariant: a program that runs here without faults relies only on guarantees of CUDA. If CUDA
// leaves a choice open, the emulator makes the choice that is hardest on the program: fresh memory
// is filled with NaN, pageable copies block the host, and nothing runs before it must (Lazy).
package emu
