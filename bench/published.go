package bench

import (
	_ "embed" // for published.json
	"encoding/json"
	"fmt"
	"io"

	"mt/model"
)

// publishedJSON has speeds that others have published, each with its source.
//
//go:embed published.json
var publishedJSON []byte

// Ways in which published figures count FLOPs or tokens.
const (
	countsTokens = "tokens"                       // tokens a second
	countsSix    = "6·params·tokens, padding too" // without attention
	countsUnsaid = "not said"
)

// PublishedFigure is a published speed of a system.
type PublishedFigure struct {
	System   string `json:"system"`
	Hardware string `json:"hardware"`
	Model    string `json:"model"`
	// RowTokens is the sequence length in tokens; 0: the source does not state it.
	RowTokens int     `json:"row_tokens,omitempty"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`   // TFLOP/s or tokens/s, over all GPUs
	Counts    string  `json:"counts"` // how the FLOPs are counted
	Note      string  `json:"note,omitempty"`
	Source    string  `json:"source"`
	// Figures derived from Value; 0 if the source does not state how it counted. ModelTFLOPS counts FLOPs as mt does.
	// Without a sequence length, ModelTFLOPS omits attention and is too low.
	TokensPerS  float64 `json:"tok_per_s,omitempty"`
	SixTFLOPS   float64 `json:"six_per_parameter_tflops,omitempty"`
	ModelTFLOPS float64 `json:"model_tflops,omitempty"`
}

// PublishedReport is the output of `mt bench train --published`.
type PublishedReport struct {
	Figures []PublishedFigure `json:"figures"`
}

// Published returns the published figures, as their sources counted them and as mt counts.
func Published() (*PublishedReport, error) {
	r := &PublishedReport{}
	if err := json.Unmarshal(publishedJSON, &r.Figures); err != nil {
		return nil, fmt.Errorf("bench: published figures: %w", err)
	}
	for i := range r.Figures {
		if err := r.Figures[i].convert(); err != nil {
			return nil, fmt.Errorf("bench: published figure %d: %w", i+1, err)
		}
	}
	return r, nil
}

// convert computes the derived figures of f from its Value.
func (f *PublishedFigure) convert() error {
	c, err := model.Preset(f.Model)
	if err != nil {
		return err
	}
	six := 6 * float64(c.Params())
	switch {
	case f.Counts == countsTokens && f.Unit == "tokens/s":
		f.TokensPerS = f.Value
	case f.Counts == countsSix && f.Unit == "TFLOP/s":
		f.TokensPerS = f.Value * 1e12 / six
	case f.Counts == countsUnsaid:
		return nil
	default:
		return fmt.Errorf("%s of %q are not known", f.Unit, f.Counts)
	}
	f.SixTFLOPS = f.TokensPerS * six / 1e12
	flops := c.FLOPs(1, 0)
	if f.RowTokens > 0 {
		flops = flopsPerToken(c, f.RowTokens)
	}
	f.ModelTFLOPS = f.TokensPerS * flops / 1e12
	return nil
}

// WriteTable prints r as a table.
func (r *PublishedReport) WriteTable(w io.Writer) error {
	if _, err := fmt.Fprint(w, "Published by others. Model TFLOP/s count as mt does: 6 for each parameter of a matrix product and token, attention\n"+
		"over the positions that are attended; with + the length of rows is not said, and attention is left out.\n\n"); err != nil {
		return err
	}
	rows := [][]string{{"system", "hardware", "model", "published", "counts", "tokens/s", "TFLOP/s, 6·params", "model TFLOP/s", "source"}}
	for _, f := range r.Figures {
		tokens, six, ours := "?", "?", "?"
		if f.TokensPerS > 0 {
			tokens, six, ours = fmt.Sprintf("%.0f", f.TokensPerS), fmt.Sprintf("%.1f", f.SixTFLOPS), fmt.Sprintf("%.1f", f.ModelTFLOPS)
			if f.RowTokens == 0 {
				ours += "+"
			}
		}
		source := f.Source
		if f.Note != "" {
			source += " (" + f.Note + ")"
		}
		rows = append(rows, []string{f.System, f.Hardware, f.Model, fmt.Sprintf("%g %s", f.Value, f.Unit), f.Counts, tokens, six, ours, source})
	}
	return writeTable(w, rows)
}
