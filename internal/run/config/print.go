package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mt/data"
)

// YAML formats c as a config file: every key under its canonical name, in a fixed order, with section comments.
// Parsing the result gives a Config equal to c. header becomes comment lines at the top; it may be empty.
func (c *Config) YAML(header string) []byte {
	return c.yaml(header, func(k *key) (bool, string) { return true, "" })
}

// Brief is YAML with only the keys that were given. comments maps names of keys to comments at the end of their
// lines.
func (c *Config) Brief(header string, comments map[string]string) []byte {
	return c.yaml(header, func(k *key) (bool, string) { return c.Given(k.name), comments[k.name] })
}

// yaml formats those keys of c for which choose returns taken. The comment that choose returns stands behind the key;
// it may be empty. header becomes comment lines at the top.
func (c *Config) yaml(header string, choose func(*key) (taken bool, comment string)) []byte {
	var b bytes.Buffer
	for line := range strings.Lines(header) {
		fmt.Fprintf(&b, "# %s\n", strings.TrimRight(line, "\n"))
	}
	for _, s := range sections {
		titled, inPipeline := false, false
		for i := range s.keys {
			k := &s.keys[i]
			taken, comment := choose(k)
			text := k.print(c)
			if !taken {
				continue
			}
			if !titled {
				fmt.Fprintf(&b, "\n# %s\n", s.title)
			}
			titled = true
			if k.isPipeline() && !inPipeline {
				b.WriteString(pipelineKey + ":\n")
				inPipeline = true
			}
			if text == "" {
				continue
			}
			if comment != "" {
				comment = "  # " + comment
			}
			fmt.Fprintf(&b, "%s: %s%s\n", k.shownName(c), text, comment)
		}
	}
	return bytes.TrimLeft(b.Bytes(), "\n")
}

// shownName returns the name of k as c's config file shows it. A pipeline key is indented under `pipeline:`. The
// model's key is `model` for a preset or an inline model.
func (k *key) shownName(c *Config) string {
	switch {
	case k.isPipeline():
		return "  " + strings.TrimPrefix(k.name, pipelineKey+".")
	case k.name == modelKey && c.Model.Path == "":
		return "model"
	}
	return k.name
}

// Values maps every key to its value as YAML.
func (c *Config) Values() map[string]string {
	out := map[string]string{}
	eachKey(func(k *key) { out[k.name] = k.print(c) })
	return out
}

// Deciding maps each key with a Part to its value as YAML. Only these keys decide what a run computes and writes.
func (c *Config) Deciding() map[string]string {
	out := map[string]string{}
	eachKey(func(k *key) {
		if k.part != "" {
			out[k.name] = k.print(c)
		}
	})
	return out
}

// print formats the value of k as YAML on one line; "" if no model is given.
func (k *key) print(c *Config) string {
	switch p := k.field(c).(type) {
	case *ModelRef:
		return p.print()
	case *map[string]any:
		return flow(*p)
	case *[]string:
		if len(k.choices) > 0 && len(*p) == 0 {
			return k.choices[0]
		}
		return flow(anys(*p))
	case *[]float64:
		return flow(anys(*p))
	case *[]data.Set:
		return setsText(*p)
	case *[]LRGroup:
		return groupsText(*p)
	case *bool:
		return strconv.FormatBool(*p)
	case *Toggle:
		return string(*p)
	case *Bytes:
		if *p == 0 && k.auto {
			return "auto"
		}
		return p.exact()
	case *int:
		if *p == 0 && k.auto {
			return "auto"
		}
		if *p == 0 && k.name == "max_steps" {
			return "-1"
		}
		return strconv.Itoa(*p)
	case *int64:
		return strconv.FormatInt(*p, 10)
	case *float64:
		return number(*p)
	case *Interval:
		return p.text()
	case *string:
		if k.name == devicesKey {
			return *p
		}
		if k.name == dashboardKey && (*p == "" || *p == "auto") {
			return strconv.FormatBool(*p != "")
		}
		if len(k.choices) > 0 && isWord(*p) || k.name == "resume_from_checkpoint" && (*p == "auto" || *p == "false") {
			return *p
		}
		return flow(*p)
	}
	panic("config: key " + k.name + " has a field of unknown type")
}

func (m ModelRef) print() string {
	switch {
	case m.Path != "":
		return flow(m.Path)
	case m.Preset != "":
		return flow(m.Preset)
	case m.Inline != nil:
		return flow(m.Inline)
	}
	return ""
}

func anys[T any](in []T) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

// flow formats x on one line in YAML's flow style, with sorted keys. x has one of the types that value.inline returns:
// JSON-like Go values with int64 for whole numbers.
func flow(x any) string {
	switch x := x.(type) {
	case string:
		return scalarText(x)
	case float64:
		return number(x)
	case []any:
		parts := make([]string, len(x))
		for i := range x {
			parts[i] = flow(x[i])
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(x))
		for _, k := range slices.Sorted(maps.Keys(x)) {
			parts = append(parts, scalarText(k)+": "+flow(x[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case nil:
		return "null"
	}
	return fmt.Sprint(x)
}

// bare matches text that needs no quotes anywhere in YAML: a word or a path.
var bare = regexp.MustCompile(`^[A-Za-z_./][A-Za-z0-9_./+-]*$`)

// scalarText formats s as a YAML scalar. s gets quotes unless it is a word that no YAML reader takes for a number, a
// truth value or mt's auto.
func scalarText(s string) string {
	if _, isString := scalar(s).(string); isString && isWord(s) && bare.MatchString(s) && s != "auto" {
		return s
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic("config: " + err.Error()) // text always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// number formats x with a decimal point, so every YAML reader takes it for a float.
func number(x float64) string {
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if strings.ContainsAny(s, ".") {
		return s
	}
	if mantissa, exp, ok := strings.Cut(s, "e"); ok {
		return mantissa + ".0e" + exp
	}
	return s + ".0"
}

// defaultText returns the value of k in d, the default Config, or "" if the value is empty.
func (k *key) defaultText(d *Config) string {
	switch text := k.print(d); text {
	case `""`, "[]", "{}":
		return ""
	default:
		return text
	}
}

// Help writes the table of keys with their meanings and defaults as text. all adds the keys that are rarely needed,
// and all aliases.
func Help(w io.Writer, all bool) error {
	var b bytes.Buffer
	d := Default()
	for _, s := range sections {
		titled := false
		for i := range s.keys {
			k := &s.keys[i]
			if !all && !k.common {
				continue
			}
			if !titled {
				fmt.Fprintf(&b, "\n%s:\n", s.title)
				titled = true
			}
			k.help(&b, d, all)
		}
	}
	_, err := w.Write(b.Bytes())
	return err
}

// The columns of Help: meanings begin after helpIndent characters, and lines end at helpWidth.
const (
	helpIndent = 33
	helpWidth  = 100
)

// help appends the lines of text about k to b, with k's aliases if aliases is true. d is the default Config.
func (k *key) help(b *bytes.Buffer, d *Config, aliases bool) {
	text := k.doc
	if values, def := strings.Join(k.choices, ", "), k.defaultText(d); len(k.choices) > 1 {
		text += fmt.Sprintf(" (%s; default %s)", values, def)
	} else if def != "" {
		text += fmt.Sprintf(" (default %s)", def)
	}
	lines := wrap(text, helpWidth-helpIndent)
	if aliases && len(k.aliases) > 0 {
		lines = append(lines, "also: "+strings.Join(k.aliases, ", "))
	}
	for i, line := range lines {
		name := ""
		if i == 0 {
			name = k.name
		}
		fmt.Fprintf(b, "  %-*s %s\n", helpIndent-3, name, line)
	}
}

// wrap breaks text at spaces into lines of at most width characters. A longer word is a line of its own.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = word
			continue
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
