package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Fate says what became of a key of another tool.
type Fate string

// The fates of keys.
const (
	Kept    Fate = "kept"
	Renamed Fate = "renamed"              // it has another name here, or another form
	Idle    Fate = "of no meaning here"   // nothing is lost by leaving it out
	Lost    Fate = "not possible"         // the run is another without it
	Theirs  Fate = "a default over there" // which is not ours, and so is written out
)

// Line is what became of one key of another tool.
type Line struct {
	Key  string // as it is called there, "datasets[0].type"; empty where Fate is Theirs
	Fate Fate
	Why  string // may be empty where Fate is Kept

	theirs entry
	ours   []entry // keys of mt
}

// Import is the config of another tool, read as one of mt.
type Import struct {
	Tool  string // as people call it
	Lines []Line // for every key, in the order of the file; then what is Theirs
	// Notes say what the keys leave open, and how it was read.
	Notes []string
	file  string
}

// tool is a trainer whose configs are read.
type tool struct {
	name  string               // as people call it
	word  string               // as --from takes it
	is    func(doc value) bool // tells its configs by their keys
	rules map[string]rule
	empty map[string]string  // keys that say something where they are left empty: why that is not possible
	last  func(im *importer) // writes out defaults, when all keys are taken
}

// rule takes one key of another tool.
type rule func(im *importer, e entry)

// tools are asked in this order whose a config is.
var tools []*tool

func init() { tools = []*tool{torchtune, llamaFactory, axolotl, trl} }

// ToolWords are the names that ReadImport takes.
func ToolWords() (out []string) {
	for _, t := range tools {
		out = append(out, t.word)
	}
	return out
}

// toolOf is the tool whose config doc is; nil where it is of none that is known.
func toolOf(doc value) *tool {
	if doc.kind != mapping {
		return nil
	}
	i := slices.IndexFunc(tools, func(t *tool) bool { return t.is(doc) })
	if i < 0 {
		return nil
	}
	return tools[i]
}

// get is the value of a key of a mapping; of kind null where there is none.
func (v value) get(name string) value {
	for _, f := range v.fields {
		if f.name == name {
			return f.val
		}
	}
	return value{}
}

// has tells whether a mapping has a key, if only an empty one.
func (v value) has(name string) bool {
	return slices.ContainsFunc(v.fields, func(f field) bool { return f.name == name })
}

// ReadImport reads the config of another tool. from is one of ToolWords; empty: its keys tell. An
// error says what is no config, or of nobody known, or trains in a way that mt does not.
func ReadImport(file, from string) (*Import, error) {
	src, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	return ParseImport(file, src, from)
}

// ParseImport is ReadImport of the text src; name stands for the file in messages.
func ParseImport(name string, src []byte, from string) (*Import, error) {
	doc, err := parseYAML(name, src)
	if err != nil {
		return nil, err
	}
	t := toolOf(doc)
	if from != "" {
		i := slices.IndexFunc(tools, func(t *tool) bool { return t.word == from })
		if i < 0 {
			return nil, Usagef("--from %s: wants %s%s", from, oneOf(ToolWords()), suggest(from, ToolWords()))
		}
		t = tools[i]
	}
	switch {
	case doc.kind != mapping:
		return nil, Usagef("%s: a config is `key: value` lines, this is %s", name, doc.kind)
	case t == nil:
		return nil, Usagef("%s: none of its keys is one by which LLaMA-Factory (stage and finetuning_type), axolotl (base_model and datasets), torchtune (_component_) "+
			"or TRL (dataset_name) would be known; say whose it is: --from %s", name, strings.Join(ToolWords(), ", "))
	}
	return t.read(name, doc)
}

// read takes all keys of doc.
func (t *tool) read(name string, doc value) (*Import, error) {
	im := &importer{doc: doc, tool: t, c: Default(), given: map[string]string{}}
	for _, f := range doc.fields {
		im.take(entry{f.name, f.pos, f.val})
	}
	t.last(im)
	if im.refused != nil {
		return nil, im.refused
	}
	return &Import{Tool: t.name, Lines: im.lines, Notes: im.notes, file: name}, nil
}

// importer reads one config.
type importer struct {
	doc     value
	tool    *tool
	c       *Config // what the keys so far say, for judges
	lines   []Line
	notes   []string
	given   map[string]string // keys of mt, and by which of theirs they were given
	refused error
}

// grouped is a whole number with underscores between its digits, as PyYAML reads it.
var grouped = regexp.MustCompile(`^[0-9]+(_[0-9]+)+$`)

// take takes a key: by the tool's rule, else as a key of mt or an alias of one, else as one of
// those that mt knows and has no use for.
func (im *importer) take(e entry) {
	if e.val.kind == plain && grouped.MatchString(e.val.text) {
		e.val.text = strings.ReplaceAll(e.val.text, "_", "")
	}
	reason, idle := idleKeys[e.spelled]
	switch rule := im.tool.rules[e.spelled]; {
	case e.val.kind == null && im.tool.empty[e.spelled] != "":
		im.lose(e, im.tool.empty[e.spelled])
	case e.val.kind == null || e.val.kind == quoted && e.val.text == "":
		im.idle(e, "it is left empty")
	case rule != nil:
		rule(im, e)
	case byName[e.spelled] != nil:
		im.give(e, byName[e.spelled].name, e.val)
	case idle:
		im.idle(e, reason)
	case foreign[e.spelled] != nil:
		if why := foreign[e.spelled](e.val, im.c); why != "" {
			im.lose(e, why)
			return
		}
		im.idle(e, "it says what mt does anyway")
	default: // also what was misspelled
		im.lose(e, "mt knows no such key"+suggest(e.spelled, im.names()))
	}
}

// names are all keys that are known, for suggestions.
func (im *importer) names() (out []string) {
	for name := range im.tool.rules {
		out = append(out, name)
	}
	for name := range byName {
		out = append(out, name)
	}
	return out
}

func (im *importer) idle(e entry, why string) {
	im.lines = append(im.lines, Line{Key: e.spelled, Fate: Idle, Why: why, theirs: e})
}

func (im *importer) lose(e entry, why string) {
	im.lines = append(im.lines, Line{Key: e.spelled, Fate: Lost, Why: why, theirs: e})
}

// refuse ends the import: the config trains in a way that mt does not.
func (im *importer) refuse(e entry, why string) {
	if im.refused == nil {
		im.refused = e.val.pos.errorf("%s: %s: %s", e.spelled, e.val.shown(), why)
	}
}

// give gives a key of mt a value, for a key of theirs. A value that the key does not take is
// lost.
func (im *importer) give(e entry, key string, v value) { im.giveFor(e, "", setting{key, v}) }

// setting is a key of mt with a value.
type setting struct {
	key string
	val value
}

// giveFor gives keys of mt values, for a key of theirs; why says how they follow from it.
func (im *importer) giveFor(e entry, why string, settings ...setting) {
	line := Line{Key: e.spelled, Fate: Renamed, Why: why, theirs: e}
	for _, s := range settings {
		k := byName[s.key]
		s.val = k.unquoted(s.val)
		if by, twice := im.given[k.name]; twice {
			if again := *im.c; k.set(&again, e.spelled, s.val) == nil && k.print(&again) == k.print(im.c) {
				continue // they agree
			}
			im.lose(e, fmt.Sprintf("%s says %s already", by, k.name))
			return
		}
		if err := k.set(im.c, e.spelled, s.val); err != nil {
			im.lose(e, wanted(err))
			return
		}
		im.c.origin[k.name] = origin{e.spelled, s.val.pos}
		im.given[k.name] = e.spelled
		line.ours = append(line.ours, entry{k.name, e.pos, s.val})
		if k.name == e.spelled && len(settings) == 1 {
			line.Fate = Kept
		}
	}
	if len(line.ours) == 0 {
		im.idle(e, "another key says it too")
		return
	}
	im.lines = append(im.lines, line)
}

// unquoted returns v as a plain value where k takes numbers and v is a number in quotes, which other tools read as a number.
func (k *key) unquoted(v value) value {
	switch k.field(&anyConfig).(type) {
	case *int, *int64, *float64, *Interval, *[]float64:
	default:
		return v
	}
	if text := strings.TrimSpace(v.text); v.kind == quoted && (floatText.MatchString(text) || grouped.MatchString(text)) {
		return plainAt(v, strings.ReplaceAll(text, "_", ""))
	}
	v.items = slices.Clone(v.items)
	for i, item := range v.items {
		v.items[i] = k.unquoted(item)
	}
	return v
}

// wanted is what a setter's error says, without where.
func wanted(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// orDefault writes out a default of theirs, where no key has given that of mt.
func (im *importer) orDefault(key, text, why string) {
	if _, given := im.given[key]; given || im.refused != nil {
		return
	}
	v := value{kind: plain, text: text}
	if err := byName[key].set(im.c, key, v); err != nil {
		panic("config: a default of " + im.tool.name + ": " + err.Error()) // the tables are tested
	}
	im.given[key] = im.tool.name
	im.lines = append(im.lines, Line{Fate: Theirs, Why: why, ours: []entry{{key, Pos{}, v}}})
}

// byDefault writes down a default of theirs for which mt has no key.
func (im *importer) byDefault(key, text, why string) {
	im.lines = append(im.lines, Line{Key: key, Fate: Theirs, Why: why, theirs: entry{key, im.doc.pos, value{kind: plain, text: text, pos: im.doc.pos}}})
}

// note says something of the whole config that its keys leave open.
func (im *importer) note(format string, args ...any) {
	im.notes = append(im.notes, fmt.Sprintf(format, args...))
}

// Lost are the keys that are not possible, each as an error that says where it stands.
func (im *Import) Lost() (out []error) {
	for _, l := range im.Lines {
		if l.Fate == Lost {
			out = append(out, l.pos().errorf("%s: %s: %s: %s", l.Key, clipped(l.theirs.val), l.Fate, l.Why))
		}
	}
	return out
}

// idle are the keys that have no meaning here.
func (im *Import) idle() (out []string) {
	for _, l := range im.Lines {
		if l.Fate == Idle {
			out = append(out, l.Key)
		}
	}
	return out
}

// entries are the keys of mt, with the places of theirs.
func (im *Import) entries() (out []entry) {
	for _, l := range im.Lines {
		out = append(out, l.ours...)
	}
	return out
}

// Config is what the import says, without what is lost. Its mistakes are those that keys make
// together.
func (im *Import) Config() (*Config, error) { return Parse(im.file, im.YAML(), Args{}) }

// pos is where the value stands, or the key that is left empty or not there.
func (l *Line) pos() Pos {
	if l.theirs.val.kind == null {
		return l.theirs.pos
	}
	return l.theirs.val.pos
}
