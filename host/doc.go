// Package host is the home of parameters: arenas of host memory, the tile of every
// layer, the split planes of its weights, the planes that an optimizer keeps beside
// them (package optim), and the updates of all these on all cores.
//
// On a machine with several NUMA nodes it knows which there are (numa.go), lays arenas
// out over them (placement.go), and gives work to threads that run beside the memory it needs.
//
// It may import host/optim, model, internal/human, internal/parallel, golang.org/x/sys and
// unsafe.
//
// Invariants: this package knows no plane by its name. What a store holds follows
// from the layouts and the planes that it is made with, and a layer may only be
// used between Acquire and Release (Home). Nodes decide where bytes lie and who works on
// them, never what is computed; what the system refuses becomes a note, and everything
// goes on as on one node.
package host
