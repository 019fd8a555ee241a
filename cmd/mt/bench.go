package main

import (
	"time"

	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/run/config"
)

func (a *app) benchCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine and mt on it",
		Long: `Bench measures one part of mt. adamw, sgemm, tokenizer and train stand beside what they
should equal: runs alternate with those of the other side, since a machine's speed
changes from minute to minute. copy, attention and matmul are the rates of this
machine.`,
		Example: `  mt bench adamw
  mt bench sgemm --json
  mt bench train --peer torch
  mt bench copy --device cuda`,
		RunE: group,
	}
	c.AddCommand(a.benchAdamW(), a.benchAttention(), a.benchCopy(), a.benchKernels(), a.benchMatMul(), a.benchSGEMM(), a.benchTokenizer(), a.benchTrain(), a.benchPredict(), a.benchReportOf())
	return c
}

func (a *app) benchAdamW() *cobra.Command {
	var o bench.AdamWOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "adamw",
		Short: "The optimizer's memory rate against that of a copy",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			if o.Params < 1<<10 || o.Rounds < 1 {
				return config.Usagef("bench adamw: --params %d, --rounds %d: want at least 1024 and 1", o.Params, o.Rounds)
			}
			r, err := bench.AdamW(o)
			if err != nil {
				return err
			}
			return a.report(r, asJSON)
		},
	}
	c.Flags().Int64Var(&o.Params, "params", 64<<20, "parameters to update")
	c.Flags().IntVar(&o.Rounds, "rounds", 9, "how often each side runs")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func (a *app) benchSGEMM() *cobra.Command {
	var o bench.SGEMMOptions
	var asJSON bool
	c := &cobra.Command{
		Use:   "sgemm",
		Short: "Matrix products against OpenBLAS, where it is installed",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Threads < 0 || o.Rounds < 1 || o.Sample <= 0 {
				return config.Usagef("bench sgemm: --threads %d, --rounds %d, --sample %s: none may be negative, and rounds and sample not zero",
					o.Threads, o.Rounds, o.Sample)
			}
			r, err := bench.SGEMM(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, asJSON)
		},
	}
	c.Flags().IntVar(&o.Threads, "threads", 0, "worker threads (default: all cores)")
	c.Flags().IntVar(&o.Rounds, "rounds", 7, "how often each side runs")
	c.Flags().DurationVar(&o.Sample, "sample", 100*time.Millisecond, "how long a side runs in a round")
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
