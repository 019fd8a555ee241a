package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mt/internal/doctor"
	"mt/internal/run/config"
	"mt/internal/run/tune"
	"mt/plan"
	"mt/plan/rates"
)

// tuneFlags holds the flags of mt tune that are not config keys.
type tuneFlags struct {
	tune.Options
	rates, svg    string
	write, asJSON bool
	source        []byte // the config file as it was at the start
}

func (a *app) tuneCommand() *cobra.Command {
	var o tuneFlags
	c := a.keyed(&cobra.Command{
		Use:   "tune CONFIG.yaml [--any-config-key value]",
		Short: "Find the pipeline's depths with which a config trains fastest here",
		Long: `Tune predicts many combinations of weight slots, gradient buffers, slabs and
activation slots that fit into memory, lets the most promising run for some
steps over random tokens, and holds the best against what the config has, in
pairs of runs. It proposes only what was faster there. Results of training do
not depend on what it changes, bit for bit. Flags are those of mt train.

  --write            write the best into CONFIG.yaml; comments and all else stay
  --allow-new-bits   tune micro_batch_tokens and chunk_tokens too, which change
                     the order of sums: no checkpoint made before can be resumed
  --rates FILE       what mt doctor --save has measured of this machine
                     (default: measure it first, for about a minute)
  --predictions N    plans to predict at most (default 300)
  --candidates N     plans of them that run (default 8)
  --pairs N          runs of the best against the start (default 8), up to three
                     times as many where they leave it open
  --steps N          steps that count of a first short run (default: a second)
  --svg DIR          draw what every depth changes into DIR
  --json             everything as JSON`,
		Example: `  mt tune run.yaml
  mt tune run.yaml --write
  mt doctor --save here.json && mt tune run.yaml --rates here.json --svg out/tune`,
	}, func(c *cobra.Command, cfg *config.Config) error { return a.tune(c, cfg, &o) })
	f := c.Flags()
	f.StringVar(&o.svg, "svg", "", "")
	config.Switch(f, "write", &o.write)
	config.Switch(f, "allow-new-bits", &o.NewBits)
	f.StringVar(&o.rates, "rates", "", "")
	f.IntVar(&o.Predictions, "predictions", 300, "")
	f.IntVar(&o.Candidates, "candidates", 8, "")
	f.IntVar(&o.Pairs, "pairs", 8, "")
	f.IntVar(&o.Steps, "steps", 0, "")
	config.Switch(f, "json", &o.asJSON)
	return c
}

// tune tunes cfg and prints the result, even after an interruption.
func (a *app) tune(c *cobra.Command, cfg *config.Config, o *tuneFlags) (err error) {
	if err := o.check(cfg); err != nil {
		return err
	}
	o.Config, o.Stderr, o.Host, o.Seed = cfg, a.stderr, doctor.Processor(os.DirFS("/")), 1
	o.Progress = a.tuneProgress()
	if o.Dir, err = os.MkdirTemp("", "mt-tune-*"); err != nil {
		return fmt.Errorf("tune: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.Dir)) }()
	r, failed := tune.Tune(c.Context(), o.Options)
	if a.interactive {
		fmt.Fprint(a.stderr, eraseLine)
	}
	if r == nil {
		return failed
	}
	if failed == nil {
		failed = o.keep(r)
	}
	if o.asJSON {
		return errors.Join(failed, a.json(r))
	}
	err = r.WriteTable(a.stdout)
	if err == nil {
		err = r.WriteCurves(a.stdout)
	}
	switch {
	case failed != nil || err != nil || len(r.Settings) == 0:
	case r.Written != "":
		_, err = fmt.Fprintf(a.stdout, "\nwritten into %s\n", r.Written)
	case cfg.File() != "":
		_, err = fmt.Fprintf(a.stdout, "\n--write writes it into %s\n", cfg.File())
	}
	return errors.Join(failed, err)
}

// check rejects a config file that --write could not edit, and loads the rates.
func (o *tuneFlags) check(cfg *config.Config) (err error) {
	if o.write {
		if o.source, err = config.Editable(cfg.File()); err != nil {
			return err
		}
		try := []config.Setting{{Key: "pipeline.grad_slabs", Value: 1}, {Key: "threads", Value: 1}}
		for _, d := range plan.AllDepths {
			if d.Device {
				try = append(try, config.Setting{Key: d.Key(), Value: d.Least})
			}
		}
		if _, err := config.Edit(cfg.File(), o.source, try); err != nil {
			return err
		}
	}
	if o.svg != "" {
		if err := os.MkdirAll(o.svg, 0o755); err != nil {
			return config.Usagef("--svg: %w", err)
		}
	}
	if o.rates != "" {
		if o.Machine, err = rates.Find(o.rates); err != nil {
			return config.Usagef("--rates: %w", err)
		}
	}
	return nil
}

// keep writes the results of a completed tuning: pictures (--svg) and settings in the config file
// (--write).
func (o *tuneFlags) keep(r *tune.Result) error {
	if o.svg != "" {
		for _, c := range r.Curves {
			if err := writeCurve(filepath.Join(o.svg, c.Name()+".svg"), &c); err != nil {
				return fmt.Errorf("tune: --svg: %w", err)
			}
		}
	}
	if !o.write || len(r.Settings) == 0 {
		return nil
	}
	file := o.Config.File()
	text, err := config.Edit(file, o.source, r.Settings)
	if err != nil {
		return err
	}
	now, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("tune: --write: %w", err)
	}
	if !bytes.Equal(now, o.source) {
		return fmt.Errorf("tune: --write: %s has changed meanwhile and is left as it is; write this into it yourself: %s", file, config.Settings(r.Settings))
	}
	if err := replaceFile(file, text); err != nil {
		return fmt.Errorf("tune: --write: %w", err)
	}
	r.Written = file
	return nil
}

func writeCurve(file string, c *tune.Curve) error {
	var b bytes.Buffer
	if err := c.Chart().WriteSVG(&b); err != nil {
		return err
	}
	return replaceFile(file, b.Bytes())
}

// tuneProgress prints progress: on a terminal one updated line, otherwise a line per activity.
func (a *app) tuneProgress() func(what string, done, of int, left time.Duration) {
	last := ""
	return func(what string, done, of int, left time.Duration) {
		text := fmt.Sprintf("%s: %d of %d", what, min(done+1, of), of)
		if left > 0 {
			text += fmt.Sprintf(", about %s left", left.Round(time.Second))
		}
		switch {
		case a.interactive:
			fmt.Fprint(a.stderr, eraseLine, text)
		case what != last || what == "short runs" && done%10 == 0:
			fmt.Fprintln(a.stderr, strings.TrimSpace(text))
		}
		last = what
	}
}
