package data

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// cardName is the file that describes a data set on the Hub: prose below a head in YAML.
const cardName = "README.md"

// maxCard is the largest card that is read, in bytes.
const maxCard = 4 << 20

// cardConfig is one config of a card: files of the data set that can be loaded by
// themselves. Source: the Hub's "Manual Configuration".
type cardConfig struct {
	Name    string `yaml:"config_name"`
	Default bool   `yaml:"default"`
	Files   any    `yaml:"data_files"` // a pattern, a list of patterns, or a list of splits each with its patterns
	Dir     string `yaml:"data_dir"`
}

// cardSplits are the splits that the card in dir lists for a config; nil where it lists none.
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
		return nil, nil // the config has options of loading and names no files
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

// dirSplits are the splits of a config that names a directory and no files.
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

// cardHead is the YAML between the first two lines of three dashes, "" where there is none.
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

// configOf is the config of that name; the default one where name is empty.
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

// defaultConfig is the config that is loaded where none is asked for by name.
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
		_ = configs[0].eachPattern(func(_, pattern string) error { // a mistake in it is reported when it is chosen
			if first == "" {
				first = fmt.Sprintf(", for instance %s of %s", filepath.Join(configs[0].Dir, pattern), configs[0].Name)
			}
			return nil
		})
		return nil, fmt.Errorf("there are the configs %s and none is the default; give the files of one%s", strings.Join(names, ", "), first)
	}
	return chosen, nil
}

// errElsewhere is the error of a pattern that leads out of the card's directory.
var errElsewhere = errors.New("that is not in the directory")

var errDataFiles = errors.New("it must be a pattern, a list of patterns, or a list of split and path")

// eachPattern calls f with every pattern and the split that it is of.
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

// match adds the files that match a pattern to a split.
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
