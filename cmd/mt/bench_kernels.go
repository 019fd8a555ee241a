package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/run/config"
)

func (a *app) benchKernels() *cobra.Command {
	var o bench.KernelsOptions
	var asJSON bool
	var device string
	c := &cobra.Command{
		Use:   "kernels",
		Short: "What our CUDA kernels do, and what a GPU that is not here would take for it",
		Long: `Bench kernels runs our CUDA kernels in an emulator, for a part of their blocks, counts
what they do, and computes two times on the GPU that --gpu names: the bound, which
the kernel cannot beat because one resource of the GPU is busy all the while, and
the time to expect, from a replay of what the warps of one multiprocessor do. Nothing
is measured. It needs a build with the emulator: go build -tags emu ./cmd/mt`,
		Example: `  mt bench kernels --device emu --gpu h100
  mt bench kernels --device emu --gpu rtx-4090 --only Attention,MatMul --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if device != "emu" {
				return config.Usagef("bench kernels: --device %s: kernels are counted in the emulator alone, --device emu", device)
			}
			o.Log = func(what string) { fmt.Fprintln(a.stderr, what) }
			r, err := bench.Kernels(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&device, "device", "emu", "emu")
	f.StringVar(&o.GPU, "gpu", "h100", "the GPU: a name that mt plan --gpu takes")
	f.StringSliceVar(&o.Only, "only", nil, "operations, such as Attention,MatMul (default: all)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
