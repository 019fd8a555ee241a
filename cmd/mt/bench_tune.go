package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"mt/internal/config"
	"mt/internal/tune"
)

func (a *app) benchTune() *cobra.Command {
	o := tuneFlags{}
	var values []int
	var turns int
	c := a.keyed(&cobra.Command{
		Use:   "tune CONFIG.yaml [--any-config-key value]",
		Short: "What mt tune finds beside the best of a grid of real runs",
		Long: `Bench tune tunes as mt tune does. Then it runs a grid of depths in turns, and holds what
was tuned against the best of the grid and against the config, in pairs of runs. With
MT_THROTTLE the CPU device waits as a GPU does.

  --values N,N,...   what every depth has in the grid (default 1,2,3,4,8)
  --turns N          how often each plan of the grid runs (default 3)
  --rates FILE, --predictions N, --candidates N, --pairs N, --steps N
                     as of mt tune
  --json             JSON`,
		Example: `  MT_THROTTLE="link=400MB/s updates=600MB/s" mt bench tune run.yaml --binding copy`,
	}, func(c *cobra.Command, cfg *config.Config) (err error) {
		if turns < 1 || len(values) == 0 {
			return config.Usagef("bench tune: --turns is at least 1, and --values has one")
		}
		if err := o.check(cfg); err != nil {
			return err
		}
		o.Config, o.Stderr, o.Host, o.Seed, o.Progress = cfg, a.stderr, processor("/proc/cpuinfo"), 1, a.tuneProgress()
		if o.Dir, err = os.MkdirTemp("", "mt-tune-*"); err != nil {
			return fmt.Errorf("bench tune: %w", err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
		r, err := tune.Grid(c.Context(), o.Options, values, turns)
		if err != nil {
			return err
		}
		return a.report(r, o.asJSON)
	})
	f := c.Flags()
	f.IntSliceVar(&values, "values", []int{1, 2, 3, 4, 8}, "")
	f.IntVar(&turns, "turns", 3, "")
	o.searchFlags(f)
	return c
}
