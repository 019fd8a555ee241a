package plan

// inPlaceShare is the ratio of a GPU's rate on host memory to its rate on its own memory from which tiles are used in
// host memory without a copy. On an integrated GPU a copy reads and writes the same shared memory, so a rate that is a
// little lower still pays.
const inPlaceShare = 0.9

// InPlacePays reports whether an integrated GPU should use tiles in place, given its rates on its own memory and on
// pinned host memory, in any unit. A rate of 0 is unknown; tiles are then copied.
func InPlacePays(own, host float64) bool { return own > 0 && host >= inPlaceShare*own }
