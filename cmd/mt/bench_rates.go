package main

import (
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/run/config"
	"mt/model"
)

func (a *app) benchCopy() *cobra.Command {
	var o bench.CopyOptions
	b := &benchDevice{}
	var sizes []string
	c := &cobra.Command{
		Use:   "copy",
		Short: "Copies between host and device, and of the host's memory",
		Long: `Bench copy measures copies from host to device and back, alone and both at once,
from pinned memory, from memory that was registered later (as weights are) and from
pageable memory; copies inside the device; and copies, AdamW updates and norms over
host memory on all cores.`,
		Example: `  mt bench copy
  mt bench copy --device cuda --sizes 1MiB,256MiB`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := b.check(a, "copy"); err != nil {
				return err
			}
			for _, s := range sizes {
				n, err := sizeFlag(s)
				if err != nil {
					return config.Usagef("bench copy: --sizes %q: want sizes such as 64MiB", s)
				}
				o.Bytes = append(o.Bytes, max(n, 12))
			}
			o.OnDevice = b.on
			r, err := bench.Copy(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, b.json)
		},
	}
	b.flags(c, false)
	c.Flags().StringSliceVar(&sizes, "sizes", nil, "sizes of copies (default: 64KiB to 64MiB, on a GPU to 256MiB)")
	return c
}

func (a *app) benchAttention() *cobra.Command {
	var o bench.AttentionOptions
	b := &benchDevice{}
	c := &cobra.Command{
		Use:   "attention",
		Short: "Attention, forward and backward, by length and dimension of a head",
		Long: `Bench attention measures causal attention. What the mask leaves out does not count
in the rate, so a sequence counts half of its square.`,
		Example: `  mt bench attention
  mt bench attention --device cuda --lengths 4096,32768 --dims 128 --dtype bf16`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.DTypes, err = b.check(a, "attention"); err != nil {
				return err
			}
			for flag, numbers := range map[string][]int{"lengths": o.Lengths, "dims": o.Dims} {
				if err := positive("attention", flag, numbers); err != nil {
					return err
				}
			}
			if o.Width < 0 || o.Groups < 0 || o.Tokens < 0 {
				return config.Usagef("bench attention: --width %d, --groups %d, --tokens %d: none may be negative", o.Width, o.Groups, o.Tokens)
			}
			o.OnDevice = b.on
			r, err := bench.Attention(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, b.json)
		},
	}
	b.flags(c, true)
	f := c.Flags()
	f.IntSliceVar(&o.Lengths, "lengths", nil, "tokens of a sequence (default: 128 to 2048, on a GPU 1024 to 32768)")
	f.IntSliceVar(&o.Dims, "dims", nil, "dimensions of a head (default: 64,128)")
	f.IntVar(&o.Width, "width", 0, "heads times dimension (default: 512, on a GPU 4096)")
	f.IntVar(&o.Groups, "groups", 4, "query heads that share a key head")
	f.IntVar(&o.Tokens, "tokens", 0, "tokens of a launch, at least (default: 2048, on a GPU 16384)")
	return c
}

func (a *app) benchMatMul() *cobra.Command {
	var o bench.MatMulOptions
	b := &benchDevice{}
	c := &cobra.Command{
		Use:   "matmul",
		Short: "Matrix products of a model and square ones, all three transpositions",
		Long: `Bench matmul measures the products that every weight of a model takes part in: its
output, the gradient of its input and its own gradient. bench sgemm compares those of
a CPU with OpenBLAS.

Presets (--model NAME):
` + presets(),
		Example: `  mt bench matmul --model qwen2.5-7b --device cuda
  mt bench matmul --model quickstart --tokens 2048`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if o.DTypes, err = b.check(a, "matmul"); err != nil {
				return err
			}
			if err := positive("matmul", "squares", o.Squares); err != nil {
				return err
			}
			if o.Tokens < 0 {
				return config.Usagef("bench matmul: --tokens %d: want at least 1", o.Tokens)
			}
			if o.Name != "" {
				if o.Model, err = model.Preset(o.Name); err != nil {
					return config.Usagef("bench matmul: --model: %v", err)
				}
			}
			o.OnDevice = b.on
			r, err := bench.MatMul(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, b.json)
		},
	}
	b.flags(c, true)
	f := c.Flags()
	f.StringVar(&o.Name, "model", "", "preset whose products are measured (default: squares alone)")
	f.IntVar(&o.Tokens, "tokens", 0, "tokens of a launch (default: 1024, on a GPU 8192)")
	f.IntSliceVar(&o.Squares, "squares", nil, "extents of square products (default: 512 to 2048, on a GPU 1024 to 8192)")
	return c
}
