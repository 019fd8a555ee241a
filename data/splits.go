package data

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// The splits that are trained on (train) and evaluated with (the other two).
const (
	splitTrain      = "train"
	splitValidation = "validation"
	splitTest       = "test"
)

// splitWords are, for each split, the words by which Hugging Face's datasets recognises it.
// The first split that fits counts. Source: datasets, data_files.py.
var splitWords = []struct {
	split string
	words string
}{
	{splitTrain, "train|training"}, {splitValidation, "validation|valid|dev|val"}, {splitTest, "test|testing|eval|evaluation"},
}

// repository is a directory that is laid out as a data set of the Hub, or that save_to_disk
// wrote: its files by split, and what says so.
type repository struct {
	dir    string
	names  []string // the names of the splits, train first
	files  map[string][]source
	others int    // how many files are in no split
	how    string // what says which split a file is of; empty: the files' names
}

func newRepository(dir, how string) *repository {
	return &repository{dir: dir, how: how, files: map[string][]source{}}
}

// add adds files to a split.
func (r *repository) add(split string, files ...source) {
	if !slices.Contains(r.names, split) {
		r.names = append(r.names, split)
	}
	r.files[split] = append(r.files[split], files...)
}

// repositoryOf is a directory as a data set of the Hub; nil where it is a directory of plain
// files. config names a config of its card; empty: the default one.
func repositoryOf(dir string, files []source, config string) (*repository, error) {
	card := func(dir string, files []source) (*repository, error) { return cardSplits(dir, files, config) }
	for _, f := range []func(string, []source) (*repository, error){savedSplits, savedToDisk, card} {
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

// savedSplits are the splits of a DatasetDict that save_to_disk wrote, each in a directory.
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

// savedToDisk is a Dataset that save_to_disk wrote. Its state.json names the files, in their
// order.
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
		return nil, nil // this state.json is another program's
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

// wordPatterns are, for each split, the pattern of a name that has one of its words. After the
// word must come what behind matches.
func wordPatterns(behind string) map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for _, s := range splitWords {
		out[s.split] = regexp.MustCompile(`(?i)(?:^|[-._ 0-9])(?:` + s.words + `)` + behind)
	}
	return out
}

// wordSplit is the split whose words are in name, by patterns; "" where there is none.
func wordSplit(name string, patterns map[string]*regexp.Regexp) string {
	for _, s := range splitWords {
		if patterns[s.split].MatchString(name) {
			return s.split
		}
	}
	return ""
}

// splitOf are the three ways in which the Hub recognises the split of a file by its path in
// the directory; each gives "" where it does not apply.
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

// mediaNames are extensions of files that lie beside data sets and hold neither rows nor
// prose.
var mediaNames = []string{".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".zip", ".mp3", ".mp4", ".wav"}

// namedSplits are the splits that the names of files and directories tell of; nil where they
// tell of none. A file of text may well be about a train, so text counts only where there is
// both something to train on and something held out. A directory of mostly other files is
// not a data set.
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

// bySplit orders names of splits: train, validation, test, then others by name.
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

// withRest adds the rows that are in no split to train, where only held-out splits have
// names.
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

// choose gives the files of the split asked; where none is asked for, those to train on, or
// with held those to evaluate with. It adds a note on the splits that are not taken.
func (r *repository) choose(asked string, held bool) ([]source, string, error) {
	want := cmp.Or(asked, splitTrain)
	if held && asked == "" {
		want = ""
		for _, s := range []string{splitValidation, splitTest} {
			if len(r.files[s]) > 0 {
				want = s
				break
			}
		}
	}
	if len(r.files[want]) == 0 && asked == "" && len(r.names) == 1 && r.names[0] != splitValidation && r.names[0] != splitTest {
		want = r.names[0]
	}
	if len(r.files[want]) == 0 {
		return nil, "", r.without(asked, held)
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

// without is the error where there is no split to take.
func (r *repository) without(asked string, held bool) error {
	want := "split called " + cmp.Or(asked, splitTrain)
	if held && asked == "" {
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

// about are the starts of the names of files that describe a data set and are not part of
// it; aboutNames are whole names of such files.
var (
	about      = []string{"README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CITATION", "CHANGELOG"}
	aboutNames = []string{infoName, "dataset_infos.json", "dataset_dict.json", "state.json", "config.json", "dummy_data.zip"}
)

func isAbout(path string) bool {
	base := filepath.Base(path)
	return slices.Contains(aboutNames, base) || strings.HasSuffix(base, ".py") ||
		slices.ContainsFunc(about, func(a string) bool { return strings.HasPrefix(strings.ToUpper(base), a) })
}

// withoutAbout gives files without those that describe the data set, if any of the others
// has rows, and a note on what it left out.
func withoutAbout(dir string, files []source) ([]source, string) {
	data := slices.DeleteFunc(slices.Clone(files), func(f source) bool { return isAbout(f.path) })
	if len(data) == len(files) || !slices.ContainsFunc(data, func(f source) bool { name, _ := uncompressed(f.path); return ends(name, rowNames) }) {
		return files, ""
	}
	i := slices.IndexFunc(files, func(f source) bool { return isAbout(f.path) })
	return data, fmt.Sprintf("%s: %d file(s) about the data set are no data, the first %s", dir, len(files)-len(data), filepath.Base(files[i].path))
}
