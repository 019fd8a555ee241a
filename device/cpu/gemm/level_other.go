//go:build !(amd64 || arm64) || noasm

package gemm

// levels lists the levels of this machine, the fastest first.
func levels() []*level { return []*level{generic} }
