package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
)

// MaxFile is the largest size of a config file, in bytes.
const MaxFile = 1 << 20

// Load reads the config file, then the flags in a. An empty file name means flags only. Mistakes are returned as
// UsageErrors, all of them joined, in the order of the text. The Config keeps the warnings.
func Load(file string, a Args) (*Config, error) {
	if file == "" {
		return Parse("", nil, a)
	}
	src, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src, a)
}

// readConfig returns the text of a config file. It returns a UsageError if the file is missing, no file, or larger
// than MaxFile.
func readConfig(file string) ([]byte, error) {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return nil, fileError(file, err)
	case st.IsDir():
		return nil, Usagef("config: %s is a directory; give the YAML file", file)
	case st.Size() > MaxFile:
		return nil, Usagef("config: %s has %s; a config file has at most %s", file, Bytes(st.Size()), Bytes(MaxFile))
	}
	src, err := read(file)
	if err != nil {
		return nil, fileError(file, err)
	}
	if len(src) > MaxFile {
		return nil, Usagef("config: %s is larger than %s, the limit of a config file", file, Bytes(MaxFile))
	}
	return src, nil
}

// read returns up to MaxFile+1 bytes of a file or of a pipe such as a shell's <(...). A pipe without a writer reads
// as empty.
func read(file string) ([]byte, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, MaxFile+1))
}

// fileError returns the UsageError for a file that could not be read, with the cause from err but without the system
// call's name.
func fileError(file string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	return Usagef("config: %s: %w", file, err)
}

// Parse is Load for the text src. Messages use name as the file's name.
func Parse(name string, src []byte, a Args) (*Config, error) {
	c := Default()
	c.file = name
	l := &loader{c: c}
	if len(src) > 0 {
		doc, err := parseYAML(name, src)
		if err != nil {
			return nil, err
		}
		entries, err := l.ours(name, doc)
		if err != nil {
			return nil, err
		}
		l.source(entries)
	}
	l.source(a.entries)
	if len(l.errs) == 0 {
		l.foreignKeys()
		l.errs = append(l.errs, c.check()...)
	}
	if len(l.errs) > 0 {
		return nil, errors.Join(l.errs...)
	}
	return c, nil
}

// entry is one key as given. spelled is its full name as the user wrote it: "pipeline.weight_slots".
type entry struct {
	spelled string
	pos     Pos // position of the key
	val     value
}

// loader applies entries: first the file's, then the flags'.
type loader struct {
	c       *Config
	errs    []error
	foreign []entry
}

func (l *loader) fail(err error) { l.errs = append(l.errs, err) }

// ours returns the entries of the document doc as keys of mt. If doc is a config of another tool, ours converts it,
// and fails if a key of it would be Lost. name is the file's name.
func (l *loader) ours(name string, doc value) ([]entry, error) {
	t := toolOf(doc)
	if t == nil {
		return l.fileEntries(doc), nil
	}
	im, err := t.read(name, doc)
	if err != nil {
		return nil, err
	}
	if lost := im.Lost(); len(lost) > 0 {
		return nil, errors.Join(append(lost, Usagef("%s is a config of %s, and mt lacks the settings named above: convert it with `mt import %s --out mt.yaml`, check mt.yaml, and train with it", name, im.Tool, name))...)
	}
	for _, note := range im.Notes {
		l.c.warnf("%s: %s", name, note)
	}
	l.c.warnf("%s is a config of %s; it is converted as by `mt import %s`, and these keys have no meaning in mt: %s", name, im.Tool, name, strings.Join(im.idle(), ", "))
	return im.entries(), nil
}

// fileEntries returns the top-level keys of a document with their values. It returns nil for an empty document. If the
// document is no mapping, it records an error.
func (l *loader) fileEntries(doc value) []entry {
	if doc.kind == null {
		return nil
	}
	if doc.kind != mapping {
		l.fail(doc.pos.errorf("a config file has `key: value` lines, but this is %s", doc.kind))
		return nil
	}
	var out []entry
	for _, f := range doc.fields {
		out = append(out, entry{f.name, f.pos, f.val})
	}
	return out
}

// flat replaces the entry `pipeline:` by entries for its keys.
func (l *loader) flat(entries []entry) (out []entry) {
	for _, e := range entries {
		if e.spelled != pipelineKey {
			out = append(out, e)
			continue
		}
		if e.val.kind != mapping && e.val.kind != null {
			l.fail((&setter{spelled: pipelineKey, v: e.val}).fail("a mapping such as {weight_slots: 4}"))
		}
		for _, f := range e.val.fields {
			out = append(out, entry{pipelineKey + "." + f.name, f.pos, f.val})
		}
	}
	return out
}

// source applies the entries of one source, which is the file or the command line. A key that occurs twice in one
// source is an error.
func (l *loader) source(entries []entry) {
	given := map[string]entry{}
	for _, e := range l.flat(entries) {
		if strings.HasPrefix(e.spelled, "model.") {
			l.modelKey(e)
			continue
		}
		k := byName[e.spelled]
		if k == nil {
			l.other(e)
			continue
		}
		if first, twice := given[k.name]; twice {
			l.fail(e.pos.errorf("%s and %s%s are names of one key: give one of them", e.spelled, first.spelled, lineOf(first.pos)))
			continue
		}
		given[k.name] = e
		if err := k.set(l.c, e.spelled, e.val); err != nil {
			l.fail(err)
			continue
		}
		l.c.sources[k.name] = keySource{e.spelled, e.val.pos}
		switch {
		case k.name == modelKey:
			l.noteSources("model", e)
		case k.isMapping():
			l.noteSources(k.name, e)
		}
	}
}

// lineOf returns " (line 3)" for a position in a file, "" for a flag.
func lineOf(p Pos) string {
	if p.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (line %d)", p.Line)
}

// noteSources records where e gave the mapping called name, and where each key inside it, such as "model.hidden_size".
// Positions of an earlier value of the mapping are forgotten.
func (l *loader) noteSources(name string, e entry) {
	maps.DeleteFunc(l.c.sources, func(k string, _ keySource) bool { return strings.HasPrefix(k, name+".") })
	l.c.sources[name] = keySource{e.spelled, e.val.pos}
	for _, f := range e.val.fields {
		l.c.sources[name+"."+f.name] = keySource{name + "." + f.name, f.val.pos}
	}
}

// modelKey applies the flag e that sets one key of an inline model, such as --model.hidden-size.
func (l *loader) modelKey(e entry) {
	m := &l.c.Model
	if m.Preset != "" {
		*m = ModelRef{Inline: map[string]any{"preset": m.Preset}}
	}
	if m.Inline == nil {
		l.fail(e.pos.errorf("this sets a key of an inline model, but no preset or inline model is given: give --model"))
		return
	}
	m.Inline[strings.TrimPrefix(e.spelled, "model.")] = e.val.inline()
	l.c.sources[e.spelled] = keySource{e.spelled, e.val.pos}
}

// other handles an entry that is no key of mt. If it is a known key of another tool, it waits for foreignKeys. Any
// other key is recorded as an error.
func (l *loader) other(e entry) {
	if _, ok := foreign[e.spelled]; ok {
		l.foreign = append(l.foreign, e)
		return
	}
	if e.pos.Flag != "" && flagName(e.spelled) != flagName(e.pos.Flag) { // a flag gave a mapping with this key
		l.fail(e.pos.errorf("unknown key %q%s", e.spelled, suggest(e.spelled, slices.Collect(maps.Keys(byName)))))
		return
	}
	if e.pos.Flag != "" {
		l.fail(e.pos.errorf("unknown key%s", suggest(flagName(e.spelled), flagNames())))
		return
	}
	names := append(slices.Collect(maps.Keys(byName)), pipelineKey)
	l.fail(e.pos.errorf("unknown key %q%s", e.spelled, suggest(e.spelled, names)))
}

// flagName returns the command-line flag for the name of a key or flag: "--max-steps" for max_steps.
func flagName(name string) string {
	return "--" + strings.ReplaceAll(strings.TrimPrefix(name, "--"), "_", "-")
}

// flagNames returns all flags of mt train.
func flagNames() []string {
	out := []string{"--" + pipelineKey, "--dry-run", "--json", "--help", "--help-all"}
	for name := range byName {
		out = append(out, flagName(name))
	}
	return out
}

// foreignKeys checks the given keys that only other tools have, with the functions in foreign. A key that mt cannot
// obey is an error. One warning lists the keys that mt ignores.
func (l *loader) foreignKeys() {
	last := map[string]entry{}
	for _, e := range l.foreign {
		last[e.spelled] = e // a flag wins over the file
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		e := last[name]
		if reason := foreign[name](e.val, l.c); reason != "" {
			sep := name + ": " + e.val.shown() + ": "
			if e.pos.Flag != "" {
				sep = e.val.shown() + ": "
			}
			l.fail(e.val.pos.errorf("%s%s", sep, reason))
		}
	}
	if len(last) > 0 {
		l.c.warnf("these keys of other tools have no effect in mt: %s", strings.Join(slices.Sorted(maps.Keys(last)), ", "))
	}
}

func (c *Config) warnf(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}
