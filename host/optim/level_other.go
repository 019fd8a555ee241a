//go:build !(amd64 || arm64) || noasm

package optim

// available lists the implementations that this machine can run.
func available() []*kernels { return []*kernels{&generic} }
