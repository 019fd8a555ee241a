//go:build unix && !linux && !race

package host

// adviseHuge does nothing, because only Linux can be asked for huge pages.
func adviseHuge([]byte) {}
