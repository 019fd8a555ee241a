package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mt/internal/config"
	"mt/internal/train"
	"mt/model"
)

func (a *app) trainCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "train CONFIG.yaml [--any-config-key value]",
		Short: "Train a model",
		Long: keyHelp(`Train trains a model as a YAML file says. Every key of the file is a flag too,
which wins over the file; dashes and underscores are the same, and a switch may
stand without a value. The names that other tools use are accepted.

Running the same command again resumes from the newest checkpoint in
output_dir. Ctrl-C finishes the step, saves a checkpoint and exits with 130.

Presets to train from scratch (model: NAME); tiny and quickstart are made for
a first try on a CPU:
` + presets() + `

  --dry-run   check everything and show the memory plan, train nothing
  --json      with --dry-run: the plan as JSON

Config keys, with their defaults:
`),
		Example: `  mt train examples/quickstart.yaml
  mt train run.yaml --learning-rate 1e-4 --pipeline.weight-slots 4
  mt train run.yaml --dry-run
  mt train --model quickstart --dataset notes.txt --max-seq-len 256 --output-dir out/notes`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			own, cfg, err := keyed(c, args, "dry-run", "json")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("model", "dataset"); err != nil {
				return err
			}
			switch {
			case own.Switch("dry-run"):
				return train.Plan(cfg, a.options(own.Switch("json")))
			case own.Switch("json"):
				return config.Usagef("--json goes with --dry-run; a run writes its numbers to metrics.jsonl in output_dir")
			}
			return train.Train(c.Context(), cfg, a.options(false))
		},
	}
}

func (a *app) planCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plan CONFIG.yaml [--any-config-key value]",
		Short: "Show what a run would need, by purpose, and whether it fits",
		Long: `Plan checks a config, opens the model and the data, and prints how much memory
the run would take on the device and on the host, by purpose. It allocates
nothing. Flags are those of mt train.

  --json      the table as JSON`,
		Example: `  mt plan examples/quickstart.yaml
  mt plan run.yaml --device-memory 10GiB --json`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			own, cfg, err := keyed(c, args, "json")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("model", "dataset"); err != nil {
				return err
			}
			return train.Plan(cfg, a.options(own.Switch("json")))
		},
	}
}

func (a *app) evalCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "eval --model DIR --dataset FILE",
		Short: "Measure loss and perplexity of a model on a data set",
		Long: `Eval prints the mean loss per supervised token, in nats, its exponential (the
perplexity) and the number of those tokens, over all rows of the data set.

  --model DIR           a Hugging Face directory, such as a run's output_dir
  --dataset FILE        files, directories or globs, separated by commas
  --max-seq-len N       tokens of a row (default 2048)
  --packing BOOL        fill rows with several documents (default: for text)
  --device DEVICE       auto, cpu or cuda
  --compute-dtype TYPE  auto, bf16 or fp32
  --threads N           worker threads
  --json                {"loss": ..., "perplexity": ..., "tokens": ...}

Other keys of mt train that say how data is read or computed work too, and so
does a config file in front.`,
		Example:               `  mt eval --model out/quickstart --dataset held-out.txt --max-seq-len 256 --json`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			own, cfg, err := keyed(c, args, "json")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("model", "dataset"); err != nil {
				return err
			}
			asJSON := own.Switch("json")
			r, err := train.Eval(c.Context(), train.EvalOptions{Options: a.options(asJSON), Config: cfg})
			if err != nil {
				return err
			}
			if asJSON {
				return a.json(r)
			}
			_, err = fmt.Fprintf(a.stdout, "loss %.6f  perplexity %.4f  tokens %d\n", r.Loss, r.Perplexity, r.Tokens)
			return err
		},
	}
}

func (a *app) generateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "generate --model DIR --prompt TEXT",
		Short: "Continue a prompt with a model",
		Long: `Generate continues a prompt and prints tokens as they come.

  --model DIR           a Hugging Face directory, such as a run's output_dir
  --prompt TEXT         what to continue; - reads it from the standard input
  --max-new-tokens N    tokens to make at most (default 200)
  --temperature X       0 takes the likeliest token each time (default 0)
  --top-k N             sample among the N likeliest; 0: all (default 0)
  --top-p X             sample among the likeliest of this joint probability (default 1)
  --seed N              of the sampling (default 42)
  --device DEVICE       auto, cpu or cuda
  --compute-dtype TYPE  auto, bf16 or fp32
  --threads N           worker threads`,
		Example: `  mt generate --model out/quickstart --prompt "func " --max-new-tokens 100
  mt generate --model out/quickstart --prompt - --temperature 0.8 --top-p 0.95 < prompt.txt`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) error {
			own, cfg, err := keyed(c, args, "prompt=", "max-new-tokens=", "temperature=", "top-k=", "top-p=")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("model"); err != nil {
				return err
			}
			o := train.GenerateOptions{Options: a.options(false), Config: cfg, MaxNewTokens: 200, TopP: 1, Seed: cfg.Seed}
			if err := sampling(&o, own); err != nil {
				return err
			}
			if o.Prompt, err = a.prompt(own); err != nil {
				return err
			}
			return train.Generate(c.Context(), o)
		},
	}
}

// presets are the names of the models that mt knows, in lines.
func presets() string {
	var b strings.Builder
	width := 0
	for _, name := range model.PresetNames() {
		if width+len(name) > 76 {
			b.WriteByte('\n')
			width = 0
		}
		if width == 0 {
			b.WriteByte(' ')
		}
		b.WriteString(" " + name)
		width += len(name) + 1
	}
	return b.String()
}

// sampling reads the flags that say how tokens are chosen.
func sampling(o *train.GenerateOptions, own config.Args) error {
	return firstError(
		whole(own, "max-new-tokens", 1, &o.MaxNewTokens),
		whole(own, "top-k", 0, &o.TopK),
		decimal(own, "temperature", 0, 1e6, &o.Temperature),
		decimal(own, "top-p", 0, 1, &o.TopP),
	)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// whole reads a flag that is a whole number of at least min.
func whole(own config.Args, name string, min int, into *int) error {
	text, given := own.Own[name]
	if !given {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < min {
		return config.Usagef("--%s: wants a whole number of at least %d, is %s", name, min, text)
	}
	*into = n
	return nil
}

// decimal reads a flag that is a number from min to max.
func decimal(own config.Args, name string, min, max float64, into *float64) error {
	text, given := own.Own[name]
	if !given {
		return nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= min && x <= max) {
		return config.Usagef("--%s: wants a number from %g to %g, is %s", name, min, max, text)
	}
	*into = x
	return nil
}

// maxPrompt is how much is read from the standard input.
const maxPrompt = 64 << 20

// prompt is the text to continue.
func (a *app) prompt(own config.Args) (string, error) {
	text, given := own.Own["prompt"]
	switch {
	case !given:
		return "", config.Usagef("no prompt: give --prompt TEXT, or --prompt - to read it from the standard input")
	case text == "":
		return "", config.Usagef("--prompt is empty: give at least one letter")
	case text != "-":
		return text, nil
	}
	raw, err := io.ReadAll(io.LimitReader(a.stdin, maxPrompt))
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	return string(raw), nil
}
