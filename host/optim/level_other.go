//go:build !(amd64 || arm64) || noasm

package optim

// available lists the kernels that this machine can run: only those in plain Go.
func available() []*kernels { return []*kernels{&generic} }
