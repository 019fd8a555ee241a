//go:build !amd64 || noasm

package host

// available lists what this machine runs.
func available() []*kernels { return []*kernels{&generic} }
