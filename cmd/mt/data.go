package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"mt/data"
	"mt/data/tokenizer"
	"mt/internal/config"
	"mt/internal/train"
	"mt/model"
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
	return &cobra.Command{
		Use:   "inspect CONFIG.yaml, or --dataset FILE [--model DIR]",
		Short: "Show what mt makes of a data set",
		Long: `Inspect reads a data set as training would and prints rows, tokens and how long
documents are. Without a model text is read as bytes, and any token id is taken.
The keys of mt train that say how data is read are flags.

  --json      the figures as JSON`,
		Example: `  mt data inspect run.yaml
  mt data inspect --dataset chats.jsonl --model path/to/model --max-seq-len 4096`,
		DisableFlagParsing:    true,
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, args []string) (err error) {
			own, cfg, err := keyed(c, args, "json")
			if err != nil || cfg == nil {
				return err
			}
			if err := cfg.Require("dataset"); err != nil {
				return err
			}
			set, err := a.openDataset(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() {
				if closing := set.Close(); err == nil {
					err = closing
				}
			}()
			for _, w := range append(cfg.Warnings, set.Warnings()...) {
				fmt.Fprintln(a.stderr, "note:", w)
			}
			s := dataStats{set.Stats()}
			if !cfg.Model.Set() {
				s.VocabSize = 0
			}
			return a.report(s, own.Switch("json"))
		},
	}
}

// openDataset opens the data set of c, showing how far that is.
func (a *app) openDataset(ctx context.Context, c *config.Config) (*data.Dataset, error) {
	spec, err := inspectSpec(c)
	if err != nil {
		return nil, err
	}
	spec.Stop, spec.Progress = ctx.Done(), a.options(false).Progress()
	set, err := data.Open(spec)
	var wrong *data.SpecError
	switch {
	case errors.Is(err, data.ErrStopped):
		return nil, train.ErrInterrupted
	case errors.As(err, &wrong):
		return nil, c.Errorf("dataset", "%w", err)
	case err != nil:
		return nil, fmt.Errorf("dataset: %w", err)
	}
	return set, nil
}

// anyVocab admits every token id of the models there are.
const anyVocab = 1 << 20

// inspectSpec is how training would read the data, with the model's vocabulary
// and tokenizer where there is a model.
func inspectSpec(c *config.Config) (data.Spec, error) {
	s := data.Spec{Paths: c.Dataset, Dir: c.DatasetDir, Format: c.DatasetFormat, MaxSeqLen: c.MaxSeqLen, Seed: c.Seed,
		Shuffle: c.Shuffle, ValSize: c.ValSize, CacheDir: c.CacheDir, VocabSize: anyVocab}
	if c.Packing != config.Auto {
		packing := c.Packing == config.On
		s.Packing = &packing
	}
	var m *model.Config
	var dir string
	var err error
	switch {
	case c.Model.Path != "":
		if dir, err = config.ModelDir(c.Model.Path); err == nil {
			m, err = model.LoadDir(dir)
		}
	case c.Model.Preset != "":
		m, err = model.Preset(c.Model.Preset)
	case c.Model.Inline != nil:
		m, err = model.FromInline(c.Model.Inline, "model")
	default:
		s.Tokenizer = tokenizer.Bytes()
		return s, nil
	}
	if err != nil {
		return s, c.Errorf("model", "%w", err)
	}
	s.VocabSize = m.VocabSize
	s.Tokenizer, s.TokenizerErr = tokenizer.Load(dir, m.VocabSize)
	return s, nil
}

// dataStats prints data.Stats.
type dataStats struct{ data.Stats }

// WriteTable prints s for people.
func (s dataStats) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	row("kind", "%s%s", s.Kind, map[bool]string{true: ", packed"}[s.Packed])
	row("files", "%s", humanize.Comma(int64(s.Files)))
	row("documents", "%s", humanize.Comma(s.Documents))
	row("rows", "%s (%s to train on, %s held out)", humanize.Comma(int64(s.Rows)), humanize.Comma(int64(s.TrainRows)), humanize.Comma(int64(s.EvalRows)))
	row("tokens", "%s (%s supervised)", humanize.Comma(s.Tokens), humanize.Comma(s.Supervised))
	if s.VocabSize > 0 {
		row("vocabulary", "%s of %s ids are used", humanize.Comma(int64(s.VocabUsed)), humanize.Comma(int64(s.VocabSize)))
	} else {
		row("vocabulary", "%s ids are used", humanize.Comma(int64(s.VocabUsed)))
	}
	for _, n := range []struct {
		name string
		n    int64
	}{{"rows cut to max_seq_len", s.Truncated}, {"rows with nothing supervised", int64(s.Unused)},
		{"binary files skipped", int64(s.Binary)}, {"hidden files skipped", int64(s.Hidden)}} {
		if n.n > 0 {
			row(n.name, "%s", humanize.Comma(n.n))
		}
	}
	row("tokens of a document", "documents")
	for _, b := range s.Lengths {
		row(fmt.Sprintf("  %d to %d", b.From, b.To), "%s", humanize.Comma(b.Documents))
	}
	return t.Flush()
}
