// Package emu is the CUDA driver in plain Go, for tests and for machines without
// a GPU: libcudart, libcuda, libcublasLt and libnvidia-ml as C functions behind
// cudart.Symbols, so that cudart calls them as it calls the real libraries.
//
// Device memory is Go memory at addresses that no host pointer has. Kernels are the
// PTX that is loaded, executed by emu/ptx; matrix products are computed on the
// host's cores. Streams run what is enqueued late, and in an order that only events
// restrict (Options.Mode). Every access is checked: its bounds, whether the memory
// has been freed, and whether accesses to the same bytes are ordered by streams,
// events and synchronisation at all, whatever order they happened to run in.
// Mistakes are kept as faults (Driver.Faults), and what was not given back is
// listed (Driver.Live). Any call can be made to fail, and the device to be lost.
//
// Where events leave the order open, a seed draws it. The driver can emulate several devices
// (Options.Devices): touching another device's memory is a fault that names both, except for copies
// between devices with peer access. A call on a thread without a context is a fault too. On request the
// driver counts the instructions of each block. It can also let the blocks of a launch take turns in a
// drawn order, so that tests see the blocks wait for each other.
//
// It imports cudart, emu/ptx and helpers in internal.
//
// Invariant: a program that runs here without faults uses only what CUDA promises.
// Where CUDA leaves something open, the emulator makes the choice that is hardest
// on the program: fresh memory is filled with NaN, pageable copies keep the host
// waiting, and nothing runs before it must (Lazy).
package emu
