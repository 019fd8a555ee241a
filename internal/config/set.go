package config

import (
	"math"
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

// set gives the key k of c the value v; spelled is the name that the user gave the key.
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

// setter sets the field of a key to a value as it was written.
type setter struct {
	*key
	spelled string
	v       value
}

// fail is an error at the value. want says what the key takes, hints come last.
func (e *setter) fail(want string, hints ...string) error {
	name := e.spelled + ": "
	if e.v.pos.Flag != "" && !strings.Contains(e.spelled, "[") { // the flag has the name of its key, and not that of what is in a list
		name = ""
	}
	got := e.v.shown()
	if e.v.kind == null {
		got = "left empty"
	}
	return e.v.pos.errorf("%swants %s, is %s%s", name, want, got, strings.Join(hints, ""))
}

// expand replaces ~ and the variables in the paths of a key that has them.
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

// isAuto says whether the value leaves the key to mt.
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

// isWord says whether plain text is not a number, a truth value or nothing.
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
		return e.fail(oneOf(e.choices)+e.why(), suggest(s, e.choices))
	}
	*p = s
	return nil
}

// why says, in brackets, why mt does not have a choice that other tools have.
func (e *setter) why() string {
	switch {
	case e.name == "optim":
		return " (no others keep their state in host memory)"
	case e.name == "save_strategy" && e.v.text == "best":
		return " (none is kept for its evaluation: save at eval_steps, and compare the eval_loss of metrics.jsonl)"
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

// truth reads the spellings of true and false that YAML 1.1 has.
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

// devices takes auto, a number, or a list of numbers.
func (e *setter) devices(p *string) error {
	items := []string{}
	for _, item := range e.v.items {
		items = append(items, item.text)
	}
	switch text := strings.Trim(e.v.text, "[]"); {
	case e.v.kind == list:
		*p = "[" + strings.Join(items, ", ") + "]"
	case e.v.kind == null || e.v.kind == mapping || e.v.text == "":
		return e.fail("auto, a number of devices, or a list of GPUs such as [0, 2]")
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
		return 0, e.fail("a smaller number")
	}
	if err := e.inRange(float64(n)); err != nil {
		return 0, err
	}
	if e.name == "max_steps" {
		n = max(n, 0)
	}
	return n, nil
}

// zeroIsNone says whether leaving the key empty means its zero: "none".
func (e *setter) zeroIsNone() bool {
	return slices.Contains([]string{"max_steps", "save_total_limit", "max_samples", "evals_per_epoch", "saves_per_epoch"}, e.name)
}

func (e *setter) float(p *float64) error {
	if e.v.kind != plain || !floatText.MatchString(e.v.text) {
		return e.fail("a number")
	}
	x, err := strconv.ParseFloat(e.v.text, 64)
	if err != nil {
		return e.fail("a smaller number")
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

// inRange checks a number against the key's limit.
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
	if l.why != "" {
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
