package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mt/bench"
	"mt/internal/run/config"
	"mt/plan/rates"
)

func (a *app) benchReportOf() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "The page of what bench/gpu.sh has measured",
		Long: `Bench report reads the folder that bench/gpu.sh --out names, as far as it is filled,
and prints a page in Markdown: every figure that was measured beside what was
predicted for the machine, with their ratio, the ratios beside other systems, and
what became of each part. It measures nothing. gpu.sh writes the page anew after
every part, as report.md.`,
		Example: `  mt bench report out/gpu > report.md`,
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			c, err := bench.ReadContact(args[0])
			if err != nil {
				return config.Usagef("bench report: %w", err)
			}
			return c.WriteMarkdown(a.stdout)
		},
	}
}

// learnRates makes the rates of a machine out of measurements in the file path, which bench/gpu.sh has written. It
// prints a report and writes the rates to file, unless file is "". base names the rates to keep for everything that
// was not measured; "" means the profile of the measured GPU.
func (a *app) learnRates(path, base, file string, asJSON bool) error {
	if file != "" {
		if err := checkTarget(file); err != nil {
			return err
		}
	}
	c, err := bench.ReadContact(path)
	if err != nil {
		return config.Usagef("doctor: --from-report: %w", err)
	}
	found, err := c.Found()
	if err != nil {
		return fmt.Errorf("doctor: --from-report: %w", err)
	}
	var m *rates.Machine
	if base != "" {
		if m, err = rates.Find(base); err != nil {
			return config.Usagef("doctor: --profile: %w", err)
		}
	} else if m, err = rates.At(found); err != nil {
		return config.Usagef("doctor: --from-report %s: %w; name rates to begin with by --profile, such as those of the GPU most like it", path, err)
	}
	learned, err := c.Learn(m)
	if err != nil {
		return fmt.Errorf("doctor: --from-report: %w", err)
	}
	if file != "" {
		if err := learned.Machine.Save(file); err != nil {
			return fmt.Errorf("doctor: %w", err)
		}
		_, err := rates.Load(file) // as every other command will read it
		if err = errors.Join(err, a.report(learned, asJSON)); err != nil || asJSON {
			return err
		}
		_, err = fmt.Fprintf(a.stdout, "saved %s; mt plan --gpu %s predicts with it\n", file, file)
		return err
	}
	return a.report(learned, asJSON)
}
