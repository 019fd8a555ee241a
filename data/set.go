package data

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

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
