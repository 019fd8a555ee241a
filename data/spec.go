package data

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"

	"mt/tokenizer"
)

// Spec says what a data set is made of.
type Spec struct {
	// Paths are files, directories and globs. "**" stands for any number of
	// directories, ${NAME} for a variable of the environment. The files of one
	// entry come in the order of their names; a file that several entries name
	// comes once, but for those of dataset_info.json, which are data sets of their
	// own.
	Paths []string
	// Dir is the directory that relative Paths are in; empty: the working
	// directory. A dataset_info.json there, as LLaMA-Factory has it, gives names
	// that Paths may hold.
	Dir string
	// Held takes, of a directory that has splits, those to evaluate with: validation,
	// else test. Else train is taken.
	Held bool
	// Hub finds a data set by its name on the Hub where Paths name no file: its
	// directory on this machine, "" where that is no such name, or an error that
	// says how to get it. It may be nil.
	Hub func(name string) (string, error)
	// Format is one of Formats; empty: auto.
	Format string
	// Tokenizer encodes text. It may be nil for input_ids; TokenizerErr then says
	// why, should there be text.
	Tokenizer    tokenizer.Tokenizer
	TokenizerErr error
	// VocabSize is the model's: ids must be below it. 0: the tokenizer's.
	VocabSize int
	// Template is the chat template: a file, one of the built-in names (see
	// Templates), or empty for that of the model in ModelDir.
	Template string
	ModelDir string
	// TemplateVars are handed to the chat template by name, as chat_template_kwargs
	// says them: nil, bool, int64, float64, string, []any and map[string]any.
	TemplateVars map[string]any
	// Columns names the parts of rows that have other names than usual.
	Columns Columns
	// MaskHistory supervises the last turn of a chat alone, TrainOnPrompt all of
	// it.
	MaskHistory, TrainOnPrompt bool
	// SkipBadRows counts rows that cannot be read and goes on; else the first is
	// an error.
	SkipBadRows bool
	// MixStrategy says how several data sets (each of Paths is one) come one
	// after the other: concat (or empty), interleave_under, interleave_over, as in
	// LLaMA-Factory. InterleaveProbs is each data set's share; empty: equal.
	MixStrategy     string
	InterleaveProbs []float64
	// MaxSamples is how many documents of each data set are taken at most, from
	// its start; 0: all.
	MaxSamples int64
	// MaxSeqLen is the most tokens of a row, at least 2; 0: 2048.
	MaxSeqLen int
	// Packing lays documents one after the other into rows of MaxSeqLen. nil: yes
	// for text and chats, no for input_ids. Chats are never split.
	Packing *bool
	// Seed gives the order of rows, where Shuffle is set, and chooses ValSize.
	Seed    int64
	Shuffle bool
	// ValSize is what Eval gets: below 1 a share of the rows, else their number.
	ValSize float64
	// CacheDir holds token caches; empty: the user's cache folder.
	CacheDir string
	// Threads tokenise; 0: one a core. The result does not depend on it.
	Threads int
	// Progress is told, now and then, how many bytes of how many are done; what
	// names the work. It may be nil.
	Progress func(done, total int64, what string)
	// Stop, when closed, ends the reading with ErrStopped. It may be nil.
	Stop <-chan struct{}

	sets  []dataSet // what Paths name
	notes []string  // on how they were read
	chat  chatForm  // how chats are written
	part  int64     // bytes of the sources between two commits; 0: partBytes
}

// ErrStopped is the error of an Open that Spec.Stop has ended. What it has
// tokenised so far stays in the cache folder, and the next Open goes on there.
var ErrStopped = errors.New("reading the data was stopped")

// SpecError says that the Spec itself is wrong, not what its files hold: a file
// that is not there, a value that is impossible.
type SpecError struct {
	Key string // the configuration's that is wrong; empty: the one that names the files
	err error
}

func (e *SpecError) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *SpecError) Unwrap() error { return e.err }

// asSpecError is err as a SpecError.
func asSpecError(err error) error {
	if _, ok := err.(*SpecError); ok {
		return err
	}
	return &SpecError{err: err}
}

const defaultMaxSeqLen = 2048

// Formats are the values of Spec.Format. auto goes by a file's name and its
// first row; text takes files as they are; jsonl, parquet and csv (or TSV) say
// how rows are kept; the others say what a row holds, in whatever keeps it.
var Formats = []string{"auto", "text", "jsonl", "parquet", "csv", "alpaca", "sharegpt", "messages", "prompt_completion"}

// resolved is s with defaults filled in, or what is wrong with it.
func (s Spec) resolved() (Spec, error) {
	if len(s.Paths) == 0 {
		return s, errors.New("no files are given")
	}
	if s.Format == "" {
		s.Format = "auto"
	}
	if !slices.Contains(Formats, s.Format) {
		return s, fmt.Errorf("dataset_format %q is unknown; it is one of %s", s.Format, strings.Join(Formats, ", "))
	}
	if err := s.checkMix(); err != nil {
		return s, err
	}
	if err := s.checkColumns(); err != nil {
		return s, err
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
	if s.Threads < 1 {
		s.Threads = runtime.GOMAXPROCS(0)
	}
	if s.part == 0 {
		s.part = partBytes
	}
	if err := s.resolveVocab(); err != nil {
		return s, err
	}
	if s.chat = newChatForm(&s); s.chat.err != nil && s.Template != "" {
		return s, &SpecError{"template", s.chat.err}
	}
	return s, nil
}

func (s *Spec) resolveVocab() error {
	if s.Tokenizer != nil && s.VocabSize == 0 {
		s.VocabSize = s.Tokenizer.VocabSize()
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
