//go:build noasm || !(amd64 || arm64)

package vec

// available lists the implementations that this machine runs.
func available() []*kernels { return []*kernels{&generic} }
