package data

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Names of splits: train is for training, the other two are for evaluation.
const (
	splitTrain      = "train"
	splitValidation = "validation"
	splitTest       = "test"
)

// splitWords lists the words in a file's name that mark the file as part of a split, as in Hugging
// Face's datasets. If words of several splits occur, the first split in the list counts. Source:
// datasets, data_files.py.
var splitWords = []struct {
	split string
	words string
}{
	{splitTrain, "train|training"}, {splitValidation, "validation|valid|dev|val"}, {splitTest, "test|testing|eval|evaluation"},
}

// repository is a directory that is laid out as a data set of the Hugging Face Hub, or was written by save_to_disk of
// datasets. It holds the files of each split.
type repository struct {
	dir    string
	names  []string // names of the splits, train first
	files  map[string][]source
	others int    // number of files in no split
	how    string // file that assigns files to splits; "": the files' names do
}

func newRepository(dir, how string) *repository {
	return &repository{dir: dir, how: how, files: map[string][]source{}}
}

// add adds files to a split of the repository, and the split itself if it is new.
func (r *repository) add(split string, files ...source) {
	if !slices.Contains(r.names, split) {
		r.names = append(r.names, split)
	}
	r.files[split] = append(r.files[split], files...)
}

// repositoryOf returns the directory dir as a data set of the Hub; nil: dir holds plain files without splits. files
// are all files in dir. config names a config of its card (a README with a YAML header); "": the default config.
func repositoryOf(dir string, files []source, config string) (*repository, error) {
	card := func(dir string, files []source) (*repository, error) { return cardSplits(dir, files, config) }
	for _, f := range []func(string, []source) (*repository, error){savedSplits, savedToDisk, card} {
		if r, err := f(dir, files); r != nil || err != nil {
			return r, err
		}
	}
	return namedSplits(dir, files), nil
}

// below returns the elements of files that are in the directory dir, at any depth.
func below(dir string, files []source) []source {
	return slices.DeleteFunc(slices.Clone(files), func(f source) bool { return !strings.HasPrefix(f.path, dir+string(filepath.Separator)) })
}

// savedSplits returns the splits of a DatasetDict that save_to_disk of datasets wrote to dir, each split in a
// directory of its own. nil: dir holds none.
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

// savedToDisk returns the files of a Dataset that save_to_disk of datasets wrote to dir, in the order that its
// state.json lists. nil: dir holds none.
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
		return nil, nil // another program's state.json
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

// wordPatterns returns for each split a pattern that matches file names with one of the split's words (splitWords).
// `behind` is a pattern of what must follow the word.
func wordPatterns(behind string) map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for _, s := range splitWords {
		out[s.split] = regexp.MustCompile(`(?i)(?:^|[-._ 0-9])(?:` + s.words + `)` + behind)
	}
	return out
}

// wordSplit returns the first split whose words (splitWords) occur in name, by the patterns of wordPatterns; "":
// none.
func wordSplit(name string, patterns map[string]*regexp.Regexp) string {
	for _, s := range splitWords {
		if patterns[s.split].MatchString(name) {
			return s.split
		}
	}
	return ""
}

// splitOf are the three rules by which the Hub derives a file's split from its path within the
// directory. Each function returns "" if its rule does not apply to the path.
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

// mediaNames are extensions of files that lie beside many data sets and hold neither rows nor text to train on.
var mediaNames = []string{".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".pdf", ".zip", ".mp3", ".mp4", ".wav"}

// namedSplits returns the splits that the names of files and directories in dir imply; nil: none. Text files alone
// (such as train.txt, which may be about trains) count only if there are both a training and an evaluation split. A
// directory with mostly other files is not a data set.
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

// bySplit compares two split names for sorting: train, validation, test, then others by name.
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

// withRest adds the files that belong to no split to the split train, if all named splits are for evaluation.
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

// choose returns the files of the split called asked. asked "": the training files or, with held, the validation
// files, otherwise the test files. The note, for the user, names the splits that are left out; "": none.
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
		note = "" // no choice was made
	}
	return r.files[want], note, nil
}

func (r *repository) count(split string) string {
	if n := len(r.files[split]); n != 1 {
		return fmt.Sprintf("%d files", n)
	}
	return "1 file"
}

// without returns the error that the split asked for is missing. The parameters mean the same as in choose.
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

// about lists beginnings of the names of files that describe a data set and hold no rows.
// aboutNames lists full names of such files.
var (
	about      = []string{"README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CITATION", "CHANGELOG"}
	aboutNames = []string{infoName, "dataset_infos.json", "dataset_dict.json", "state.json", "config.json", "dummy_data.zip"}
)

func isAbout(path string) bool {
	base := filepath.Base(path)
	return slices.Contains(aboutNames, base) || strings.HasSuffix(base, ".py") ||
		slices.ContainsFunc(about, func(a string) bool { return strings.HasPrefix(strings.ToUpper(base), a) })
}

// withoutAbout returns files without those that describe the data set. If no other file holds rows, it returns all.
// The note, for the user, names the files that were left out; "": none.
func withoutAbout(dir string, files []source) ([]source, string) {
	data := slices.DeleteFunc(slices.Clone(files), func(f source) bool { return isAbout(f.path) })
	if len(data) == len(files) || !slices.ContainsFunc(data, func(f source) bool { name, _ := uncompressed(f.path); return ends(name, rowNames) }) {
		return files, ""
	}
	i := slices.IndexFunc(files, func(f source) bool { return isAbout(f.path) })
	return data, fmt.Sprintf("%s: %d file(s) about the data set are no data, the first %s", dir, len(files)-len(data), filepath.Base(files[i].path))
}

// infoName is the file in which LLaMA-Factory describes data sets by name.
const infoName = "dataset_info.json"

// maxInfo is the largest size of a dataset_info.json in bytes.
const maxInfo = 16 << 20

// setInfo is one entry of dataset_info.json, which describes a data set. Source: LLaMA-Factory, data/README.md.
type setInfo struct {
	FileName   string             `json:"file_name"`
	HubURL     string             `json:"hf_hub_url"`
	Subset     string             `json:"subset"`
	Formatting string             `json:"formatting"`
	Columns    map[string]*string `json:"columns"`
	Tags       map[string]string  `json:"tags"`
	Split      string             `json:"split"`
	NumSamples *int64             `json:"num_samples"`
	Ranking    bool               `json:"ranking"`
}

// elsewhere lists the keys of an entry of dataset_info.json that give a data set's location if it
// is not a local file.
var elsewhere = []string{"hf_hub_url", "ms_hub_url", "om_hub_url", "script_url", "cloud_file_name"}

// unread maps the columns of an entry of dataset_info.json that mt does not use to the reason why.
var unread = map[string]string{
	"images": "mt trains on text", "videos": "mt trains on text", "audios": "mt trains on text",
	"kto_tag": "mt trains on pairs of answers, and not on single ones with a mark",
}

// readInfo reads the dataset_info.json in dir; nil: there is none.
func readInfo(dir string) (map[string]json.RawMessage, error) {
	name := filepath.Join(dir, infoName)
	text, err := readSmall(name, maxInfo)
	if err != nil || text == nil {
		return nil, err
	}
	var sets map[string]json.RawMessage
	if err := json.Unmarshal(text, &sets); err != nil {
		return nil, fmt.Errorf("%s: %w; it must be an object of data sets by name", name, err)
	}
	return sets, nil
}

// parseInfo returns the entry called name of a dataset_info.json as a dataSet, and the file that the entry refers to.
// raw is the entry's JSON. hub is Spec.Hub, which finds a data set of the Hub on this machine.
func parseInfo(name string, raw json.RawMessage, hub func(string) (string, error)) (set dataSet, file string, err error) {
	var keys map[string]json.RawMessage
	var in setInfo
	if err = json.Unmarshal(raw, &keys); err == nil {
		err = json.Unmarshal(raw, &in)
	}
	if err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	if in.FileName == "" && in.HubURL != "" && in.Subset == "" && hub != nil {
		if in.FileName, err = hub(in.HubURL); err != nil {
			return set, "", fmt.Errorf("%q has hf_hub_url %s: %w", name, in.HubURL, err)
		}
	}
	if in.FileName == "" {
		for _, k := range elsewhere {
			if v, ok := keys[k]; ok {
				return set, "", fmt.Errorf("%q has %s %s, and mt reads local files only; download it (`hf download --repo-type dataset ...`) and give file_name", name, k, clip(v))
			}
		}
		return set, "", fmt.Errorf("%q has no file_name", name)
	}
	set = dataSet{Name: name}
	if set.Columns, set.Format, err = in.columns(); err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	if in.NumSamples != nil {
		if set.Samples = *in.NumSamples; set.Samples < 1 {
			return set, "", fmt.Errorf("%q: num_samples is %d; it is at least 1", name, set.Samples)
		}
	}
	if in.Split == "" {
		in.Split = "train"
	}
	if set.Split, err = parseSplit(in.Split); err != nil {
		return set, "", fmt.Errorf("%q: %w", name, err)
	}
	return set, in.FileName, nil
}

// columns returns the names and the format of the entry's columns. If an entry names any column, columns without a
// name in the entry count as absent.
func (in *setInfo) columns() (*columns, format, error) {
	f := fmtAlpaca
	switch in.Formatting {
	case "", "alpaca":
	case "sharegpt", "openai":
		f = fmtShareGPT
	default:
		return nil, "", fmt.Errorf("formatting is %q; it is alpaca, sharegpt or openai", in.Formatting)
	}
	c := columnsOf(f)
	c.History = "" // absent unless the entry names it
	if in.Ranking {
		c.Chosen, c.Rejected, c.Turn = chosenField, rejectedField, true
	}
	if in.Columns == nil {
		c.System, c.Tools = "", ""
	}
	if err := in.nameColumns(c); err != nil {
		return nil, "", err
	}
	if in.Ranking {
		if c.Chosen == "" || c.Rejected == "" {
			return nil, "", errors.New("ranking is true: columns must name chosen and rejected")
		}
		c.Response, f = "", fmtPairs
	}
	if c.Messages != "" {
		return c, f, in.nameTags(c)
	}
	if len(in.Tags) > 0 {
		return nil, "", errors.New("tags are of formatting sharegpt")
	}
	if c.Response == "" && f != fmtPairs { // the prompt is then plain text for pre-training
		return &columns{Text: c.Prompt}, fmtText, nil
	}
	return c, f, nil
}

// nameColumns sets the column names of c to the names under the entry's key columns, if the key is present.
func (in *setInfo) nameColumns(c *columns) error {
	if in.Columns == nil {
		return nil
	}
	named := map[string]*string{"system": &c.System, "tools": &c.Tools, "prompt": &c.Prompt, "query": &c.Query,
		"response": &c.Response, "history": &c.History, "messages": &c.Messages}
	if in.Ranking {
		named["chosen"], named["rejected"] = &c.Chosen, &c.Rejected
	}
	keep := c.Messages
	for _, p := range named {
		*p = ""
	}
	for _, k := range slices.Sorted(maps.Keys(in.Columns)) {
		v := in.Columns[k]
		if v == nil || *v == "" {
			continue
		}
		if why, ok := unread[k]; ok {
			return fmt.Errorf("columns has %s (%q): %s; remove the column", k, *v, why)
		}
		p, ok := named[k]
		if !ok && (k == "chosen" || k == "rejected") {
			return fmt.Errorf("columns has %s (%q) and ranking is not true; set it, or remove the column", k, *v)
		}
		if !ok {
			return fmt.Errorf("columns has %q; known are %s", k, strings.Join(slices.Sorted(maps.Keys(named)), ", "))
		}
		*p = *v
	}
	if keep != "" && c.Messages == "" {
		c.Messages = keep
	}
	if keep == "" && c.Prompt == "" {
		return errors.New("columns has no prompt")
	}
	return nil
}

// nameTags sets the roles and the names of message fields of c to the values under the entry's key tags, if the key
// is present.
func (in *setInfo) nameTags(c *columns) error {
	roles := map[string]string{"user_tag": "human", "assistant_tag": "gpt", "observation_tag": "observation", "function_tag": functionCall, "system_tag": "system"}
	if in.Tags == nil {
		return nil
	}
	c.Roles = map[string]string{}
	for tag, usual := range roles {
		name := usual
		if v, ok := in.Tags[tag]; ok && v != "" {
			name = v
		}
		c.Roles[name] = shareGPTRoles[usual]
	}
	for _, tag := range slices.Sorted(maps.Keys(in.Tags)) {
		switch v := in.Tags[tag]; {
		case roles[tag] != "":
		case tag == "role_tag" && v != "":
			c.Role = v
		case tag == "content_tag" && v != "":
			c.Content = v
		default:
			return fmt.Errorf("tags has %q: %q; known are role_tag, content_tag, %s", tag, v, strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
		}
	}
	return nil
}

// cardName is the file that describes a data set on the Hub: prose after a YAML header.
const cardName = "README.md"

// maxCard is the largest size of a card in bytes.
const maxCard = 4 << 20

// cardConfig is one config of a data set's card: a named choice of files that can be loaded on its own. Source: the
// Hub's "Manual Configuration".
type cardConfig struct {
	Name    string `yaml:"config_name"`
	Default bool   `yaml:"default"`
	Files   any    `yaml:"data_files"` // a pattern, a list of patterns, or a list of splits with patterns
	Dir     string `yaml:"data_dir"`
}

// cardSplits returns the splits that the card (README.md) in dir lists for a config; nil: the card lists none. files
// are all files in dir; config "": the default config.
func cardSplits(dir string, files []source, config string) (*repository, error) {
	name := filepath.Join(dir, cardName)
	text, err := readSmall(name, maxCard)
	if text == nil || err != nil {
		if config != "" {
			return nil, fmt.Errorf("%s has no card that lists configs, so there is none called %q; name the files in data_files", dir, config)
		}
		return nil, nil // a card that cannot be read is prose
	}
	var card struct {
		Configs []cardConfig `yaml:"configs"`
	}
	head := []byte(cardHead(string(text)))
	if guarded(func() error { return yaml.Unmarshal(head, &card) }) != nil || len(card.Configs) == 0 {
		if config != "" {
			return nil, fmt.Errorf("%s lists no configs, so there is none called %q; name the files in data_files", name, config)
		}
		return nil, nil
	}
	c, err := configOf(card.Configs, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if c.Files == nil && c.Dir == "" {
		return nil, nil // the config has options but names no files
	}
	how := cardName
	if len(card.Configs) > 1 {
		how += fmt.Sprintf(" (config %s of %d)", c.Name, len(card.Configs))
	}
	if c.Files == nil {
		return dirSplits(dir, how, c, files)
	}
	r := newRepository(dir, how)
	if err := c.eachPattern(func(split, pattern string) error { return r.match(split, filepath.Join(c.Dir, pattern), pattern) }); err != nil {
		return nil, fmt.Errorf("%s: data_files of config %s: %w", name, c.Name, err)
	}
	return r, nil
}

// dirSplits returns the splits of config c, which names a directory inside dir instead of files. The files' names
// decide their split. `how` names the card.
func dirSplits(dir, how string, c *cardConfig, files []source) (*repository, error) {
	sub := filepath.Join(dir, c.Dir)
	files = below(sub, files)
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: data_dir %s holds no files", how, sub)
	}
	r := namedSplits(sub, files)
	if r == nil {
		r = newRepository(dir, how)
		files, _ = withoutAbout(sub, files)
		r.add(splitTrain, files...)
	}
	r.how = how
	return r, nil
}

// cardHead returns the YAML header of a card, the text between the first two lines of three dashes; "": there is
// none.
func cardHead(text string) string {
	text = strings.ReplaceAll(strings.TrimPrefix(text, "\xef\xbb\xbf"), "\r\n", "\n")
	head, ok := strings.CutPrefix(text, "---\n")
	if !ok {
		return ""
	}
	head, _, ok = strings.Cut(head, "\n---")
	if !ok {
		return ""
	}
	return head
}

// configOf returns the config with this name; name "": the default config.
func configOf(configs []cardConfig, name string) (*cardConfig, error) {
	if name == "" {
		return defaultConfig(configs)
	}
	var names []string
	for i := range configs {
		if configs[i].Name == name {
			return &configs[i], nil
		}
		names = append(names, configs[i].Name)
	}
	return nil, fmt.Errorf("there is no config %q; there are %s", name, strings.Join(names, ", "))
}

// defaultConfig returns the config that is used if the user names none. If there are several and none is the default,
// the result is an error with their names.
func defaultConfig(configs []cardConfig) (*cardConfig, error) {
	if len(configs) == 1 {
		return &configs[0], nil
	}
	var names []string
	var chosen *cardConfig
	for i := range configs {
		c := &configs[i]
		if names = append(names, c.Name); c.Default || c.Name == "default" && chosen == nil {
			chosen = c
		}
	}
	if chosen == nil {
		first := ""
		_ = configs[0].eachPattern(func(_, pattern string) error { // errors in it are reported when it is chosen
			if first == "" {
				first = fmt.Sprintf(", for instance %s of %s", filepath.Join(configs[0].Dir, pattern), configs[0].Name)
			}
			return nil
		})
		return nil, fmt.Errorf("there are the configs %s and none is the default; give the files of one%s", strings.Join(names, ", "), first)
	}
	return chosen, nil
}

// errElsewhere is the error of a file pattern that leads out of the card's directory.
var errElsewhere = errors.New("that is not in the directory")

var errDataFiles = errors.New("it must be a pattern, a list of patterns, or a list of split and path")

// eachPattern calls f with every file pattern of the config and the pattern's split. It stops at the first error of
// f.
func (c *cardConfig) eachPattern(f func(split, pattern string) error) error {
	patterns := func(split string, v any) error {
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, p := range list {
			s, ok := p.(string)
			if !ok {
				return errDataFiles
			}
			if err := f(split, s); err != nil {
				return err
			}
		}
		return nil
	}
	list, ok := c.Files.([]any)
	if !ok {
		return patterns(splitTrain, c.Files)
	}
	for _, entry := range list {
		m, ok := entry.(map[string]any)
		if !ok {
			if err := patterns(splitTrain, entry); err != nil {
				return err
			}
			continue
		}
		split, ok := m["split"].(string)
		if !ok {
			return errDataFiles
		}
		if err := patterns(split, m["path"]); err != nil {
			return err
		}
	}
	return nil
}

// match adds the files that match a pattern to a split. spelled is the pattern as the card writes it, for errors.
func (r *repository) match(split, pattern, spelled string) error {
	if strings.Contains(spelled, "://") || !filepath.IsLocal(pattern) {
		return fmt.Errorf("%q: %w", spelled, errElsewhere)
	}
	w := walker{}
	if err := w.glob(r.dir, strings.Split(filepath.ToSlash(pattern), "/")); err != nil {
		return err
	}
	if len(w.found) == 0 && split == splitTrain {
		return fmt.Errorf("no file matches %q in %s; download all of the data set", spelled, r.dir)
	}
	if len(w.found) > 0 {
		r.add(split, w.sorted()...)
	}
	return nil
}

// hasCard reports whether a directory has a data set's card: a README.md with a YAML header.
func hasCard(dir string) bool {
	text, err := readSmall(filepath.Join(dir, cardName), maxCard)
	return err == nil && cardHead(string(text)) != ""
}

// dataIn returns the files of a published data set without those that describe it, and a note for the user on what
// was left out. It fails if only archives and other unsupported files are left.
func dataIn(dir string, files []source) (found []source, note string, err error) {
	found = slices.DeleteFunc(slices.Clone(files), func(f source) bool { return isAbout(f.path) })
	if len(found) == 0 {
		return nil, "", errNoRows(dir, files)
	}
	first, only := firstUnsupported(found)
	switch {
	case only != nil:
		return nil, "", fmt.Errorf("%s holds no data that mt reads: %s: %s", dir, filepath.Base(first), only)
	case len(found) < len(files):
		i := slices.IndexFunc(files, func(f source) bool { return isAbout(f.path) })
		note = fmt.Sprintf("%s: %d file(s) about the data set are no data, the first %s", dir, len(files)-len(found), filepath.Base(files[i].path))
	}
	return found, note, nil
}

// errNoRows returns the error of a data set whose files only describe it, so that no file holds
// rows.
func errNoRows(dir string, files []source) error {
	var names []string
	script := ""
	for _, f := range files {
		name := filepath.Base(f.path)
		if names = append(names, name); script == "" && strings.HasSuffix(name, ".py") {
			script = name
		}
	}
	const most = 5
	if len(names) > most {
		names = append(names[:most], "…")
	}
	if script == "" {
		return fmt.Errorf("%s holds no data, only %s: download all of the data set", dir, strings.Join(names, ", "))
	}
	return fmt.Errorf("%s holds no data, only %s: %s is a loading script, which mt does not run; "+
		"write the rows out with the datasets library (load_dataset(…).to_parquet(…)), or take the data set's branch refs/convert/parquet", dir, strings.Join(names, ", "), script)
}

// firstUnsupported returns the first of files and its format, if mt can read none of them. If mt can read any of
// them, what is nil.
func firstUnsupported(files []source) (path string, what *unsupportedFormat) {
	for _, f := range files {
		a, is := unsupportedFile(f.path)
		if !is {
			return "", nil
		}
		if what == nil {
			path, what = f.path, &a
		}
	}
	return path, what
}

// unsupportedFile returns the format of a file, by its first bytes; false: the file's format is none of
// unsupportedFormats.
func unsupportedFile(path string) (unsupportedFormat, bool) {
	f, err := os.Open(path)
	if err != nil {
		return unsupportedFormat{}, false // reading the file reports the reason
	}
	defer func() { _ = f.Close() }() // nothing was written
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && n == 0 {
		return unsupportedFormat{}, false
	}
	return unsupportedOf(path, head[:n])
}
