package data

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"mt/data/tokenizer"
)

// Spec says what a data set is made of.
type Spec struct {
	// Paths are files, directories and globs. "**" stands for any number of
	// directories, ${NAME} for a variable of the environment. The files of one
	// entry come in the order of their names; a file that several entries name
	// comes once.
	Paths []string
	// Dir is the directory that relative Paths are in; empty: the working
	// directory.
	Dir string
	// Format is auto (or empty), text or jsonl. auto takes *.jsonl and *.json for
	// jsonl and all else for text.
	Format string
	// Tokenizer encodes text. It may be nil for input_ids; TokenizerErr then says
	// why, should there be text.
	Tokenizer    tokenizer.Tokenizer
	TokenizerErr error
	// VocabSize is the model's: ids must be below it. 0: the tokenizer's.
	VocabSize int
	// MaxSeqLen is the most tokens of a row, at least 2; 0: 2048.
	MaxSeqLen int
	// Packing lays documents one after the other into rows of MaxSeqLen. nil: yes
	// for text, no for input_ids.
	Packing *bool
	// Seed gives the order of rows, where Shuffle is set, and chooses ValSize.
	Seed    int64
	Shuffle bool
	// ValSize is what Eval gets: below 1 a share of the rows, else their number.
	ValSize float64
	// CacheDir holds token caches; empty: the user's cache folder.
	CacheDir string
	// Progress is told, now and then, how many bytes of how many are done; what
	// names the work. It may be nil.
	Progress func(done, total int64, what string)
	// Stop, when closed, ends the reading with ErrStopped. It may be nil.
	Stop <-chan struct{}
}

// ErrStopped is the error of an Open that Spec.Stop has ended. Nothing of it
// stays.
var ErrStopped = errors.New("reading the data was stopped")

// SpecError says that the Spec itself is wrong, not what its files hold: a file
// that is not there, a value that is impossible.
type SpecError struct{ err error }

func (e *SpecError) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *SpecError) Unwrap() error { return e.err }

const defaultMaxSeqLen = 2048

// notYet are formats that are known by name.
var notYet = []string{"alpaca", "sharegpt", "messages", "parquet"}

// resolved is s with defaults filled in, or what is wrong with it.
func (s Spec) resolved() (Spec, error) {
	if len(s.Paths) == 0 {
		return s, errors.New("no files are given")
	}
	switch {
	case s.Format == "":
		s.Format = "auto"
	case slices.Contains(notYet, s.Format):
		return s, fmt.Errorf("dataset_format %s is not supported yet; text and jsonl (rows with text, or with input_ids and labels) are", s.Format)
	case !slices.Contains([]string{"auto", "text", "jsonl"}, s.Format):
		return s, fmt.Errorf("dataset_format %q is unknown; it is one of auto, text, jsonl", s.Format)
	}
	if s.MaxSeqLen == 0 {
		s.MaxSeqLen = defaultMaxSeqLen
	}
	if s.MaxSeqLen < 2 {
		return s, fmt.Errorf("max_seq_len is %d; a row takes at least 2 tokens, one to see and one to predict", s.MaxSeqLen)
	}
	if v := s.ValSize; !(v >= 0) || math.IsInf(v, 0) || v > 1 && v != math.Trunc(v) {
		return s, fmt.Errorf("val_size is %v; it is a share of the rows below 1, or a whole number of rows", v)
	}
	return s, s.resolveVocab()
}

func (s *Spec) resolveVocab() error {
	if s.Tokenizer != nil {
		n := s.Tokenizer.VocabSize()
		if s.VocabSize == 0 {
			s.VocabSize = n
		}
		if s.VocabSize < n {
			s.TokenizerErr = fmt.Errorf("the model's vocabulary has %d tokens and the tokenizer's %d; give input_ids, or set vocab_size to at least %d", s.VocabSize, n, n)
			s.Tokenizer = nil
		}
	}
	if s.VocabSize < 1 || s.VocabSize > math.MaxInt32 {
		return fmt.Errorf("a vocabulary of %d tokens is impossible", s.VocabSize)
	}
	return nil
}

// tokenizerFor is the tokenizer, which text at where needs.
func (s *Spec) tokenizerFor(where string) (tokenizer.Tokenizer, error) {
	switch {
	case s.Tokenizer != nil:
		return s.Tokenizer, nil
	case s.TokenizerErr != nil:
		return nil, fmt.Errorf("%s: text needs a tokenizer: %w", where, s.TokenizerErr)
	}
	return nil, fmt.Errorf("%s: text needs a tokenizer, and there is none; give input_ids (JSONL) instead", where)
}

// tokenizerID is the tokenizer's part in a cache's key.
func (s *Spec) tokenizerID() string {
	if s.Tokenizer == nil {
		return "none"
	}
	return s.Tokenizer.ID()
}

// stopped tells whether Stop is closed.
func (s *Spec) stopped() bool {
	select {
	case <-s.Stop:
		return true
	default:
		return false
	}
}

func (s *Spec) progress(done, total int64, what string) {
	if s.Progress != nil {
		s.Progress(done, total, what)
	}
}

// isJSONL tells whether the file is read as rows.
func (s *Spec) isJSONL(path string) bool {
	if s.Format != "auto" {
		return s.Format == "jsonl"
	}
	path = strings.ToLower(path)
	return strings.HasSuffix(path, ".jsonl") || strings.HasSuffix(path, ".json")
}
