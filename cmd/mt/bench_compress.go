package main

import (
	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/config"
)

func (a *app) benchCompress() *cobra.Command {
	var o bench.CompressOptions
	b := &benchOutput{}
	var sample, block string
	c := a.keyed(&cobra.Command{
		Use:   "compress CONFIG.yaml [--any-config-key value]",
		Short: "How well gradients, weights and moments of a run compress, and what that is worth",
		Long: `Bench compress trains some steps as a YAML file says, takes samples of what the
updates read and write (gradients as they landed and rounded to bf16, updates, both
moments, weights whole and as the planes hi and lo) and compresses them by S2 and
zstd: as they are, in byte planes, and as XOR or difference with the step before. It
prints ratios, the speed of one core both ways, and at which speed of a link or disk
compression would pay.

Every key of mt train is a flag. A checkpoint is looked at with
--resume-from-checkpoint DIR. Nothing is saved: the run's output_dir is a temporary
directory that is removed.

  --bench-steps N      steps that are made (default 60); samples are taken at a tenth,
                       the half and the end of them
  --bench-sample SIZE  bytes of every kind and kind of layer, at most (default 2MiB)
  --bench-block SIZE   bytes that are compressed at a time (default 256KiB)
  --bench-cores N      cores of the host for the conclusion (default: all)
  --json               print JSON
  --svg FILE           draw the figures into this file too
  --report DIR         write a dated report into this directory too`,
		Example: `  mt bench compress examples/quickstart.yaml
  mt bench compress run.yaml --bench-steps 200 --compute-dtype bf16 --report bench/reports`,
	}, func(c *cobra.Command, cfg *config.Config) error {
		if err := cfg.Require("model", "dataset"); err != nil {
			return err
		}
		if err := b.check("compress"); err != nil {
			return err
		}
		if o.Steps < 2 || o.Cores < 0 {
			return config.Usagef("bench compress: --bench-steps %d, --bench-cores %d: want at least 2 steps and no negative number of cores", o.Steps, o.Cores)
		}
		for _, f := range []struct {
			flag, text string
			to         *int64
		}{{"bench-sample", sample, &o.Sample}, {"bench-block", block, &o.Block}} {
			n, err := sizeFlag(f.text)
			if err != nil || n < 4<<10 || n > 1<<30 {
				return config.Usagef("bench compress: --%s %q: want a size of 4KiB to 1GiB", f.flag, f.text)
			}
			*f.to = n
		}
		o.Config, o.Train = cfg, a.options(false)
		r, err := bench.Compress(c.Context(), o)
		if err != nil {
			return err
		}
		return a.benchReport("compress", b, r)
	})
	f := c.Flags()
	config.Switch(f, "json", &b.json)
	f.StringVar(&b.svg, "svg", "", "")
	f.StringVar(&b.report, "report", "", "")
	f.IntVar(&o.Steps, "bench-steps", 60, "")
	f.StringVar(&sample, "bench-sample", "2MiB", "")
	f.StringVar(&block, "bench-block", "256KiB", "")
	f.IntVar(&o.Cores, "bench-cores", 0, "")
	return c
}
