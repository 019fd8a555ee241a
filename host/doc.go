// Package host holds the parameters in host memory. It has arenas, the tile of every layer, the lower halves of split
// weights, and the optimizer's planes beside the weights (package optim). It updates them on all cores.
//
// A weight is stored as hi and lo, as hi alone, or as fp32. Lower halves and planes together are a layer's state, which
// may be on disk (Tier). Gradients and tiles of decoder blocks may be on disk too. AdamW's planes are m and v, and a
// moving average of the weights (ema_decay) is another plane.
//
// On a machine with several NUMA nodes the package finds the nodes (numa.go) and distributes arenas over them
// (placement.go). Each thread first updates the memory of its own node.
//
// It may import host/optim, model, base/human, base/parallel, golang.org/x/sys and unsafe.
//
// Invariants: this package knows no plane by name. The content of a store follows from the layouts and planes that it
// was made with. A layer may be used only between Acquire and Release (Home). NUMA nodes determine where bytes are and
// who works on them, never the result. If the system refuses a placement, mt notes it and continues as on one node.
package host
