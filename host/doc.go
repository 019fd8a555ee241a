// Package host is the home of parameters: arenas of host memory, the tile of every
// layer, the split planes of its weights, the planes that an optimizer keeps beside
// them (package optim), and the updates of all these on all cores.
//
// It may import host/optim, host/numa, model, internal/human, internal/parallel, golang.org/x/sys and
// unsafe.
//
// Invariant: this package knows no plane by its name. What a store holds follows
// from the layouts and the planes that it is made with, and a layer may only be
// used between Acquire and Release (Home).
package host
