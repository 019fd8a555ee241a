package data

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The splits that rows are trained on, and that they are evaluated with.
const (
	splitTrain      = "train"
	splitValidation = "validation"
	splitTest       = "test"
)

// splitWords are the words that Hugging Face's datasets knows a split by, in the
// order in which they count. Source: datasets, data_files.py.
var splitWords = []struct {
	split string
	words string
}{
	{splitTrain, "train|training"}, {splitValidation, "validation|valid|dev|val"}, {splitTest, "test|testing|eval|evaluation"},
}

// repository is a directory as the Hub lays out a data set, or as save_to_disk
// does: its files by split, and why they are of it.
type repository struct {
	dir    string
	names  []string // of the splits, train's first
	files  map[string][]source
	others int    // files that are none of a split's
	how    string // what says so; empty: the files' names
}

func newRepository(dir, how string) *repository {
	return &repository{dir: dir, how: how, files: map[string][]source{}}
}

// add gives a split more files.
func (r *repository) add(split string, files ...source) {
	if !slices.Contains(r.names, split) {
		r.names = append(r.names, split)
	}
	r.files[split] = append(r.files[split], files...)
}

// repositoryOf is what a directory's files are as a data set of the Hub; nil where
// they are just files.
func repositoryOf(dir string, files []source) (*repository, error) {
	for _, f := range []func(string, []source) (*repository, error){savedSplits, savedToDisk, cardSplits} {
		if r, err := f(dir, files); r != nil || err != nil {
			return r, err
		}
	}
	return namedSplits(dir, files), nil
}

// below are the files in a directory, at any depth.
func below(dir string, files []source) []source {
	return slices.DeleteFunc(slices.Clone(files), func(f source) bool { return !strings.HasPrefix(f.path, dir+string(filepath.Separator)) })
}

// savedSplits are those of a DatasetDict that save_to_disk wrote: a directory each.
func savedSplits(dir string, files []source) (*repository, error) {
	name := filepath.Join(dir, "dataset_dict.json")
	text, err := readSmall(name, maxInfo)
	if text == nil || err != nil {
		return nil, err
	}
	var dict struct{ Splits []string }
	if err := json.Unmarshal(text, &dict); err != nil || len(dict.Splits) == 0 {
		return nil, fmt.Errorf("%s names no splits: it is no DatasetDict of save_to_disk", name)
	}
	all := newRepository(dir, "dataset_dict.json")
	for _, split := range dict.Splits {
		sub := filepath.Join(dir, split)
		r, err := savedToDisk(sub, below(sub, files))
		if err == nil && r == nil {
			err = fmt.Errorf("%s names the split %q, and %s is no directory of save_to_disk", name, split, sub)
		}
		if err != nil {
			return nil, err
		}
		all.add(split, r.files[splitTrain]...)
	}
	return all, nil
}

// savedToDisk is a Dataset that save_to_disk wrote: state.json names its files, in
// their order.
func savedToDisk(dir string, files []source) (*repository, error) {
	name := filepath.Join(dir, "state.json")
	if !slices.ContainsFunc(files, func(f source) bool { return filepath.Dir(f.path) == dir && ends(f.path, arrowNames) }) {
		return nil, nil
	}
	text, err := readSmall(name, maxInfo)
	if text == nil || err != nil {
		return nil, err
	}
	type named []struct{ Filename string }
	var state struct {
		Files   named `json:"_data_files"`
		Indices named `json:"_indices_data_files"`
	}
	if json.Unmarshal(text, &state) != nil || len(state.Files) == 0 {
		return nil, nil // another program's
	}
	if len(state.Indices) > 0 {
		return nil, fmt.Errorf("%s: some rows are chosen (_indices_data_files), which only datasets reads; write them out: "+
			"python -c \"from datasets import load_from_disk; load_from_disk('%s').flatten_indices().to_parquet('%s.parquet')\"", name, dir, filepath.Base(dir))
	}
	r := newRepository(dir, "state.json")
	for _, f := range state.Files {
		path := filepath.Join(dir, f.Filename)
		i := slices.IndexFunc(files, func(s source) bool { return s.path == path })
		if i < 0 {
			return nil, fmt.Errorf("%s names %s, which is not there; copy the whole directory", name, path)
		}
		r.add(splitTrain, files[i])
	}
	return r, nil
}

var (
	sharded   = regexp.MustCompile(`^([A-Za-z0-9_.]+)-\d{5}-of-\d{5}`)
	inFile    = wordPatterns(`[-._ 0-9]`)
	inDirName = wordPatterns(`(?:[-._ 0-9]|$)`)
)

// wordPatterns find each split's words in a name, with that behind them.
func wordPatterns(behind string) map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for _, s := range splitWords {
		out[s.split] = regexp.MustCompile(`(?i)(?:^|[-._ 0-9])(?:` + s.words + `)` + behind)
	}
	return out
}

// wordSplit is the split that a name tells of by the words of its pattern.
func wordSplit(name string, patterns map[string]*regexp.Regexp) string {
	for _, s := range splitWords {
		if patterns[s.split].MatchString(name) {
			return s.split
		}
	}
	return ""
}

// splitOf says of which split a file is by its path in the directory, as one of
// the three ways that the Hub knows; "" for none.
var splitOf = []func(path string) string{
	func(path string) string { // data/train-00000-of-00002.parquet
		if m := sharded.FindStringSubmatch(filepath.Base(path)); m != nil && filepath.Dir(path) == "data" {
			return m[1]
		}
		return ""
	},
	func(path string) string { // train/a.jsonl
		for part := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(path)), "/") {
			if s := wordSplit(part, inDirName); s != "" {
				return s
			}
		}
		return ""
	},
	func(path string) string { return wordSplit(filepath.Base(path), inFile) }, // train.jsonl
}

// mediaNames are ends of names of files that lie beside data and are neither rows
// nor prose.
var mediaNames = []string{".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".zip", ".mp3", ".mp4", ".wav"}

// namedSplits are the splits that the names of files and directories tell of. Text
// counts only where there is something to train on and something held out: a file
// of prose may well be about a train. A directory of mostly other files is none of
// a data set.
func namedSplits(dir string, files []source) *repository {
	for _, split := range splitOf {
		r := newRepository(dir, "")
		rows, found, prose := false, 0, 0
		for _, f := range files {
			rel, err := filepath.Rel(dir, f.path)
			name, _ := uncompressed(f.path)
			isRows := ends(name, rowNames)
			switch s := split(rel); {
			case err == nil && s != "" && (isRows || strings.HasSuffix(name, ".txt")):
				rows = rows || isRows
				found++
				r.add(s, f)
			case !isRows && !isAbout(f.path) && !ends(name, mediaNames):
				prose++
				fallthrough
			default:
				r.others++
			}
		}
		_, hasTrain := r.files[splitTrain]
		if prose <= found && (hasTrain && (rows || len(r.names) > 1) || rows && !hasTrain) {
			slices.SortFunc(r.names, bySplit)
			return r.withRest(files)
		}
	}
	return nil
}

// bySplit orders train, validation, test, and others by their names.
func bySplit(a, b string) int {
	order := []string{splitTrain, splitValidation, splitTest}
	at := func(s string) int {
		if i := slices.Index(order, s); i >= 0 {
			return i
		}
		return len(order)
	}
	if d := at(a) - at(b); d != 0 {
		return d
	}
	return strings.Compare(a, b)
}

// withRest makes the rows that are in no split train, where only what is held out
// has a name.
func (r *repository) withRest(files []source) *repository {
	held := !slices.ContainsFunc(r.names, func(n string) bool { return n != splitValidation && n != splitTest })
	if !held {
		return r
	}
	for _, f := range files {
		name, _ := uncompressed(f.path)
		if ends(name, rowNames) && !isAbout(f.path) && !slices.ContainsFunc(r.names, func(n string) bool { return slices.Contains(r.files[n], f) }) {
			r.add(splitTrain, f)
			r.others--
		}
	}
	slices.SortFunc(r.names, bySplit)
	return r
}

// choose is the files to train on, or with held those to evaluate with, and a note
// on what was left.
func (r *repository) choose(held bool) ([]source, string, error) {
	want := splitTrain
	if held {
		want = ""
		for _, s := range []string{splitValidation, splitTest} {
			if len(r.files[s]) > 0 {
				want = s
				break
			}
		}
	}
	if len(r.files[want]) == 0 && len(r.names) == 1 && r.names[0] != splitValidation && r.names[0] != splitTest {
		want = r.names[0]
	}
	if len(r.files[want]) == 0 {
		return nil, "", r.without(held)
	}
	note := fmt.Sprintf("%s: %s is read (%s)", r.dir, want, r.count(want))
	if r.how != "" {
		note += ", as " + r.how + " says"
	}
	var rest []string
	offered := ""
	for _, n := range r.names {
		if n == want {
			continue
		}
		rest = append(rest, fmt.Sprintf("%s (%s)", n, r.count(n)))
		if offered == "" && (n == splitValidation || n == splitTest) {
			offered = n
		}
	}
	if len(rest) > 0 {
		note += "; not " + strings.Join(rest, ", ")
	}
	if offered != "" && !held {
		note += fmt.Sprintf(": eval_dataset takes %s of the same directory", offered)
	}
	if r.others > 0 {
		note += fmt.Sprintf("; %d other file(s) are not read", r.others)
	}
	if len(rest) == 0 && r.others == 0 {
		note = "" // there was no choice
	}
	return r.files[want], note, nil
}

func (r *repository) count(split string) string {
	if n := len(r.files[split]); n != 1 {
		return fmt.Sprintf("%d files", n)
	}
	return "1 file"
}

// without says that there is no split to take.
func (r *repository) without(held bool) error {
	want := "split called train"
	if held {
		want = "validation or test split"
	}
	var all []string
	for _, n := range r.names {
		first := ""
		if len(r.files[n]) > 0 {
			first = ", the first " + r.files[n][0].path
		}
		all = append(all, fmt.Sprintf("%s (%s%s)", n, r.count(n), first))
	}
	return fmt.Errorf("%s has no %s; it has %s; name the files to take, for instance with a glob", r.dir, want, strings.Join(all, ", "))
}

// about are the starts of names of files that say something about a data set and
// are not it, aboutNames whole names.
var (
	about      = []string{"README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CITATION", "CHANGELOG"}
	aboutNames = []string{infoName, "dataset_infos.json", "dataset_dict.json", "state.json", "config.json", "dummy_data.zip"}
)

func isAbout(path string) bool {
	base := filepath.Base(path)
	return slices.Contains(aboutNames, base) || strings.HasSuffix(base, ".py") ||
		slices.ContainsFunc(about, func(a string) bool { return strings.HasPrefix(strings.ToUpper(base), a) })
}

// withoutAbout is files without those that are about the data set, where some have
// rows, and a note on them.
func withoutAbout(dir string, files []source) ([]source, string) {
	data := slices.DeleteFunc(slices.Clone(files), func(f source) bool { return isAbout(f.path) })
	if len(data) == len(files) || !slices.ContainsFunc(data, func(f source) bool { name, _ := uncompressed(f.path); return ends(name, rowNames) }) {
		return files, ""
	}
	i := slices.IndexFunc(files, func(f source) bool { return isAbout(f.path) })
	return data, fmt.Sprintf("%s: %d file(s) about the data set are no data, the first %s", dir, len(files)-len(data), filepath.Base(files[i].path))
}
