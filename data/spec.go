package data

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"mt/data/tokenizer"
)

// dataSet is one of Spec.Paths or Spec.Sets: files, and how their rows are read.
type dataSet struct {
	Name    string
	Format  format   // the format of all its rows; empty: each file's first row decides
	Columns *columns // nil: the usual ones of Format
	Names   *columns // of pairs: those that are given; the others are recognised in each row
	// Samples is how many documents are taken. The seed chooses them, and where there are
	// fewer some come more than once. 0: all.
	Samples int64
	Split   split
	Kept    string // how files keep rows, one of Builders; empty: their names tell
}

// split is a range of a data set's rows, as Hugging Face writes it: "train" or
// "train[10:20%]".
type split struct {
	From, To               int64
	FromPercent, ToPercent bool
	Cut                    bool // a range is given; else all rows
	// Shards is into how many pieces that range is cut, and Shard which of them is taken; 0: it is whole.
	Shards, Shard int64
}

var splitText = regexp.MustCompile(`^train(\[(\d*)(%?):(\d*)(%?)\])?$`)

func parseSplit(s string) (p split, err error) {
	m := splitText.FindStringSubmatch(s)
	if m == nil {
		return p, fmt.Errorf("split is %q; a local file has train alone, or a part of it, as in \"train[:1000]\" or \"train[10%%:20%%]\"", s)
	}
	if m[1] == "" {
		return p, nil
	}
	p = split{Cut: true, FromPercent: m[3] != "", ToPercent: m[5] != "" || m[4] == ""}
	if p.From, err = number(m[2], 0); err != nil {
		return p, fmt.Errorf("split is %q: %w", s, err)
	}
	if p.To, err = number(m[4], 100); err != nil {
		return p, fmt.Errorf("split is %q: %w", s, err)
	}
	return p, nil
}

func number(s string, empty int64) (int64, error) {
	if s == "" {
		return empty, nil
	}
	return strconv.ParseInt(s, 10, 62)
}

// of is the range [from, to) that the split takes of n rows.
func (p split) of(n int64) (from, to int64) {
	if !p.Cut {
		return p.shard(0, n)
	}
	at := func(v int64, percent bool) int64 {
		if percent {
			v = int64(float64(min(v, 100)) / 100 * float64(n))
		}
		return min(v, n)
	}
	from, to = at(p.From, p.FromPercent), at(p.To, p.ToPercent)
	return p.shard(from, max(from, to))
}

// shard is the piece of the range [from, to) that is taken. The first pieces are longer by a
// row where they cannot all have the same length. Source: Dataset.shard of Hugging Face's datasets,
// which are contiguous.
func (p split) shard(from, to int64) (first, end int64) {
	if p.Shards == 0 {
		return from, to
	}
	n := to - from
	size, longer := n/p.Shards, n%p.Shards
	first = from + size*p.Shard + min(p.Shard, longer)
	if end = first + size; p.Shard < longer {
		end++
	}
	return first, end
}

// upTo is the number of rows from the start behind which none is taken, where the first most rows
// of the range are; most 0: the whole range. It is 0 where that depends on how many rows there are.
func (p split) upTo(most int64) int64 {
	switch {
	case p.Shards > 0, p.Cut && p.FromPercent && p.From > 0, p.Cut && p.ToPercent && p.To < 100:
		return 0
	case !p.Cut:
		return most
	case p.ToPercent && most == 0:
		return 0
	case p.ToPercent:
		return p.From + most
	case most == 0:
		return p.To
	}
	return min(p.To, p.From+most)
}

// documentLimit is how many documents from a data set's start are needed; 0: all. No more are read. Of several
// data sets of pairs all are, since a pair's ID counts the pairs of the data sets before its own.
func (s *Spec) documentLimit(set int) int64 {
	if len(s.sets) > 1 && (s.Pairs || s.Format == string(fmtPairs) || s.sets[set].Format == fmtPairs) {
		return 0
	}
	return s.sets[set].Split.upTo(s.MaxSamples)
}

// whole tells whether all rows are taken.
func (p split) whole() bool { return !p.Cut && p.Shards == 0 }

const (
	mixConcat = "concat"
	mixUnder  = "interleave_under"
	mixOver   = "interleave_over"
)

// Mixes are the values of Spec.MixStrategy.
var Mixes = []string{mixConcat, mixUnder, mixOver}

// checkMix checks what the Spec says about mixing several data sets.
func (s *Spec) checkMix() error {
	if s.MixStrategy == "" {
		s.MixStrategy = mixConcat
	}
	if !slices.Contains(Mixes, s.MixStrategy) {
		return fmt.Errorf("mix_strategy %q is unknown; it is one of %s", s.MixStrategy, strings.Join(Mixes, ", "))
	}
	wrong := func(format string, args ...any) error {
		return &SpecError{"interleave_probs", fmt.Errorf("interleave_probs "+format, args...)}
	}
	p := s.InterleaveProbs
	switch {
	case len(p) == 0:
		return nil
	case s.MixStrategy == mixConcat:
		return wrong("is given and mix_strategy is %s, which takes each data set once; set %s or %s", mixConcat, mixUnder, mixOver)
	case len(p) != len(s.entries()):
		return wrong("has %d values and dataset %d entries; give each one", len(p), len(s.entries()))
	}
	var sum float64
	for _, v := range p {
		if !(v > 0 && v <= 1) {
			return wrong("has %v; a share is above 0 and at most 1", v)
		}
		sum += v
	}
	if sum < 0.999 || sum > 1.001 { // 0.333 written three times is near enough
		return wrong("sum up to %v; they must to 1", sum)
	}
	return nil
}

// Set is a data set with keys of its own.
type Set struct {
	// Path is what an entry of Spec.Paths is; or one of Builders, where Files are given.
	Path string
	// Config is the config of a data set's card; empty: the default one.
	Config string
	// Files are files and patterns, in Path where that is a directory or a data set of the
	// Hub; empty: all.
	Files []string
	// Split is the split that is taken, or a part of it, as in "train[:10%]"; empty: train,
	// and of what is evaluated with, validation, else test.
	Split string
	// Shards is into how many pieces of about the same length the set is cut, and Shard
	// which of them is taken, from 0; Shards 0: it is taken whole.
	Shards, Shard int
	// Kept says how files keep rows, whatever their names say: one of Builders; empty: the
	// names tell.
	Kept string
	// Format is what rows hold, one of SetFormats; empty: the fields that are given tell,
	// else each file's first row.
	Format string
	// Fields are names of columns, and of what messages have, by what they are: those of
	// FieldNames. Those that are not given have their usual names.
	Fields map[string]string
	// Roles are further names that messages have for the roles of templates.
	Roles map[string]string

	hub bool // Path is a data set of the Hub
}

// Builders are the words for ways to keep rows in files.
var Builders = []string{"json", "csv", "parquet", "arrow", "text"}

// SetFormats are the values of Set.Format.
var SetFormats = []string{string(fmtText), string(fmtMessages), string(fmtShareGPT), string(fmtAlpaca), string(fmtPrompt), string(fmtPairs)}

// fieldOf gives where in columns a field of a Set goes.
var fieldOf = map[string]func(*columns) *string{
	"text":        func(c *columns) *string { return &c.Text },
	"messages":    func(c *columns) *string { return &c.Messages },
	"instruction": func(c *columns) *string { return &c.Prompt },
	"input":       func(c *columns) *string { return &c.Query },
	"output":      func(c *columns) *string { return &c.Response },
	"system":      func(c *columns) *string { return &c.System },
	"tools":       func(c *columns) *string { return &c.Tools },
	"role":        func(c *columns) *string { return &c.Role },
	"content":     func(c *columns) *string { return &c.Content },
	"prompt":      func(c *columns) *string { return &c.Prompt },
	"chosen":      func(c *columns) *string { return &c.Chosen },
	"rejected":    func(c *columns) *string { return &c.Rejected },
}

// FieldNames are the keys of Set.Fields.
var FieldNames = slices.Sorted(maps.Keys(fieldOf))

// fieldsIn are, for each format, the fields that its rows have.
var fieldsIn = map[format][]string{
	fmtText:     {"text"},
	fmtMessages: {"messages", "system", "tools", "role", "content"}, fmtShareGPT: {"messages", "system", "tools", "role", "content"},
	fmtAlpaca: {"instruction", "input", "output", "system", "tools"},
	fmtPrompt: {"instruction", "output", "system", "tools"},
	fmtPairs:  {"prompt", "instruction", "input", "messages", "chosen", "rejected", "system", "tools", "role", "content"},
}

// format is the format of a set's rows: the one that is given, or that of its fields. It is
// empty where each file's first row decides.
func (s *Set) format() format {
	has := func(name string) bool { return s.Fields[name] != "" }
	switch {
	case s.Format != "":
		return format(s.Format)
	case has("prompt") || has("chosen") || has("rejected"):
		return fmtPairs
	case has("messages") || has("role") || has("content") || len(s.Roles) > 0:
		return fmtMessages
	case has("input"):
		return fmtAlpaca
	case has("instruction") || has("output"):
		return fmtPrompt
	case has("text"):
		return fmtText
	}
	return ""
}

// Check is an error where s contradicts itself.
func (s *Set) Check() error {
	f := s.format()
	switch {
	case s.Path == "":
		return errors.New("path is missing: give a file, a folder, a pattern or a name on the Hub")
	case s.Format != "" && !slices.Contains(SetFormats, s.Format):
		return fmt.Errorf("type %q is unknown; it is one of %s", s.Format, strings.Join(SetFormats, ", "))
	case s.Kept != "" && !slices.Contains(Builders, s.Kept):
		return fmt.Errorf("ds_type %q is unknown; it is one of %s", s.Kept, strings.Join(Builders, ", "))
	case slices.Contains(Builders, s.Path) && len(s.Files) == 0:
		return fmt.Errorf("path %q says how files keep rows: name the files in data_files, or in path", s.Path)
	case s.Shards < 0 || s.Shard < 0 || s.Shards == 0 && s.Shard > 0 || s.Shards > 0 && s.Shard >= s.Shards:
		return fmt.Errorf("shards_idx is %d of %d shards; it is from 0 to one less than their number", s.Shard, s.Shards)
	}
	if s.Fields["prompt"] != "" && s.Fields["instruction"] != "" {
		return errors.New("the fields prompt and instruction both name the prompt; a text in instruction is the user's turn, one in prompt is taken as it is: give one of them")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Fields)) {
		switch {
		case s.Fields[name] == "":
		case f == "":
			return fmt.Errorf("the field %s says nothing of what rows hold: give type, one of %s", name, strings.Join(SetFormats, ", "))
		case !slices.Contains(fieldsIn[f], name):
			return fmt.Errorf("the field %s has no place in type %s, whose rows have %s", name, f, strings.Join(fieldsIn[f], ", "))
		}
	}
	if len(s.Roles) > 0 && f != fmtMessages && f != fmtShareGPT && f != fmtPairs {
		return fmt.Errorf("roles have no place in type %s, whose rows have no messages", f)
	}
	return nil
}

// columns are the names of the columns of a set's rows; nil where each file's first row
// decides, and of pairs.
func (s *Set) columns() *columns {
	f := s.format()
	if f == "" || f == fmtPairs {
		return nil
	}
	c := columnsOf(f)
	for name, column := range s.Fields {
		if column != "" {
			*fieldOf[name](c) = column
		}
	}
	if f == fmtMessages || f == fmtShareGPT { // whichever names the fields of messages have
		c.Roles = anyRoles()
		maps.Copy(c.Roles, s.Roles)
	}
	return c
}

// names are the columns of pairs that are given; nil where rows are no pairs.
func (s *Set) names() *columns {
	if s.format() != fmtPairs {
		return nil
	}
	c := &columns{Roles: s.Roles, Turn: s.Fields["instruction"] != "" || s.Fields["input"] != ""}
	for name, column := range s.Fields {
		if column != "" {
			*fieldOf[name](c) = column
		}
	}
	return c
}

// plain tells whether nothing but a path is given.
func (s *Set) plain() bool {
	return s.Config == "" && len(s.Files) == 0 && s.Split == "" && s.Shards == 0 && s.Kept == "" && s.format() == ""
}

// dataSet is what s says of its rows.
func (s *Set) dataSet() (set dataSet, err error) {
	set = dataSet{Name: s.Path, Format: s.format(), Columns: s.columns(), Names: s.names(), Kept: s.Kept}
	if slices.Contains(Builders, s.Path) {
		set.Kept = cmp.Or(s.Kept, s.Path)
	}
	if s.Split != "" {
		_, set.Split, err = splitPart(s.Split)
	}
	set.Split.Shards, set.Split.Shard = int64(s.Shards), int64(s.Shard)
	return set, err
}

// wanted is the split that is taken of a directory; "" where it goes by what the data is for.
func (s *Set) wanted() string {
	word, _, _ := splitPart(s.Split) // dataSet has reported what is wrong with it
	return word
}

var anySplit = regexp.MustCompile(`^(\w[\w.-]*)(\[.*\])?$`)

// splitPart cuts a split such as "validation[:10%]" into its name and the part of it.
func splitPart(s string) (word string, part split, err error) {
	m := anySplit.FindStringSubmatch(s)
	if m == nil {
		return "", part, fmt.Errorf("split is %q; it is a split's name, or a part of one, as in \"train[:1000]\" or \"train[10%%:20%%]\"", s)
	}
	part, err = parseSplit("train" + m[2])
	if err != nil {
		return "", part, fmt.Errorf("split is %q; a part of one is written as in \"%s[:1000]\" or \"%[2]s[10%%:20%%]\"", s, m[1])
	}
	return m[1], part, nil
}

// files lists the files that a set names in dir, where its path is a directory.
func (s *Set) filesIn(dir string) ([]source, error) {
	w := walker{}
	for _, given := range s.Files {
		pattern, err := localPath(given)
		if err != nil {
			return nil, fmt.Errorf("data_files: %w", err)
		}
		if dir != "" && !filepath.IsLocal(pattern) {
			return nil, fmt.Errorf("data_files has %q, which is not in %s", pattern, dir)
		}
		name := pattern
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		name, err = filepath.Abs(name)
		if err != nil {
			return nil, err
		}
		before := len(w.found)
		if err := w.glob("/", strings.Split(filepath.ToSlash(name), "/")[1:]); err != nil {
			return nil, err
		}
		if len(w.found) == before {
			return nil, w.nothing("data_files has %q, and no file matches %s", pattern, name)
		}
	}
	return w.sorted(), nil
}

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

// tokenizerID stands for the tokenizer in the key of a token cache.
func (s *Spec) tokenizerID() string {
	if s.Tokenizer == nil {
		return "none"
	}
	return s.Tokenizer.ID()
}
