//go:build unix && !linux && !race

package host

// adviseHuge does nothing, because only Linux has the advice.
func adviseHuge([]byte) {}
