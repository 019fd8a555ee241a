package config

import (
	"bytes"
	_ "embed" // for import.txt
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mt/data"
)

// Fate is what became of another tool's key in the conversion.
type Fate string

// The fates of keys.
const (
	Kept    Fate = "kept"
	Renamed Fate = "renamed"              // it has another name or form in mt
	Idle    Fate = "of no meaning here"   // mt has no use for it; dropping it loses nothing
	Lost    Fate = "not possible"         // mt cannot do it; without it the run is a different one
	Theirs  Fate = "a default over there" // a default of the other tool that differs from mt's, so it is written out
)

// Line describes what happened to one key of another tool.
type Line struct {
	Key  string // its name in the other tool, "datasets[0].type"; empty if Fate is Theirs
	Fate Fate
	Why  string // may be empty if Fate is Kept

	theirs entry
	ours   []entry // the keys of mt that replace it
}

// Import is another tool's config, converted to keys of mt.
type Import struct {
	Tool  string // display name
	Lines []Line // one per key, in the file's order; then lines with Theirs
	// Notes tell what the converted keys do not determine, and what ReadImport assumed.
	Notes []string
	file  string
}

// tool is a trainer, such as axolotl, whose configs mt can read.
type tool struct {
	name  string               // display name
	word  string               // name for --from
	is    func(doc value) bool // reports whether doc is one of the tool's configs, judged by its keys
	rules map[string]rule
	empty map[string]string  // keys for which an empty value has a meaning → why mt cannot do it
	last  func(im *importer) // runs after all keys and writes out defaults
}

// rule converts e, one key of another tool's config, and records in im what became of the key.
type rule func(im *importer, e entry)

// tools lists all tools. toolOf takes the first one that recognizes a config.
var tools []*tool

func init() { tools = []*tool{torchtune, llamaFactory, axolotl, trl} }

// ToolWords returns the names that ReadImport accepts.
func ToolWords() (out []string) {
	for _, t := range tools {
		out = append(out, t.word)
	}
	return out
}

// toolOf returns the tool that wrote doc, or nil for an unknown tool.
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

// get returns the value under the key name of the mapping v. If v lacks the key or is no mapping, the kind of the
// result is null.
func (v value) get(name string) value {
	for _, f := range v.fields {
		if f.name == name {
			return f.val
		}
	}
	return value{}
}

// has reports whether a mapping has a key, even an empty one.
func (v value) has(name string) bool {
	return slices.ContainsFunc(v.fields, func(f field) bool { return f.name == name })
}

// ReadImport reads another tool's config. `from` is one of ToolWords; empty: the keys decide. It returns an error if
// the file is no config, if no tool recognizes it, or if its training method does not exist in mt.
func ReadImport(file, from string) (*Import, error) {
	src, err := readConfig(file)
	if err != nil {
		return nil, err
	}
	return ParseImport(file, src, from)
}

// ParseImport is ReadImport for the text src. Messages use name as the file's name.
func ParseImport(name string, src []byte, from string) (*Import, error) {
	doc, err := parseYAML(name, src)
	if err != nil {
		return nil, err
	}
	t := toolOf(doc)
	if from != "" {
		i := slices.IndexFunc(tools, func(t *tool) bool { return t.word == from })
		if i < 0 {
			return nil, Usagef("--from: must be %s, not %s%s", oneOf(ToolWords()), from, suggest(from, ToolWords()))
		}
		t = tools[i]
	}
	switch {
	case doc.kind != mapping:
		return nil, Usagef("%s: a config file has `key: value` lines, but this is %s", name, doc.kind)
	case t == nil:
		return nil, Usagef("%s: its keys do not show the tool it is for: LLaMA-Factory has stage and finetuning_type, axolotl base_model and datasets, torchtune _component_, "+
			"TRL dataset_name; name the tool with --from %s", name, strings.Join(ToolWords(), ", "))
	}
	return t.read(name, doc)
}

// read converts all keys of doc, a config of the tool t. name is the file's name.
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

// importer holds the state while one config of another tool is converted: its keys, the config of mt so far, and the
// lines of the report.
type importer struct {
	doc     value
	tool    *tool
	c       *Config // the keys of mt set so far; judges read them
	lines   []Line
	notes   []string
	given   map[string]string // key of mt → the other tool's key that set it
	refused error
}

// grouped matches a whole number with underscores between its digits, which PyYAML accepts.
var grouped = regexp.MustCompile(`^[0-9]+(_[0-9]+)+$`)

// take converts the key e. A rule of the tool comes first, then a key or alias of mt, then a key that is known to have
// no use.
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
	default: // also misspelled keys
		im.lose(e, "mt knows no such key"+suggest(e.spelled, im.names()))
	}
}

// names returns all keys that an import knows, for the suggestion after a misspelled key.
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

// refuse records the error that mt has no such training method as e asks for; `why` gives the reason. The import fails
// with the first error that was recorded.
func (im *importer) refuse(e entry, why string) {
	if im.refused == nil {
		im.refused = e.val.pos.errorf("%s: %s: %s", e.spelled, e.val.shown(), why)
	}
}

// give sets the key of mt called key to v because the other tool's config has e. If the key does not accept v, e gets
// the fate Lost.
func (im *importer) give(e entry, key string, v value) { im.giveFor(e, "", setting{key, v}) }

// setting is a key of mt with the value that an import gives it.
type setting struct {
	key string
	val value
}

// giveFor sets keys of mt because the other tool's config has e. why explains the values in the written config; it may
// be empty. If a key does not accept its value, or has another value already, e gets the fate Lost.
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
		im.c.sources[k.name] = keySource{e.spelled, s.val.pos}
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

// unquoted returns v as a plain value if v is text in quotes and k takes numbers, since other tools read quoted
// numbers as numbers. Otherwise it returns v.
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

// wanted returns the part of a setter's error that says which values the key accepts: the text without its position.
func wanted(err error) string {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(inner) {
		err = inner
	}
	return err.Error()
}

// orDefault sets mt's key to text, a default of the other tool, unless the config has already set the key.
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

// byDefault records a default of the other tool for which mt has no key, so that the written config mentions it.
func (im *importer) byDefault(key, text, why string) {
	im.lines = append(im.lines, Line{Key: key, Fate: Theirs, Why: why, theirs: entry{key, im.doc.pos, value{kind: plain, text: text, pos: im.doc.pos}}})
}

// note adds a note about the whole config to the import's report.
func (im *importer) note(format string, args ...any) {
	im.notes = append(im.notes, fmt.Sprintf(format, args...))
}

// Lost returns one error for each key that mt cannot convert. Each error begins with the key's position in the file.
func (im *Import) Lost() (out []error) {
	for _, l := range im.Lines {
		if l.Fate == Lost {
			out = append(out, l.pos().errorf("%s: %s: %s: %s", l.Key, clipped(l.theirs.val), l.Fate, l.Why))
		}
	}
	return out
}

// idle returns the keys that have no meaning in mt.
func (im *Import) idle() (out []string) {
	for _, l := range im.Lines {
		if l.Fate == Idle {
			out = append(out, l.Key)
		}
	}
	return out
}

// entries returns all keys of mt that the import sets. Each has the position of the other tool's key from which it
// comes.
func (im *Import) entries() (out []entry) {
	for _, l := range im.Lines {
		out = append(out, l.ours...)
	}
	return out
}

// Config parses the converted config, without the lost keys. Its errors come from keys that contradict each other.
func (im *Import) Config() (*Config, error) { return Parse(im.file, im.YAML(), Args{}) }

// pos returns the position of the other tool's value; if the value is empty or absent, the position of its key.
func (l *Line) pos() Pos {
	if l.theirs.val.kind == null {
		return l.theirs.pos
	}
	return l.theirs.val.pos
}

// to returns a rule that gives the other tool's value unchanged to the key of mt called key.
func to(key string) rule { return func(im *importer, e entry) { im.give(e, key, e.val) } }

//go:embed import.txt
var importText string

// importReasons replaces a name such as $noQuant, by which import.txt refers to a reason, by the text of the reason.
var importReasons = strings.NewReplacer("$noQuant", noQuant, "$noAdapter", noAdapter, "$noTowers", noTowers, "$noOtherLoss", noOtherLoss,
	"$noOtherOptimizer", noOtherOptimizer, "$noOtherTRL", noOtherTRL, "$tooLongTogether", tooLongTogether)

// eachImport calls f for every key in a section of import.txt. kind and why come from the line above the key: kind is
// "to KEY", idle, lost or refused.
func eachImport(section string, f func(key, kind, why string)) {
	_, text, _ := strings.Cut(importText, "\n== "+section+"\n")
	text, _, _ = strings.Cut(text, "\n== ")
	kind, why := "", ""
	for line := range strings.Lines(text) {
		if keys, ok := strings.CutPrefix(line, "\t"); ok {
			for _, key := range strings.Fields(keys) {
				f(key, kind, why)
			}
			continue
		}
		kind, why, _ = strings.Cut(strings.TrimSpace(line), ": ")
		why = importReasons.Replace(why)
	}
}

// tableRules returns a rule for each key in the named sections of import.txt.
func tableRules(sections ...string) map[string]rule {
	rules := map[string]rule{}
	for _, s := range sections {
		eachImport(s, func(key, kind, why string) {
			switch kind {
			case "idle":
				rules[key] = idle(why)
			case "lost":
				rules[key] = lost(why)
			case "refused":
				rules[key] = refused(why)
			default:
				rules[key] = to(strings.TrimPrefix(kind, "to "))
			}
		})
	}
	return rules
}

// idleIf returns a rule that drops a key whose value is text, for the reason why. A key with any other value gets the
// fate Lost, for the reason lost.
func idleIf(text, why, lost string) rule {
	return func(im *importer, e entry) {
		if e.val.is(text) {
			im.idle(e, why)
			return
		}
		im.lose(e, lost)
	}
}

// idle returns a rule that drops a key whatever its value. `why` is the reason that the report gives.
func idle(why string) rule { return func(im *importer, e entry) { im.idle(e, why) } }

// unlessOff returns a rule that applies r, but drops the key if its value switches it off.
func unlessOff(r rule) rule {
	return func(im *importer, e entry) {
		if e.val.unset() {
			im.idle(e, "it is off")
			return
		}
		r(im, e)
	}
}

// ifTrue returns a rule that applies r if the key's value is true. With any other value the key counts as off and is
// dropped.
func ifTrue(r rule) rule {
	return func(im *importer, e entry) {
		if !e.val.is("true") {
			im.idle(e, "it is off")
			return
		}
		r(im, e)
	}
}

// lost returns a rule that gives the key the fate Lost for the reason why. If the value switches the key off, the key
// is only dropped.
func lost(why string) rule { return unlessOff(func(im *importer, e entry) { im.lose(e, why) }) }

// refused returns a rule that makes the whole import fail for the reason why. If the value switches the key off, the
// key is only dropped.
func refused(why string) rule {
	return unlessOff(func(im *importer, e entry) { im.refuse(e, why) })
}

// means returns a rule that sets keys of mt to fixed values, whatever the value of the other tool's key. Each setting
// is a key and its value. why explains them.
func means(why string, settings ...[2]string) rule {
	return func(im *importer, e entry) {
		var all []setting
		for _, s := range settings {
			all = append(all, setting{s[0], plainAt(e.val, s[1])})
		}
		im.giveFor(e, why, all...)
	}
}

// orElse returns a rule that gives the value to a key of mt. If the key does not accept the value, the fate is Lost.
// The reason then names the value that mt uses instead (another).
func orElse(key, another string) rule {
	return func(im *importer, e entry) {
		if err := byName[key].set(Default(), e.spelled, e.val); err != nil {
			im.lose(e, wanted(err)+"; "+another+" takes its place")
			return
		}
		im.give(e, key, e.val)
	}
}

// templateText converts a key whose value is a chat template: Jinja text, a file, or a directory with a tokenizer.
func templateText(im *importer, e entry) {
	if err := data.CheckTemplate(e.val.text); err != nil {
		im.lose(e, err.Error())
		return
	}
	im.give(e, "template", textAt(e.val, e.val.text))
}

// with adds the rule r to rules once under each of the names.
func with(rules map[string]rule, r rule, names ...string) {
	for _, n := range names {
		rules[n] = r
	}
}

// is reports whether the value equals text, or both spell the same bool, such as yes and true.
func (v value) is(text string) bool {
	val, isBool := truth(v.text)
	want, wantsBool := truth(text)
	return v.kind <= quoted && v.kind != null && (v.text == text || isBool && wantsBool && val == want)
}

// count returns the value as a whole number. The bool is false if the value is no whole number.
func (v value) count() (int, bool) {
	n, err := strconv.Atoi(v.text)
	return n, err == nil && (v.kind == plain || v.kind == quoted)
}

// float returns the value as a floating-point number. The bool is false if the value is no number.
func (v value) float() (float64, bool) {
	x, err := strconv.ParseFloat(v.text, 64)
	return x, err == nil && (v.kind == plain || v.kind == quoted)
}

// each returns a list's items; any other value is its own only item.
func (v value) each() []value {
	if v.kind == list {
		return v.items
	}
	return []value{v}
}

// plainAt returns text as a plain value (without quotes) that has v's position, so that errors point there.
func plainAt(v value, text string) value { return value{kind: plain, text: text, pos: v.pos} }

// textAt returns text as a value in quotes that has v's position, so that errors point there.
func textAt(v value, text string) value { return value{kind: quoted, text: text, pos: v.pos} }

// trainerRules returns the rules for transformers.TrainingArguments, which LLaMA-Factory and TRL also accept. It adds
// the rules of a section of import.txt and those in more; a rule in more replaces one of the same key.
func trainerRules(section string, more map[string]rule) map[string]rule {
	rules := tableRules("trainer", section)
	maps.Copy(rules, map[string]rule{
		"warmup_steps": warmupRule, "bf16": bf16Rule, "report_to": reportRule, "optim_args": optimArgs, "tf32": tf32Rule,
		"data_seed": func(im *importer, e entry) { im.lose(e, "one seed decides all: see seed") },
	})
	maps.Copy(rules, more)
	return rules
}

// warmupRule converts warmup_steps. Since Transformers 5 a value below 1 is a share of all steps.
func warmupRule(im *importer, e entry) {
	if x, ok := e.val.float(); ok && x > 0 && x < 1 {
		im.give(e, "warmup_ratio", e.val)
		return
	}
	im.give(e, "warmup_steps", e.val)
}

var tf32Rule = idle("products are of bf16, or of fp32 throughout")

// bf16Rule converts the key bf16, or a key with a dtype. mt computes in bf16 on a GPU anyway, so true sets nothing.
// false becomes compute_dtype: fp32.
func bf16Rule(im *importer, e entry) {
	switch {
	case e.val.is("auto"), e.val.is("true"), e.val.is("full"), e.val.is("bf16"), e.val.is("bfloat16"):
		im.idle(e, "so it is on a GPU, beside fp32 masters: see compute_dtype and master_dtype")
	case im.doc.get("fp16").is("true"):
		im.idle(e, "fp16 is on instead")
	case e.val.is("false"):
		im.give(e, "compute_dtype", plainAt(e.val, "fp32"))
	default:
		im.give(e, "compute_dtype", e.val)
	}
}

// reportRule converts report_to and keeps the destinations that mt has. If the config names another destination, the
// key is also reported as Lost, with that destination in the reason.
func reportRule(im *importer, e entry) {
	var keep []value
	lostOne := ""
	for _, item := range e.val.each() {
		if e := (&setter{key: byName["report_to"], spelled: "report_to", v: item}); e.list(&[]string{}) != nil {
			lostOne = item.text
			continue
		}
		keep = append(keep, item)
	}
	if len(keep) > 0 {
		im.give(e, "report_to", value{kind: list, items: keep, pos: e.val.pos})
	}
	if lostOne != "" {
		im.lose(e, lostOne+" is not reported to; metrics.jsonl is always written, and tensorboard and mlflow can be")
	}
}

// stepsOfEpochs converts a key that counts how often per epoch something happens. It sets key to the interval as a
// share of all steps: 1 / (number · epochs).
func (im *importer) stepsOfEpochs(e entry, epochs float64, key string) {
	n, ok := e.val.count()
	switch {
	case !ok:
		im.give(e, key, e.val) // reports the error of a value that is no number
	case n == 0:
		im.idle(e, "it is off")
	default:
		im.giveFor(e, "a share of all steps, as over there", setting{key, plainAt(e.val, number(1/(float64(n)*epochs)))})
	}
}

// optimKeysOf maps other tools' names of optimizer settings to keys of mt.
var optimKeysOf = map[string]string{
	"name": "optim", "wd": "weight_decay", "weight_decay": "weight_decay", "momentum": "momentum", "nesterov": "nesterov", "ns_steps": "ns_steps",
	"eps": "adam_epsilon", "epsilon": "adam_epsilon", "adam_epsilon": "adam_epsilon", "adamw_eps": "adam_epsilon",
	"beta1": "adam_beta1", "adam_beta1": "adam_beta1", "beta2": "adam_beta2", "adam_beta2": "adam_beta2",
}

// optimNumbers converts e, an optimizer's settings as a mapping or as text such as "eps=1e-8,beta2=0.95"
// (Transformers). Together with them it sets the keys in more.
func (im *importer) optimNumbers(e entry, more ...setting) {
	fields := e.val.fields
	if e.val.kind == plain || e.val.kind == quoted {
		fields = append(fields, optimFields(e.val)...)
	}
	var settings []setting
	for _, f := range fields {
		switch key := optimKeysOf[f.name]; {
		case key != "":
			settings = append(settings, setting{key, f.val})
		case (f.name == "betas" || f.name == "adamw_betas") && len(f.val.items) == 2:
			settings = append(settings, setting{"adam_beta1", f.val.items[0]}, setting{"adam_beta2", f.val.items[1]})
		default:
			im.lose(entry{e.spelled + "." + f.name, f.pos, f.val}, "mt knows no such key of an optimizer")
		}
	}
	if settings = append(settings, more...); len(settings) > 0 {
		im.giveFor(e, "", settings...)
	}
}

// optimPart matches one setting in the text of optim_args up to the next comma: a name with a number, or with several
// numbers in brackets.
var optimPart = regexp.MustCompile(`[^,(\[]*(?:[(\[][^)\]]*[)\]])?[^,]*`)

// optimFields parses a text of settings such as "betas=(0.9,0.95),eps=1e-8" into fields. Numbers in brackets become a
// list.
func optimFields(v value) (fields []field) {
	for _, part := range optimPart.FindAllString(v.text, -1) {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, text, _ := strings.Cut(part, "=")
		text = strings.TrimSpace(text)
		val := plainAt(v, text)
		if inner := strings.Trim(text, "()[]"); inner != text {
			val = value{kind: list, pos: v.pos}
			for number := range strings.SplitSeq(inner, ",") {
				val.items = append(val.items, plainAt(v, strings.TrimSpace(number)))
			}
		}
		fields = append(fields, field{strings.TrimSpace(name), v.pos, val})
	}
	return fields
}

// optimArgs converts optim_args. It drops the key for AdamW, since the AdamW of Transformers ignores it.
func optimArgs(im *importer, e entry) {
	if optim := im.doc.get("optim"); optim.kind == null || optimizers[optim.text] == "adamw" {
		im.idle(e, "AdamW of Transformers reads adam_beta1, adam_beta2 and adam_epsilon instead")
		return
	}
	im.optimNumbers(e)
}

// YAML formats the import as a config file of mt. A comment after every original key says which key it became or why
// it was dropped.
func (im *Import) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by mt import from %s, a config of %s.\n", im.file, im.Tool)
	n := len(im.Lost())
	switch n {
	case 0:
		b.WriteString("# Nothing is lost.\n\n")
	case 1:
		b.WriteString("# What one of its keys says is lost: see \"not possible\".\n\n")
	default:
		fmt.Fprintf(&b, "# What %d of its keys say is lost: see \"not possible\".\n\n", n)
	}
	for _, note := range im.Notes {
		fmt.Fprintf(&b, "# %s\n", oneLine(note))
	}
	for _, l := range im.Lines {
		l.write(&b)
	}
	return b.Bytes()
}

// write appends one line to b: the keys of mt with a comment behind them. If no key of mt came of it, the original key
// becomes a comment.
func (l *Line) write(b *bytes.Buffer) {
	if len(l.ours) == 0 {
		fmt.Fprintf(b, "# %s: %s  # %s: %s\n", l.Key, clipped(l.theirs.val), l.Fate, oneLine(l.Why))
		return
	}
	for i, e := range l.ours {
		comment := ""
		if i == 0 {
			comment = "  # " + l.comment()
		}
		k := byName[e.spelled]
		text := k.written(e.val)
		if head, rest, several := strings.Cut(text, "\n"); several {
			fmt.Fprintf(b, "%s:%s%s\n%s\n", k.name, head, comment, rest)
			continue
		}
		fmt.Fprintf(b, "%s: %s%s\n", k.name, text, comment)
	}
}

// comment returns the text behind a key that was kept, renamed or set by default: its fate, its old name and the
// reason.
func (l *Line) comment() string {
	text := string(l.Fate)
	if l.Fate == Kept && !l.unchanged() {
		text = "from " + clipped(l.theirs.val)
	}
	if l.Fate == Renamed {
		text = "renamed from " + l.Key
		if len(l.ours) != 1 || byName[l.ours[0].spelled].written(l.ours[0].val) != clipped(l.theirs.val) {
			text = "from " + l.Key + ": " + clipped(l.theirs.val)
		}
	}
	if l.Why != "" {
		text += ": " + oneLine(l.Why)
	}
	return text
}

// unchanged reports whether a key with the fate Kept has the same value in mt's config as in the other tool's.
func (l *Line) unchanged() bool {
	k, c := byName[l.ours[0].spelled], Default()
	if k.set(c, k.name, l.theirs.val) != nil {
		return false
	}
	text := k.print(c)
	return k.set(c, k.name, l.ours[0].val) == nil && k.print(c) == text
}

// written formats v, a value of the key k, as YAML. Data sets and groups of learning rates take one line each, after a
// line break.
func (k *key) written(v value) string {
	c := Default()
	if err := k.set(c, k.name, v); err != nil {
		panic("config: " + k.name + " was set and cannot be printed: " + err.Error())
	}
	var items []string
	switch list := k.field(c).(type) {
	case *[]data.Set:
		for i := range *list {
			items = append(items, setsText((*list)[i:i+1]))
		}
	case *[]LRGroup:
		for i := range *list {
			items = append(items, groupsText((*list)[i:i+1]))
		}
	default:
		return k.print(c)
	}
	var b strings.Builder
	for _, text := range items {
		b.WriteString("\n  - " + text[1:len(text)-1])
	}
	return b.String()
}

// clipped formats the other tool's value v on one line for a comment, shortened to 100 characters.
func clipped(v value) string {
	if v.kind == null {
		return ""
	}
	text := oneLine(flow(v.inline()))
	if v.kind == plain {
		text = v.text
	}
	const most = 100
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return text
}

// oneLine replaces each run of white space in s by one space.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
