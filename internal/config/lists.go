package config

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// list sets a list from a YAML list, or from text with commas between items. A flag also takes a YAML list in
// brackets. Commas in the braces of a glob, or in the brackets of a regular expression, do not count.
func (e *setter) list(p *[]string) error {
	v, err := e.bracketed()
	if err != nil {
		return err
	}
	var out []string
	switch {
	case v.kind == null:
	case v.kind == list:
		for _, item := range v.items {
			if item.kind != quoted && item.kind != plain || item.text == "" {
				return (&setter{key: e.key, spelled: e.spelled, v: item}).fail("text in its list")
			}
			out = append(out, item.text)
		}
	case v.kind == mapping || v.kind == plain && v.pos.Flag == "" && !isWord(v.text):
		return e.fail("text or a list")
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

// bracketed is the value, or the YAML list that a flag has in brackets. Text of a whole key that is no such list stays text.
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

// nesting is the brackets in which a comma does not end an item of the key's list.
func (e *setter) nesting() string {
	switch {
	case e.commas:
		return ""
	case e.patterns:
		return "{}[]()"
	}
	return "{}"
}

// numbers sets a list of numbers, from a YAML list or from text with commas.
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
	for _, v := range items {
		var x float64
		if err := (&setter{key: e.key, spelled: e.spelled, v: v}).float(&x); err != nil {
			return err
		}
		out = append(out, x)
	}
	*p = out
	return nil
}

// reports sets report_to to in, without "none". "all" stands for all the others, as in
// transformers.TrainingArguments; mlflow is one of them where a server is named.
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

// splitList cuts s at its commas, but for those inside the brackets that nesting pairs up, such as "{}[]". A backslash
// takes a bracket its meaning where nesting has round ones, as in a regular expression.
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

// model sets the model. A mapping is an inline config. Under the key `model`
// text without a slash is a preset, unless such a directory exists; all else is
// a path or a Hub id.
func (e *setter) model(p *ModelRef) error {
	switch {
	case e.v.kind == mapping && e.spelled == "model":
		if len(e.v.fields) == 0 {
			return e.fail("a preset's name, a directory or the keys of a config.json")
		}
		*p = ModelRef{Inline: e.v.inline().(map[string]any)}
		return nil
	case e.v.kind == mapping:
		return e.fail("a directory or a Hub id (an inline config is given as model)")
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

// mapping sets a mapping of any values.
func (e *setter) mapping(p *map[string]any) error {
	switch {
	case e.v.kind == null || e.v.kind == mapping && len(e.v.fields) == 0:
		*p = nil
	case e.v.kind == mapping:
		*p = e.v.inline().(map[string]any)
	default:
		example := "{enable_thinking: false}"
		if e.spelled == preferenceKey {
			example = "{beta: 0.1}"
		}
		return e.fail("a mapping such as " + example)
	}
	return nil
}

func isDir(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// inline is v as JSON would have it, with int64 for whole numbers.
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

// scalar is the value that YAML takes the plain scalar s for: a bool, nil, int64,
// float64 or string.
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
