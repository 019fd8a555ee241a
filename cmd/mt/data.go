package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"mt/data"
	"mt/internal/config"
	"mt/internal/train"
	"mt/tokenizer"
)

func (a *app) dataCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Look at data sets",
		RunE:  group,
	}
	c.AddCommand(a.dataInspect())
	return c
}

func (a *app) dataInspect() *cobra.Command {
	in := inspection{rows: 3}
	c := a.keyed(&cobra.Command{
		Use:   "inspect CONFIG.yaml, or --dataset FILE [--model DIR]",
		Short: "Show what mt makes of a data set",
		Long: `Inspect reads a data set as training would and shows its first rows token by
token, with what is supervised in colour; then rows, tokens, how long documents
are, and what was cut or left out. Chats with a supervised turn that does not end
with a special token, texts without an end-of-text token and documents that begin
with two BOS are reported, and end it with an error. Without a model text is read
as bytes, and any token id is taken. The keys of mt train that say how data is
read are flags.

  --rows N              how many rows are shown (3; 0: none)
  --row I               which is the first of them, from 0
  --color auto|always|never
  --json                the figures, and the rows, as JSON`,
		Example: `  mt data inspect run.yaml
  mt data inspect --dataset chats.jsonl --model path/to/model --max-seq-len 4096 --rows 1`,
	}, func(c *cobra.Command, cfg *config.Config) (err error) {
		if err := cfg.Require("dataset"); err != nil {
			return err
		}
		if err := a.inspection(&in); err != nil {
			return err
		}
		set, tok, err := a.openDataset(c.Context(), cfg)
		if err != nil {
			return err
		}
		defer func() {
			if closing := set.Close(); err == nil {
				err = closing
			}
		}()
		for _, w := range append(cfg.Warnings, set.Notes()...) { // problems are in the error at the end
			fmt.Fprintln(a.stderr, "note:", w)
		}
		return a.inspect(in, cfg, set, tok)
	})
	set := c.Flags()
	config.Switch(set, "json", &in.json)
	whole(set, "rows", 0, &in.rows)
	whole(set, "row", 0, &in.first)
	set.StringVar(&in.colour, "color", "auto", "")
	return c
}

// inspection is what the flags of mt data inspect ask for.
type inspection struct {
	rows, first int
	colour      string // auto, always or never
	paint       paint
	json        bool
}

// inspection completes in, or says what is wrong with the flags.
func (a *app) inspection(in *inspection) error {
	switch in.colour {
	case "", "auto":
		in.paint.colour = a.colour
	case "always", "never":
		in.paint.colour = in.colour == "always"
	default:
		return config.Usagef("--color: %q is none of auto, always, never", in.colour)
	}
	return nil
}

// inspect reports on set, and returns an error where the report shows something that
// training should not go on with.
func (a *app) inspect(in inspection, c *config.Config, set *data.Dataset, tok tokenizer.Tokenizer) error {
	var s dataStats
	err := set.Read(func() {
		s = dataStats{Stats: set.Stats(), Report: set.Report()}
		for i := in.first; i < set.Rows() && i-in.first < in.rows; i++ {
			s.Samples = append(s.Samples, newSample(set, tok, i))
		}
	})
	if err != nil {
		return err
	}
	if !c.Model.Set() {
		s.VocabSize = 0
	}
	if !in.json {
		if err := in.paint.writeSamples(a.stdout, s.Samples); err != nil {
			return err
		}
	}
	if err := a.report(s, in.json); err != nil {
		return err
	}
	return s.problem()
}

// openDataset opens the data set of c, showing how far the reading is.
func (a *app) openDataset(ctx context.Context, c *config.Config) (*data.Dataset, tokenizer.Tokenizer, error) {
	spec, err := inspectSpec(c)
	if err != nil {
		return nil, nil, err
	}
	spec.Stop, spec.Progress = ctx.Done(), a.options(false).Progress()
	set, err := data.Open(spec)
	var wrong *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return nil, nil, train.ErrResumable
	case errors.As(err, &wrong):
		return nil, nil, c.Errorf(cmp.Or(wrong.Key, c.DataKey()), "%w", err)
	case err != nil:
		return nil, nil, fmt.Errorf("%s: %w", c.DataKey(), err)
	}
	return set, spec.Tokenizer, nil
}

// anyVocab is a vocabulary larger than that of any model, so that every token id is
// allowed.
const anyVocab = 1 << 20

// inspectSpec is how training would read the data, with the model's vocabulary
// and tokenizer where there is a model.
func inspectSpec(c *config.Config) (data.Spec, error) {
	s := c.DataSpec()
	s.VocabSize = anyVocab
	if !c.Model.Set() {
		for _, key := range []string{"add_tokens", "new_special_tokens"} {
			if c.Given(key) {
				return s, c.Errorf(key, "%s: needs a model to add tokens to; give model_name_or_path", key)
			}
		}
		s.Tokenizer = tokenizer.Bytes()
		return s, nil
	}
	m, err := train.OpenModel(c)
	if err != nil {
		return s, err
	}
	s.VocabSize, s.ModelDir, s.Tokenizer, s.TokenizerErr = m.Config.VocabSize, m.Dir, m.Tokenizer, m.Err
	c.Warnings = append(c.Warnings, m.Notes...)
	return s, nil
}
