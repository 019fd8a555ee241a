package plan

// inPlaceShare decides whether an integrated GPU uses tiles in host memory without a copy. The rate
// on host memory must be at least this fraction of the rate on the GPU's own memory. A copy would
// read and write the same shared memory, so a slightly lower rate still pays.
const inPlaceShare = 0.9

// InPlacePays reports whether an integrated GPU should use tiles in place, given its rates on its own memory and on
// pinned host memory, in any unit. A rate of 0 is unknown; tiles are then copied.
func InPlacePays(own, host float64) bool { return own > 0 && host >= inPlaceShare*own }
