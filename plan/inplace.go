package plan

// inPlaceShare is the least share of its rate in its own memory at which a GPU must compute on host memory for tiles to be used in
// place. A copy reads and writes memory that an integrated GPU shares with the host, so a little slower is still faster.
const inPlaceShare = 0.9

// InPlacePays says whether tiles are used in place by an integrated GPU that computes on its own memory and on pinned host
// memory at these rates, in any unit. A rate of 0 is unknown, and then they are copied.
func InPlacePays(own, host float64) bool { return own > 0 && host >= inPlaceShare*own }
