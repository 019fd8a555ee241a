package train

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"mt/checkpoint"
	"mt/internal/files"
	"mt/internal/generate"
)

// LogitKeys are the keys of generation_config.json that mt generate obeys beside eos_token_id. nil: not given.
// Source: transformers.GenerationConfig.
type LogitKeys struct {
	RepetitionPenalty *float64 `json:"repetition_penalty"` // 1: none
	MinP              *float64 `json:"min_p"`              // of tokens that are sampled; 0: none
	MinNewTokens      *int     `json:"min_new_tokens"`
	SuppressTokens    []int32  `json:"suppress_tokens"`
}

// The bounds of RepetitionPenalty.
const (
	LeastPenalty = generate.LeastPenalty
	MostPenalty  = generate.MostPenalty
)

// addTo sets the fields of g that k or else file gives.
func (k LogitKeys) addTo(g *generate.Options, file LogitKeys) {
	g.RepetitionPenalty = valueOf(cmp.Or(k.RepetitionPenalty, file.RepetitionPenalty))
	g.MinP = valueOf(cmp.Or(k.MinP, file.MinP))
	g.MinNewTokens = valueOf(cmp.Or(k.MinNewTokens, file.MinNewTokens))
	if g.SuppressTokens = k.SuppressTokens; g.SuppressTokens == nil {
		g.SuppressTokens = file.SuppressTokens
	}
}

// valueOf returns *p, or zero if p is nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// check reports the first value that is out of its range.
func (k LogitKeys) check() error {
	switch p, share, least := k.RepetitionPenalty, valueOf(k.MinP), valueOf(k.MinNewTokens); {
	case p != nil && !(*p >= LeastPenalty && *p <= MostPenalty):
		return fmt.Errorf("repetition_penalty is %v; it is a number from %v to %v, 1 for none", *p, LeastPenalty, MostPenalty)
	case !(share >= 0 && share <= 1):
		return fmt.Errorf("min_p is %v; it is a number from 0 to 1, 0 for none", share)
	case least < 0:
		return fmt.Errorf("min_new_tokens is %d; it is a whole number of at least 0", least)
	}
	return nil
}

// logitKeys returns the keys of the generation_config.json in dir.
func logitKeys(dir string) (k LogitKeys, err error) {
	name, err := readGeneration(dir, &k)
	if err != nil {
		return k, err
	}
	if err := k.check(); err != nil {
		return k, fmt.Errorf("%s: %w", name, err)
	}
	return k, nil
}

// readGeneration reads the generation_config.json in dir, name, into v, and leaves v as it is if there is none.
func readGeneration(dir string, v any) (name string, err error) {
	if dir == "" {
		return "", nil
	}
	name = filepath.Join(dir, "generation_config.json")
	text, err := checkpoint.ReadCompanion(name)
	if errors.Is(err, fs.ErrNotExist) {
		return name, nil
	}
	if err != nil {
		return name, err
	}
	if err := files.Unmarshal(text, v); err != nil {
		return name, fmt.Errorf("%s: %w", name, err)
	}
	return name, nil
}
