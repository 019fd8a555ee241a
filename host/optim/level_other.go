//go:build !(amd64 || arm64) || noasm

package optim

// available lists what this machine runs.
func available() []*kernels { return []*kernels{&generic} }
