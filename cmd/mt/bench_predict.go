package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/machine"
	"mt/plan/rates"
)

func (a *app) benchPredict() *cobra.Command {
	var o bench.PredictOptions
	var file string
	var asJSON bool
	c := &cobra.Command{
		Use:   "predict",
		Short: "Predicted steps beside measured ones, on the CPU",
		Long: `Bench predict draws configurations by chance, predicts what a step of each takes, runs
all of them in turns and prints both. Every other one runs with copies and updates made
slower, so that it stands still for a quarter of its time. Rates are measured anew before
each round, unless --rates gives them. Machines change their speed within minutes: a small
training run tells how fast this one is before and after each configuration, rates are
brought to that speed, and what ran while it changed runs again.`,
		Example: `  mt bench predict --configurations 32 --rounds 5`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Configurations < 1 || o.Rounds < 1 || o.Steps < 1 {
				return config.Usagef("bench predict: --configurations, --rounds and --steps are at least 1")
			}
			o.Rates = a.measuredRates
			if file != "" {
				m, err := rates.Load(file)
				if err != nil {
					return config.Usagef("bench predict: --rates: %w", err)
				}
				o.Rates = func(context.Context) (*rates.Machine, error) { return m, nil }
			}
			if a.interactive {
				o.Progress = func(done, of int) { fmt.Fprintf(a.stderr, "\rrun %d of %d\x1b[K", done+1, of) }
			}
			r, err := bench.Predict(c.Context(), o)
			if err != nil {
				return err
			}
			return a.report(r, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&file, "rates", "", "the rates of this machine, as mt doctor --save writes them (default: measured before each round)")
	f.IntVar(&o.Configurations, "configurations", 32, "how many are drawn")
	f.IntVar(&o.Rounds, "rounds", 5, "how often each runs")
	f.IntVar(&o.Steps, "steps", 6, "steps of a run that count")
	f.Uint64Var(&o.Seed, "seed", 1, "what they are drawn by")
	f.IntVar(&o.Only, "only", -1, "run only this one, counted from 0 (default: all)")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// measuredRates measures and returns the rates of the CPU.
func (a *app) measuredRates(ctx context.Context) (*rates.Machine, error) {
	devs, err := calibrated("cpu", "1")
	if err != nil {
		return nil, err
	}
	m, err := doctor.Calibrate(ctx, doctor.CalibrateOptions{Device: devs[0], Host: doctor.Processor(os.DirFS("/")), Dir: os.TempDir(),
		Progress: func(what string, part, parts int) {
			if a.interactive {
				fmt.Fprintf(a.stderr, "\rmeasuring %s (%d of %d)\x1b[K", what, part, parts)
			}
		}})
	return m, errors.Join(err, machine.CloseAll(devs))
}
