package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"mt/internal/config"
	"mt/internal/run/open"
	"mt/internal/run/predict"
)

func (a *app) initCommand() *cobra.Command {
	var force bool
	c := a.keyed(&cobra.Command{
		Use:   "init [CONFIG.yaml] [--any-config-key value]",
		Short: "Write a first config by asking five questions, and say whether it fits",
		Long: `Init asks which model, which data, what to compute on, how long and where to, and
writes a config (run.yaml) with what was answered and a recipe to begin with. It
plans the run, as mt plan does, says whether it fits, and what to run next.

Every key of mt train is a flag. What a flag answers is not asked; the others go
into the file too. Where there is no terminal, --model and --dataset are needed,
and the other questions take their defaults. With --dpo '{beta: 0.1}' the data is
pairs of answers (docs/preferences.md).

  --force     write over a file that is there`,
		Example: `  mt init
  mt init chat.yaml --model Qwen/Qwen3-4B --dataset chats.jsonl
  mt init big.yaml --model qwen2.5-7b --dataset 'text/**/*.txt' --device-memory 24GiB --max-steps 1000`,
	}, nil)
	config.Switch(c.Flags(), "force", &force)
	c.RunE = func(c *cobra.Command, args []string) error {
		file := "run.yaml"
		switch len(args) {
		case 0:
		case 1:
			file = args[0]
		default:
			return config.Usagef("init: takes one name of a file to write, got %q", args)
		}
		if _, err := os.Lstat(file); !force && !errors.Is(err, fs.ErrNotExist) {
			return config.Usagef("init: %s is there already: give another name, or --force to write over it", file)
		}
		in, err := a.interview(c.Context(), *a.keys[c])
		if err != nil {
			return err
		}
		return a.begin(file, in, force)
	}
	return c
}

// start is a value to begin with, where neither its key was given nor another that it would go against.
type start struct{ key, value, unless string }

// recipe is what to begin with: a model from scratch learns at a high rate, one that exists at a low one, of pairs at
// one far below that, and small models at higher rates than large ones.
func recipe(m *open.Model, pairs bool) []start {
	length := fmt.Sprint(min(2048, m.Config.MaxPositions))
	all := []start{{"max_seq_len", length, ""}, {"val_size", "0.05", "eval_dataset"}, {"per_device_train_batch_size", "8", ""},
		{"lr_scheduler_type", "cosine", ""}, {"save_total_limit", "2", ""}}
	small := m.Config.Params() < 100e6
	switch {
	case pairs && small:
		return append(all, start{"learning_rate", "1e-5", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case pairs:
		return append(all, start{"learning_rate", "5e-7", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case m.Dir != "" && small:
		return append(all, start{"learning_rate", "3e-4", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case m.Dir != "":
		return append(all, start{"learning_rate", "1e-5", ""}, start{"warmup_ratio", "0.1", "warmup_steps"})
	case small:
		all = append(all, start{"learning_rate", "1e-3", ""})
	default:
		all = append(all, start{"learning_rate", "3e-4", ""})
	}
	return append(all, start{"warmup_ratio", "0.03", "warmup_steps"}, start{"weight_decay", "0.1", ""})
}

// comments say of keys in the file what a newcomer may want to change.
var comments = map[string]string{
	"max_seq_len":                 "tokens of a row; what a step holds grows with it",
	"val_size":                    "the share of the rows that is held out, for the loss on what was not seen",
	"per_device_train_batch_size": "rows of a step",
	"learning_rate":               "the first thing to try other values of",
	"save_total_limit":            "checkpoints that stay; one is written every save_steps (500)",
	"device_memory":               "no more of the device than this is used",
}

// begin writes the config to file, plans it and says what to run next.
func (a *app) begin(file string, in *interview, force bool) error {
	text := in.cfg.Brief("Written by mt init. mt train --help lists all keys, and any of them is a flag too.", comments)
	written, err := config.Parse(file, text, config.Args{})
	if err != nil {
		return fmt.Errorf("init: %w", err)
	}
	if err := writeNew(file, text, force); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	fmt.Fprintf(a.stdout, "%s is written:\n\n%s\n", file, text)
	if err := predict.Plan(written, a.options(false)); err != nil {
		return fmt.Errorf("init: %s is written, and the run cannot be as it is; change it and see mt plan %s: %w", file, file, err)
	}
	talk := "--prompt \"Once upon a time\""
	if in.model.Dir != "" {
		talk = "--chat"
	}
	_, err = fmt.Fprintf(a.stdout, `
It fits. What to run next:

  mt train %[1]s --dry-run      # the same with the data, which is read then
  mt train %[1]s --dashboard    # train, with a page that shows the run; Ctrl-C stops it
  mt train %[1]s                # after any stop: go on where it was
  mt generate --model %[2]s %[3]s
`, file, written.OutputDir, talk)
	return err
}

// writeNew writes a file that is not there yet, or with force any.
func writeNew(name string, text []byte, force bool) error {
	if force {
		return replaceFile(name, text)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}
