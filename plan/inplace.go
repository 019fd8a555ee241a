package plan

// inPlaceShare is the minimum ratio of a GPU's rate on host memory to its rate on its own memory for using tiles in
// place. On an integrated GPU a copy reads and writes the shared memory, so a slightly slower rate still pays.
const inPlaceShare = 0.9

// InPlacePays reports whether an integrated GPU should use tiles in place, given its rates on its own memory and on
// pinned host memory, in any unit. A rate of 0 is unknown; tiles are then copied.
func InPlacePays(own, host float64) bool { return own > 0 && host >= inPlaceShare*own }
