//go:build unix && !linux && !race

package host

// adviseHuge does nothing: only Linux takes the advice.
func adviseHuge([]byte) {}
