package config

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"mt/data"
)

var (
	intText   = regexp.MustCompile(`^[-+]?[0-9]+$`)
	floatText = regexp.MustCompile(`^[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?$`)
)

// set stores v in c's field for k. spelled is the name under which the user gave the key.
func (k *key) set(c *Config, spelled string, v value) error {
	e := &setter{key: k, spelled: spelled, v: v}
	switch p := k.field(c).(type) {
	case *ModelRef:
		return e.model(p)
	case *[]string:
		if err := e.list(p); err != nil {
			return err
		}
		return e.expand(*p)
	case *[]float64:
		return e.numbers(p)
	case *[]data.Set:
		return e.sets(p)
	case *[]LRGroup:
		return e.groups(p)
	case *bool:
		return e.boolean(p)
	case *Toggle:
		return e.toggle(p)
	case *map[string]any:
		return e.mapping(p)
	case *Bytes:
		return e.bytes(p)
	case *int:
		n, err := e.integer()
		*p = int(n)
		return err
	case *int64:
		n, err := e.integer()
		*p = n
		return err
	case *float64:
		return e.float(p)
	case *Interval:
		return e.interval(p)
	case *string:
		if err := e.text(p); err != nil {
			return err
		}
		one := []string{*p}
		err := e.expand(one)
		*p = one[0]
		return err
	}
	panic("config: key " + k.name + " has a field of unknown type")
}

// setter converts v, a key's value as the user wrote it, and stores it in the key's field.
type setter struct {
	*key
	spelled string
	v       value
}

// fail returns an error at the value's position. want describes the values that the key accepts. hints are appended to
// the text.
func (e *setter) fail(want string, hints ...string) error {
	name := e.spelled + " "
	if e.v.pos.Flag != "" && !strings.Contains(e.spelled, "[") { // a flag's position already names the key, except for an item of a list
		name = ""
	}
	got := "not " + e.v.shown()
	if e.v.kind == null {
		got = "but is left empty"
	}
	return e.v.pos.errorf("%smust be %s, %s%s", name, want, got, strings.Join(hints, ""))
}

// expand replaces a leading ~ and ${NAME} in paths if the key has vars set; otherwise it changes nothing.
func (e *setter) expand(paths []string) error {
	if !e.vars {
		return nil
	}
	for i, path := range paths {
		out, err := data.ExpandVars(path)
		if err != nil {
			return e.v.pos.errorf("%s: %w", e.spelled, err)
		}
		paths[i] = out
	}
	return nil
}

// isAuto reports whether the value is "auto" or empty for a key that allows auto, so that mt chooses the value.
func (e *setter) isAuto() bool { return e.auto && (e.v.kind == null || e.v.text == "auto") }

func (e *setter) text(p *string) error {
	if len(e.choices) > 0 {
		return e.choice(p)
	}
	switch e.name {
	case "resume_from_checkpoint":
		return e.resume(p)
	case dashboardKey:
		return e.dashboard(p)
	case devicesKey:
		return e.devices(p)
	}
	if e.v.kind == null && *p == "" {
		return nil
	}
	if e.v.kind == quoted || e.v.kind == plain && (e.v.pos.Flag != "" || isWord(e.v.text)) {
		*p = e.v.text
		return nil
	}
	if e.v.kind == plain {
		return e.fail("text (put quotes around it)")
	}
	return e.fail("text")
}

// isWord reports whether s, text without quotes, can only be a word: neither a number nor a truth value such as yes.
func isWord(s string) bool {
	_, isBool := truth(s)
	return !isBool && !floatText.MatchString(s)
}

func (e *setter) choice(p *string) error {
	s := strings.ToLower(e.v.text)
	if to, ok := e.spellings[s]; ok {
		s = to
	}
	if e.v.kind == null && slices.Contains(e.choices, "auto") {
		s = "auto"
	}
	if e.v.kind > quoted || !slices.Contains(e.choices, s) {
		if e.name == "save_strategy" && s == "best" {
			return e.fail(oneOf(e.choices), "; save_best: true keeps the checkpoint with the lowest eval_loss")
		}
		return e.fail(oneOf(e.choices)+e.why(), suggest(s, e.choices))
	}
	*p = s
	return nil
}

// why returns the reason why mt lacks values of the key that other tools have, in brackets for an error; "" for most
// keys.
func (e *setter) why() string {
	if e.name == "optim" {
		return " (no other optimizer keeps its state in host memory)"
	}
	return ""
}

func oneOf(choices []string) string {
	if len(choices) == 1 {
		return choices[0]
	}
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// truth parses YAML 1.1's spellings of true and false.
func truth(s string) (val, ok bool) {
	switch strings.ToLower(s) {
	case "true", "yes", "on":
		return true, true
	case "false", "no", "off":
		return false, true
	}
	return false, false
}

func (e *setter) boolean(p *bool) error {
	val, ok := truth(e.v.text)
	if !ok || e.v.kind != plain {
		return e.fail("true or false")
	}
	*p = val
	return nil
}

func (e *setter) toggle(p *Toggle) error {
	if e.v.kind == null || e.v.text == "auto" {
		*p = Auto
		return nil
	}
	val, ok := truth(e.v.text)
	if !ok || e.v.kind != plain {
		return e.fail("true, false or auto")
	}
	*p = Off
	if val {
		*p = On
	}
	return nil
}

func (e *setter) resume(p *string) error {
	val, isBool := truth(e.v.text)
	switch {
	case e.v.kind > quoted || e.v.kind == quoted && e.v.text == "":
		return e.fail("auto, false or a checkpoint's directory")
	case e.v.kind == null || e.v.kind == plain && isBool && val:
		*p = "auto"
	case e.v.kind == plain && isBool:
		*p = "false"
	default:
		*p = e.v.text
	}
	return nil
}

func (e *setter) dashboard(p *string) error {
	val, isBool := truth(e.v.text)
	switch {
	case e.v.kind > quoted || e.v.kind == null || e.v.text == "":
		return e.fail("true, false or an address such as 9000 or 0.0.0.0:9000")
	case e.v.kind == plain && isBool && !val:
		*p = ""
	case e.v.kind == plain && isBool:
		*p = "auto"
	default:
		*p = e.v.text
	}
	return nil
}

// devices parses auto, a number of devices, or a list of their numbers, and stores it as text in *p.
func (e *setter) devices(p *string) error {
	items := []string{}
	for _, item := range e.v.items {
		items = append(items, item.text)
	}
	switch text := strings.Trim(e.v.text, "[]"); {
	case e.v.kind == list:
		*p = "[" + strings.Join(items, ", ") + "]"
	case e.v.kind == null || e.v.kind == mapping || e.v.text == "":
		return e.fail(wantDevices)
	case text != e.v.text || strings.Contains(text, ","):
		*p = "[" + strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }), ", ") + "]"
	default:
		*p = text
	}
	return nil
}

func (e *setter) integer() (int64, error) {
	if e.isAuto() || e.v.kind == null && e.zeroIsNone() {
		return 0, nil
	}
	if e.v.kind != plain || !intText.MatchString(e.v.text) {
		return 0, e.fail("a whole number" + e.orAuto())
	}
	n, err := strconv.ParseInt(e.v.text, 10, 64)
	if err != nil {
		return 0, e.fail("a number of at most 64 bits")
	}
	if err := e.inRange(float64(n)); err != nil {
		return 0, err
	}
	if e.name == "max_steps" {
		n = max(n, 0)
	}
	return n, nil
}

// zeroIsNone reports whether the key is one for which a value left empty stands for 0, in the sense of no limit or
// never.
func (e *setter) zeroIsNone() bool {
	return slices.Contains([]string{"max_steps", "save_total_limit", "max_samples", "evals_per_epoch", "saves_per_epoch"}, e.name)
}

func (e *setter) float(p *float64) error {
	if e.v.kind != plain || !floatText.MatchString(e.v.text) {
		return e.fail("a number")
	}
	x, err := strconv.ParseFloat(e.v.text, 64)
	if err != nil {
		return e.fail("a number below 1.8e308")
	}
	if err := e.inRange(x); err != nil {
		return err
	}
	if e.name == "val_size" && x >= 1 && (x != math.Trunc(x) || x > 1<<53) {
		return e.fail("a share below 1 or a whole number of rows")
	}
	*p = x
	return nil
}

func (e *setter) bytes(p *Bytes) error {
	if e.isAuto() {
		*p = 0
		return nil
	}
	n, err := humanize.ParseBytes(e.v.text)
	if e.v.kind > quoted || e.v.kind == null || err != nil || n > 1<<62 {
		return e.fail("a size such as 10GiB" + e.orAuto())
	}
	if err := e.inRange(float64(n)); err != nil {
		return err
	}
	*p = Bytes(n)
	return nil
}

func (e *setter) orAuto() string {
	if e.auto {
		return " or auto"
	}
	return ""
}

// inRange returns an error if x lies outside the key's limit.
func (e *setter) inRange(x float64) error {
	l := e.limit
	low := x < l.min || l.open && x == l.min
	high := x > l.max || l.below && x == l.max
	if !low && !high {
		return nil
	}
	want := "at least " + e.limitText(l.min)
	switch {
	case low && l.open:
		want = "more than " + e.limitText(l.min)
	case high && l.below:
		want = "less than " + e.limitText(l.max)
	case high:
		want = "at most " + e.limitText(l.max)
	}
	want += e.orAuto()
	if l.why != "" && high == l.aboutMax() {
		want += " (" + l.why + ")"
	}
	return e.fail(want)
}

func (e *setter) limitText(x float64) string {
	if _, ok := e.field(Default()).(*Bytes); ok {
		return Bytes(x).String()
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}

// list parses a YAML list, or text with commas between items, and stores it in *p. A flag also accepts a YAML list in
// brackets. Commas inside a glob's braces or a regular expression's brackets do not split.
func (e *setter) list(p *[]string) error {
	v, err := e.bracketed()
	if err != nil {
		return err
	}
	var out []string
	switch {
	case v.kind == null:
	case v.kind == list:
		for i, item := range v.items {
			if item.kind != quoted && item.kind != plain || item.text == "" {
				return (&setter{key: e.key, spelled: fmt.Sprintf("%s[%d]", e.spelled, i), v: item}).fail("text")
			}
			out = append(out, item.text)
		}
	case v.kind == mapping || v.kind == plain && v.pos.Flag == "" && !isWord(v.text):
		return e.fail("text or a list of texts")
	case e.whole:
		out = []string{v.text}
	default:
		out = splitList(v.text, e.nesting())
	}
	if len(e.choices) > 0 {
		return e.reports(p, out)
	}
	*p = out
	return nil
}

// bracketed returns e's value. A flag's text in brackets is first parsed as a YAML list. If the parse fails, the text
// stays text for a key with whole set (one item, commas included), and is an error for others.
func (e *setter) bracketed() (value, error) {
	text := strings.TrimSpace(e.v.text)
	if e.v.kind != plain || e.v.pos.Flag == "" || !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		return e.v, nil
	}
	v, err := e.written()
	if err != nil && e.whole {
		return e.v, nil
	}
	return v, err
}

// nesting returns the kinds of brackets, such as "{}", inside which a comma does not split the key's list.
func (e *setter) nesting() string {
	switch {
	case e.commas:
		return ""
	case e.patterns:
		return "{}[]()"
	}
	return "{}"
}

// numbers parses a list of numbers, either a YAML list or text with commas between them, and stores it in *p.
func (e *setter) numbers(p *[]float64) error {
	written, err := e.bracketed()
	if err != nil {
		return err
	}
	items := []value{written}
	switch written.kind {
	case null:
		items = nil
	case list:
		items = written.items
	case plain, quoted:
		items = nil
		for _, s := range splitList(written.text, "") {
			items = append(items, value{kind: plain, text: s, pos: written.pos})
		}
	}
	var out []float64
	for i, v := range items {
		var x float64
		if err := (&setter{key: e.key, spelled: fmt.Sprintf("%s[%d]", e.spelled, i), v: v}).float(&x); err != nil {
			return err
		}
		out = append(out, x)
	}
	*p = out
	return nil
}

// reports sets report_to to the destinations in in. "none" is dropped. "all" stands for every destination, as in
// transformers.TrainingArguments; it includes mlflow only if MLFLOW_TRACKING_URI is set.
func (e *setter) reports(p *[]string, in []string) error {
	var out []string
	add := func(s string) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	for _, s := range in {
		switch {
		case !slices.Contains(e.choices, s):
			bad := *e
			bad.v = value{kind: plain, text: s, pos: e.v.pos}
			hint := suggest(s, e.choices)
			if s == "trackio" {
				hint = "; give tensorboard, whose event files trackio.import_tf_events reads (docs/watching.md)"
			}
			return bad.fail("tensorboard, mlflow, all or none (metrics.jsonl is always written)", hint)
		case s == "all":
			add("tensorboard")
			if os.Getenv("MLFLOW_TRACKING_URI") != "" {
				add("mlflow")
			}
		case s != "none":
			add(s)
		}
	}
	*p = out
	return nil
}

// splitList splits s at commas outside the bracket pairs in nesting, such as "{}[]". If nesting has round brackets, s
// holds regular expressions, and a backslash escapes a bracket.
func splitList(s, nesting string) []string {
	var out []string
	depth, start, escaped := 0, 0, false
	add := func(item string) {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	for i, r := range s {
		at := strings.IndexRune(nesting, r)
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = strings.Contains(nesting, "(")
		case at >= 0 && at%2 == 0:
			depth++
		case at >= 0:
			depth--
		case r == ',' && depth <= 0:
			add(s[start:i])
			start = i + 1
		}
	}
	add(s[start:])
	return out
}

// model parses the value as a model and stores it in *p. A mapping is an inline config. Under the key `model`, text
// without a slash is a preset unless a directory of that name exists. All other text is a path or a Hub id.
func (e *setter) model(p *ModelRef) error {
	switch {
	case e.v.kind == mapping && e.spelled == "model":
		if len(e.v.fields) == 0 {
			return e.fail("a preset's name, a directory or the keys of a config.json")
		}
		*p = ModelRef{Inline: e.v.inline().(map[string]any)}
		return nil
	case e.v.kind == mapping:
		return e.fail("a directory or a Hub id (give an inline config under the key model)")
	case e.v.kind != quoted && e.v.kind != plain || e.v.text == "":
		return e.fail("a directory or a Hub id")
	}
	name := e.v.text
	if e.spelled == "model" && !strings.ContainsAny(name, `/\`) && !isDir(name) {
		*p = ModelRef{Preset: name}
		return nil
	}
	*p = ModelRef{Path: name}
	return nil
}

// mapping parses a mapping with values of any type and stores it in *p.
func (e *setter) mapping(p *map[string]any) error {
	switch {
	case e.v.kind == null || e.v.kind == mapping && len(e.v.fields) == 0:
		*p = nil
	case e.v.kind == mapping:
		*p = e.v.inline().(map[string]any)
	default:
		return e.fail("a mapping such as " + map[string]string{preferenceKey: "{beta: 0.1}", specialTokensKey: `{eos_token: "<|im_end|>"}`,
			kwargsKey: "{num_cycles: 3}", "chat_template_kwargs": "{enable_thinking: false}"}[e.name])
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// inline converts v to the Go values that JSON decoding gives, but with int64 for whole numbers.
func (v value) inline() any {
	switch v.kind {
	case quoted:
		return v.text
	case plain:
		return scalar(v.text)
	case list:
		out := make([]any, 0, len(v.items))
		for _, item := range v.items {
			out = append(out, item.inline())
		}
		return out
	case mapping:
		out := make(map[string]any, len(v.fields))
		for _, f := range v.fields {
			out[f.name] = f.val.inline()
		}
		return out
	}
	return nil
}

// scalar returns the value of a plain YAML scalar: bool, nil, int64, float64 or string.
func scalar(s string) any {
	switch strings.ToLower(s) {
	case "true":
		return true
	case "false":
		return false
	case "null", "~", "":
		return nil
	}
	if intText.MatchString(s) {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n
		}
	}
	if floatText.MatchString(s) {
		if x, err := strconv.ParseFloat(s, 64); err == nil {
			return x
		}
	}
	return s
}
