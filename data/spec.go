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

// dataSet is one entry of Spec.Paths or Spec.Sets: a data set's files and how their rows are read.
type dataSet struct {
	Name    string
	Format  format   // format of all rows; "": each file's first row decides
	Columns *columns // nil: the usual columns of Format
	Names   *columns // of pairs: configured names; names of other columns are recognised in each row
	// Samples is the number of documents to take, chosen by the seed; 0: all. If the data set has fewer
	// documents, some are taken more than once.
	Samples int64
	Split   split
	Kept    string // container of the rows, one of Builders; "": by file name
}

// split is a range of a data set's rows, written as in Hugging Face's "train[10:20%]". From and To
// are numbers of rows; if FromPercent or ToPercent is set, the number is a percentage of all rows.
type split struct {
	From, To               int64
	FromPercent, ToPercent bool
	Cut                    bool // a range is given; otherwise all rows
	// Shards is the number of pieces of the range, and Shard the piece to take; 0: the whole range.
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

// of returns the range [from, to) of rows that the split takes from a data set of n rows.
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

// shard returns the piece number p.Shard of the range [from, to), cut into p.Shards pieces. If the pieces cannot be
// equal, the first ones have one more row each. Source: Dataset.shard of Hugging Face datasets, contiguous.
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

// upTo returns how many rows of the data set must be read to get at most `most` rows of the split. most 0: all rows of
// the split. It returns 0 if the number depends on the length of the data set, because then all rows must be read.
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

// documentLimit returns how many documents of data set number set must be read, from its start; 0: all. If there are
// several data sets of pairs, each is read completely, since a pair's ID counts all pairs of the data sets before.
func (s *Spec) documentLimit(set int) int64 {
	if len(s.sets) > 1 && (s.Pairs || s.Format == string(fmtPairs) || s.sets[set].Format == fmtPairs) {
		return 0
	}
	return s.sets[set].Split.upTo(s.MaxSamples)
}

// whole reports whether the split takes all rows.
func (p split) whole() bool { return !p.Cut && p.Shards == 0 }

const (
	mixConcat = "concat"
	mixUnder  = "interleave_under"
	mixOver   = "interleave_over"
)

// Mixes are the values of Spec.MixStrategy.
var Mixes = []string{mixConcat, mixUnder, mixOver}

// checkMix returns an error if the Spec's settings for mixing data sets contradict each other, and sets their
// defaults.
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
	if sum < 0.999 || sum > 1.001 { // allows 0.333 three times
		return wrong("sum up to %v; they must to 1", sum)
	}
	return nil
}

// Set is a data set with settings of its own, beside the settings of the Spec.
type Set struct {
	// Path is like an entry of Spec.Paths. If Files are given, it may also be one of Builders, which then says
	// how the files store rows.
	Path string
	// Config names a config (a choice of files) in the data set's card; "": the default config.
	Config string
	// Files are files and patterns inside Path, if Path is a directory or a data set of the Hub; empty: all files.
	Files []string
	// Split is the split to take, or a part of it such as "train[:10%]". "": train; for evaluation validation or,
	// if that is missing, test.
	Split string
	// Shards is the number of pieces of about equal length, and Shard the piece to take, from 0. Shards 0: the
	// whole set.
	Shards, Shard int
	// Kept is one of Builders and says how the files store rows, whatever their names; "": the names decide.
	Kept string
	// Format is the content of rows, one of SetFormats. "": the fields that Fields names decide, otherwise each
	// file's first row.
	Format string
	// Fields maps keys in FieldNames to the names of columns and of message fields. A key that is missing means
	// the usual name.
	Fields map[string]string
	// Roles maps further names of roles in messages to the roles that templates use.
	Roles map[string]string

	hub bool // Path names a data set of the Hugging Face Hub
}

// Builders are the names that Hugging Face's datasets gives to the ways in which files store rows.
var Builders = []string{"json", "csv", "parquet", "arrow", "text"}

// SetFormats are the values of Set.Format.
var SetFormats = []string{string(fmtText), string(fmtMessages), string(fmtShareGPT), string(fmtAlpaca), string(fmtPrompt), string(fmtPairs)}

// fieldOf maps each key of Set.Fields to the field of columns that it sets.
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

// fieldsIn lists, for each format, the keys of Set.Fields that its rows have.
var fieldsIn = map[format][]string{
	fmtText:     {"text"},
	fmtMessages: {"messages", "system", "tools", "role", "content"}, fmtShareGPT: {"messages", "system", "tools", "role", "content"},
	fmtAlpaca: {"instruction", "input", "output", "system", "tools"},
	fmtPrompt: {"instruction", "output", "system", "tools"},
	fmtPairs:  {"prompt", "instruction", "input", "messages", "chosen", "rejected", "system", "tools", "role", "content"},
}

// format returns the format of the set's rows: Format itself, or the format to which the fields in Fields belong. "":
// each file's first row decides.
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

// Check returns an error if settings of s contradict each other.
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

// columns returns the names of the rows' columns, as the set's keys give them. nil: each file's first row decides, or
// rows are pairs (see names).
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
	if f == fmtMessages || f == fmtShareGPT { // accept either naming of message fields
		c.Roles = anyRoles()
		maps.Copy(c.Roles, s.Roles)
	}
	return c
}

// names returns the configured names of the columns of pairs; nil: the rows are not pairs.
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

// plain reports whether the set has a path and no other key.
func (s *Set) plain() bool {
	return s.Config == "" && len(s.Files) == 0 && s.Split == "" && s.Shards == 0 && s.Kept == "" && s.format() == ""
}

// dataSet returns s as a dataSet, with its split parsed. An error means that the split is malformed.
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

// wanted returns the name of the split to take from a directory; "": none is configured, and Spec.Held decides.
func (s *Set) wanted() string {
	word, _, _ := splitPart(s.Split) // dataSet has reported errors
	return word
}

var anySplit = regexp.MustCompile(`^(\w[\w.-]*)(\[.*\])?$`)

// splitPart cuts a split such as "validation[:10%]" into its name and its range of rows.
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

// filesIn lists the files that the key files of a set names. Relative names and patterns are relative to dir; dir "":
// to the working directory.
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

// Spec describes a data set.
type Spec struct {
	// Paths are files, directories and globs. "**" matches any number of directories; ${NAME} is an environment
	// variable. Each entry is a data set, with files in the order of their names. A file named by several entries
	// is read once, except for entries that name data sets of dataset_info.json.
	Paths []string
	// Sets are data sets with their own keys. They replace Paths.
	Sets []Set
	// Dir is the directory of relative Paths; "": the working directory. Its dataset_info.json, as in
	// LLaMA-Factory, defines names that Paths may use.
	Dir string
	// Held reports that the data is for evaluation. A directory with splits then gives its validation split,
	// otherwise its test split. Without Held it gives its train split.
	Held bool
	// Hub looks for a data set of the Hugging Face Hub on this machine, for an entry of Paths that is not a file.
	// It returns the data set's directory, "" if name cannot be a data set's, or an error that says how to
	// download it. nil: do not look.
	Hub func(name string) (string, error)
	// Format is one of Formats; "": auto.
	Format string
	// Tokenizer encodes text. It may be nil if all rows are input_ids. TokenizerErr then says why it is nil; it
	// becomes part of the error if there is text.
	Tokenizer    tokenizer.Tokenizer
	TokenizerErr error
	// VocabSize is the model's vocabulary size; all ids must be smaller. 0: the tokenizer's.
	VocabSize int
	// Template is the chat template: a file or one of Templates; "": the template of the model in ModelDir.
	Template string
	ModelDir string
	// TemplateVars are further variables of the chat template. Values have the types of chat_template_kwargs: nil,
	// bool, int64, float64, string, []any, map[string]any.
	TemplateVars map[string]any
	// Columns names the columns whose names are not the usual ones.
	Columns Columns
	// Pairs reports that all rows are pairs of answers, as DPO needs. Without Pairs a row counts as a pair if
	// Format or a Set's Format says so, or if it has no other known form.
	Pairs bool
	// MaskHistory takes only the last answer of a chat into the loss, not earlier ones. TrainOnPrompt takes all
	// tokens into the loss.
	MaskHistory, TrainOnPrompt bool
	// SkipBadRows counts and skips rows that cannot be read. Without it the first such row is an error.
	SkipBadRows bool
	// MixStrategy is how several data sets are mixed: concat (or ""), interleave_under or interleave_over, as in
	// LLaMA-Factory. InterleaveProbs are the probabilities with which interleaving draws the next document from
	// each data set. Empty: the data sets take turns.
	MixStrategy     string
	InterleaveProbs []float64
	// MaxSamples is the most documents to take from the start of each data set; 0: all.
	MaxSamples int64
	// MaxSeqLen is the most tokens of a row, at least 2; 0: 2048. For pairs, it limits each of the two documents,
	// and a row has up to twice as many tokens.
	MaxSeqLen int
	// Packing puts several documents into a row of MaxSeqLen. nil: yes for text and chats; no for input_ids and
	// pairs, which then have a row each. Chats and pairs are never split.
	Packing *bool
	// Seed decides the rows of Eval and, with Shuffle, the order of rows.
	Seed    int64
	Shuffle bool
	// ValSize is the size of Eval: a share of all rows if below 1, otherwise a number of rows.
	ValSize float64
	// CacheDir holds token caches; "": the user's cache folder.
	CacheDir string
	// Threads is the number of goroutines that tokenize; 0: one per core. The result does not depend on it.
	Threads int
	// Progress is called from time to time with the bytes done and the bytes in total; what names the work. May be
	// nil.
	Progress func(done, total int64, what string)
	// Stop ends the reading with ErrStopped when it is closed. May be nil.
	Stop <-chan struct{}

	sets  []dataSet // one data set for each of Paths or Sets
	notes []string  // hints for the user about how the data sets were found
	chat  chatForm  // how chats become text
	part  int64     // bytes of the sources between two commits; 0: partBytes
}

// SpecError reports that the Spec itself is wrong, rather than the content of files: a missing file or an
// impossible value.
type SpecError struct {
	Key string // the wrong configuration key; "": the key that names the files
	err error
}

func (e *SpecError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *SpecError) Unwrap() error { return e.err }

// asSpecError returns err as a *SpecError, whose Key is "" unless err already is one.
func asSpecError(err error) error {
	if _, ok := err.(*SpecError); ok {
		return err
	}
	return &SpecError{err: err}
}

const defaultMaxSeqLen = 2048

// Formats are the values of Spec.Format. auto decides by file name and first row. text reads files as they are.
// jsonl, parquet and csv (or TSV) are containers of rows. The others describe the content of a row in any
// container.
var Formats = []string{"auto", "text", "jsonl", "parquet", "csv", "alpaca", "sharegpt", "messages", "prompt_completion", "pairs"}

// resolved returns s with its defaults filled in. It returns an error if a setting of s is impossible.
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

// entries returns the data sets of the Spec: Sets, or otherwise one for each of Paths.
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

// tokenizerID returns a text that identifies the tokenizer and is part of the name of a token cache.
func (s *Spec) tokenizerID() string {
	if s.Tokenizer == nil {
		return "none"
	}
	return s.Tokenizer.ID()
}
