// Package host is the home of parameters: arenas of host memory, the tile of every
// layer, the split planes of its weights, the planes that an optimizer keeps beside
// them (package optim), and the updates of all these on all cores.
//
// A weight is kept as hi and lo, hi alone, or fp32. Lower halves and planes together are a layer's
// state, which may lie on disks (Tier); gradients and tiles of decoder blocks may follow. AdamW's
// planes are called m and v, and an average of the weights (ema_decay) is one more plane.
//
// On a machine with several NUMA nodes it knows which there are (numa.go), lays arenas
// out over them (placement.go), and gives work to threads that run beside the memory it needs.
//
// It may import host/optim, model, base/human, base/parallel, golang.org/x/sys and
// unsafe.
//
// Invariants: this package knows no plane by its name. What a store holds follows
// from the layouts and the planes that it is made with, and a layer may only be
// used between Acquire and Release (Home). Nodes decide where bytes lie and who works on
// them, never what is computed; what the system refuses becomes a note, and everything
// goes on as on one node.
package host
