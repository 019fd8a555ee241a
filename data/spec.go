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
	// Paths are files, directories and globs. "**" stands for any number of directories,
	// ${NAME} for a variable of the environment. Each entry is a data set, whose files
	// come in the order of their names. A file that several entries name comes once,
	// unless the entries are names of dataset_info.json: these are data sets of their own.
	Paths []string
	// Sets are data sets with keys of their own, in place of Paths.
	Sets []Set
	// Dir is the directory that relative Paths are in; empty: the working directory. It
	// may hold a dataset_info.json, as LLaMA-Factory has it, whose names Paths may use.
	Dir string
	// Held says that the data is evaluated with. Of a directory with splits it takes
	// validation, else test; without Held train is taken.
	Held bool
	// Hub finds a data set of the Hub on this machine, where an entry of Paths is no
	// file. It returns the data set's directory, or "" where name cannot be one, or an
	// error that says how to get it. Hub may be nil.
	Hub func(name string) (string, error)
	// Format is one of Formats; empty: auto.
	Format string
	// Tokenizer encodes text. It may be nil where there are only input_ids; TokenizerErr
	// then says why there is none, for the error if there is text after all.
	Tokenizer    tokenizer.Tokenizer
	TokenizerErr error
	// VocabSize is the model's number of rows: ids must be below it. 0: the tokenizer's.
	VocabSize int
	// Template is the chat template: a file or one of Templates; empty: that of the model
	// in ModelDir.
	Template string
	ModelDir string
	// TemplateVars are given to the chat template by name. Values have the types of
	// chat_template_kwargs: nil, bool, int64, float64, string, []any, map[string]any.
	TemplateVars map[string]any
	// Columns names the columns of rows that have other names than usual.
	Columns Columns
	// Pairs says that rows are pairs of answers to a prompt. Without it they are where nothing
	// else is recognised in them, or where Format or a Set's says so.
	Pairs bool
	// MaskHistory supervises the last turn of a chat alone. TrainOnPrompt supervises
	// everything.
	MaskHistory, TrainOnPrompt bool
	// SkipBadRows counts rows that cannot be read, and goes on. Without it the first such
	// row is an error.
	SkipBadRows bool
	// MixStrategy says how several data sets (each entry of Paths is one) are mixed:
	// concat (or empty), interleave_under, interleave_over, as in LLaMA-Factory.
	// InterleaveProbs are their shares; empty: equal.
	MixStrategy     string
	InterleaveProbs []float64
	// MaxSamples is how many documents of each data set are taken at most, from
	// its start; 0: all.
	MaxSamples int64
	// MaxSeqLen is how many tokens a row has at most, at least 2; 0 means 2048. Of a pair each
	// of the two documents has at most so many, and a row twice as many.
	MaxSeqLen int
	// Packing puts several documents into a row of MaxSeqLen. nil: yes for text and
	// chats, no for input_ids and pairs, each of which then is a row. Chats and pairs are never split.
	Packing *bool
	// Seed decides the order of rows, where Shuffle is set, and which rows Eval has.
	Seed    int64
	Shuffle bool
	// ValSize is how many rows Eval has: below 1 a share of all rows, else their number.
	ValSize float64
	// CacheDir holds token caches; empty: the user's cache folder.
	CacheDir string
	// Threads is how many goroutines tokenise; 0: one a core. The result does not depend on it.
	Threads int
	// Progress is called now and then with how many bytes of how many are done; what
	// names the work. It may be nil.
	Progress func(done, total int64, what string)
	// Stop ends the reading, with ErrStopped, when it is closed. It may be nil.
	Stop <-chan struct{}

	sets  []dataSet // the data sets, one for each of Paths or Sets
	notes []string  // what a user should know of how they were found
	chat  chatForm  // how chats are turned into text
	part  int64     // bytes of the sources between two commits; 0: partBytes
}

// ErrStopped is the error of Open when Spec.Stop has ended it. What is tokenised so far
// stays in the cache folder, and the next Open goes on from there.
var ErrStopped = errors.New("reading the data was stopped")

// SpecError says that the Spec itself is wrong, and not what is in its files: that a file is
// not there, or that a value is impossible.
type SpecError struct {
	Key string // the key of the configuration that is wrong; empty: the one that names the files
	err error
}

func (e *SpecError) Error() string { return e.err.Error() }

// Unwrap is what was wrong.
func (e *SpecError) Unwrap() error { return e.err }

// asSpecError is err as a SpecError, unless it is one already.
func asSpecError(err error) error {
	if _, ok := err.(*SpecError); ok {
		return err
	}
	return &SpecError{err: err}
}

const defaultMaxSeqLen = 2048

// Formats are the values of Spec.Format. auto goes by a file's name and its first row. text
// takes files as they are. jsonl, parquet and csv (or TSV) say how files keep rows. The others
// say what a row holds, whichever way files keep rows.
var Formats = []string{"auto", "text", "jsonl", "parquet", "csv", "alpaca", "sharegpt", "messages", "prompt_completion", "pairs"}

// resolved is s with defaults filled in. The error says what is wrong with s.
func (s Spec) resolved() (Spec, error) {
	for i := range s.Sets {
		if err := s.Sets[i].Check(); err != nil {
			return s, &SpecError{"datasets", fmt.Errorf("datasets[%d]: %w", i, err)}
		}
	}
	if len(s.entries()) == 0 {
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

// entries are the data sets: Sets, or Paths as such.
func (s *Spec) entries() []Set {
	if len(s.Sets) > 0 {
		return s.Sets
	}
	out := make([]Set, len(s.Paths))
	for i, path := range s.Paths {
		out[i].Path = path
	}
	return out
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

// tokenizerFor is the tokenizer. It is an error where there is none; where says for that
// error where the text is that needs it.
func (s *Spec) tokenizerFor(where string) (tokenizer.Tokenizer, error) {
	switch {
	case s.Tokenizer != nil:
		return s.Tokenizer, nil
	case s.TokenizerErr != nil:
		return nil, fmt.Errorf("%s: text needs a tokenizer: %w", where, s.TokenizerErr)
	}
	return nil, fmt.Errorf("%s: text needs a tokenizer, and there is none; give input_ids (JSONL) instead", where)
}

// tokenizerID stands for the tokenizer in the key of a token cache.
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
