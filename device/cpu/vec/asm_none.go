//go:build noasm || !(amd64 || arm64)

package vec

// available lists the sets of kernels that this machine can run: only the one in plain Go.
func available() []*kernels { return []*kernels{&generic} }
