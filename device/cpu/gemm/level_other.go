//go:build !(amd64 || arm64) || noasm

package gemm

// levels lists what this machine can run, the fastest first.
func levels() []*level { return []*level{generic} }
