//go:build !(amd64 || arm64) || noasm

package gemm

// levels lists the levels (kernels for one instruction set each) that this machine can run: only the one in plain Go.
func levels() []*level { return []*level{generic} }
