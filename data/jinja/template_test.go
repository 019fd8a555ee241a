package jinja

import (
	"errors"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"mt/internal/testkit"
)

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		source, want string
		raised       bool
	}{
		{"a\n  {{ 'é' + 1 }}", "e:2:10: unsupported operand type(s) for +: 'str' and 'int'", false},
		{"{{ raise_exception('no such role') }}", "e:1:19: no such role", true},
		{"{% if %}", "e:1:7: an expression is missing before '%}'", false},
		{"{% for m in messages %}", "e:1:24: the template ends, but endfor or else is missing", false},
		{"{% include 'x' %}", "e:1:4: {% include %} reads another file: it is refused", false},
		{"{{ x | nope }}", "e:1:8: there is no filter 'nope'", false},
		{"{{ x is nope }}", "e:1:9: there is no test 'nope'", false},
		{"{{ 1 + 1 < 'a' }}", "e:1:10: '<' not supported between instances of 'int' and 'str'", false},
		{"{{ messages[0].a.b }}", "e:1:17: 'dict object' has no attribute 'a'", false},
		{"{{ missing.b }}", "e:1:11: 'missing' is undefined", false},
		{"{{ lipsum() }}", "e:1:10: lipsum() makes random text, which is refused", false},
		{"{{ l.append(1) }}", "access to attribute 'append' of 'list' object is unsafe", false},
		{"{% nope %}", "e:1:4: unknown tag 'nope'", false},
		{"\xff", "e:1:1: the template is not UTF-8 here", false},
		{strings.Repeat("(", 1000) + "1", "", false},
	} {
		_, err := render("e", c.source, map[string]any{"messages": chat("user", "x"), "l": []any{int64(1)}})
		var e *Error
		if !errors.As(err, &e) {
			if c.want != "" {
				t.Errorf("%q: %v, want %s", c.source, err, c.want)
			}
			continue
		}
		if !strings.Contains(e.Error(), c.want) || e.Raised != c.raised {
			t.Errorf("%q: %v (raised %v), want %s", c.source, e, e.Raised, c.want)
		}
	}
}

// TestBudget: a template that would take unlimited time, memory or stack ends with an error.
func TestBudget(t *testing.T) {
	long := strings.Repeat
	for name, c := range map[string]struct{ source, want string }{
		"steps":       {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "more than 500000 steps"},
		"range":       {"{{ range(10000000) | list }}", "none of more than 100000"},
		"repeat":      {"{{ 'x' * 1000000000000 }}", "bytes of values"},
		"list":        {"{{ [1] * 1000000000000 }}", "bytes of values"},
		"double":      {"{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "bytes of values"},
		"lists":       {"{% set ns = namespace(s=[1, 2]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "bytes of values"},
		"nested":      {"{% set ns = namespace(s=[1]) %}{% for i in range(9999) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}", "900 deep"},
		"tuple key":   {"{% set ns = namespace(s=(1,)) %}{% for i in range(9999) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ {ns.s: 1} }}", "unhashable"},
		"wide key":    {"{% set ns = namespace(s=(1,)) %}{% for i in range(45) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}", "unhashable"},
		"int":         {"{% set s = '1' * 1000000 %}{% for i in range(99999) %}{% if s | int %}{% endif %}{% endfor %}", "bytes of values"},
		"keywords":    {"{% set d = dict(range(99998) | map('string') | batch(2) | list) %}{% macro m() %}{{ kwargs }}{% endmacro %}{{ m(**d) }}", "steps"},
		"strip":       {"{% set s = 'x' * 1000000 %}{% for i in range(9) %}{{ s.strip('abc' * 300000 + 'x') }}{% endfor %}{% for i in range(99) %}{% set t = s + s %}{% endfor %}", "bytes of values"},
		"items":       {"{% set d = dict(range(99998) | batch(2) | list) %}{% for i in range(99999) %}{% if d | items | first %}{% endif %}{% endfor %}", "steps"},
		"self":        {"{% set ns = namespace() %}{% set ns.s = ns %}{{ ns }}", "900 deep"},
		"output":      {"{% set s = 'x' * 1000000 %}{% for i in range(100) %}{{ s }}{% endfor %}", "writes more than"},
		"macro":       {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "900 deep"},
		"power":       {"{{ 9 ** 99999 }}", "too large an integer"},
		"width":       {"{{ '%999999999d' % 1 }}", "width or precision"},
		"format":      {"{{ '{:999999999}'.format(1) }}", "width or precision"},
		"pad":         {"{{ 'x'.ljust(1000000000000) }}", "bytes of values"},
		"replace":     {"{% set s = 'x' * 1000000 %}{{ s | replace('x', s) }}", "bytes of values"},
		"join":        {"{% set s = 'x' * 1000000 %}{{ range(10000) | map('string') | join(s) }}", "bytes of values"},
		"json":        {"{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s | tojson }}", "more than"},
		"equal":       {"{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(40) %}{% set ns.a = [ns.a, ns.a] %}{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}", "more than"},
		"generators":  {"{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g | select %}{% endfor %}{{ ns.g | list }}", "900 deep"},
		"parentheses": {"{{ " + long("(", 100000), "nested more than"},
		"brackets":    {"{{ " + long("[", 100000), "nested more than"},
		"not":         {"{{ " + long("not ", 100000) + "1 }}", "nested more than"},
		"minus":       {"{{ " + long("- ", 100000) + "1 }}", "nested more than"},
		"dots":        {"{{ a" + long(".a", 100000) + " }}", "900 deep"},
		"sum":         {"{{ 1" + long(" + 1", 100000) + " }}", "900 deep"},
		"filters":     {"{{ 1" + long(" | string", 100000) + " }}", "900 deep"},
		"blocks":      {long("{% if 1 %}", 100000), "nested more than"},
		"else":        {"{% if 0 %}" + long("{% elif 0 %}", 100000) + "{% endif %}", ""},
		"tags":        {long("{% raw", 100000), ""},
		"comments":    {long("{# #}", 100000), ""},
		"size":        {long("x", 5<<20), "at most"},
		"number":      {"{{ " + long("9", 5000) + " }}", "digits"},
		"compare":     {"{% set s = 'x' * 9000000 %}{% set t = s + '' %}{% for i in range(99999) %}{% if s == t %}{% endif %}{% endfor %}", "steps"},
		"length":      {"{% set s = 'x' * 9000000 %}{% for i in range(99999) %}{% if s | length %}{% endif %}{% endfor %}", "steps"},
		"split":       {"{% set s = ',' * 9000000 %}{{ s.split(',') | length }}", "bytes of values"},
	} {
		if testing.Short() && slices.Contains([]string{"items", "steps", "strip", "join", "int", "blocks"}, name) {
			continue // these take longest
		}
		tmpl, err := Parse(name, c.source)
		if err == nil {
			tmpl.steps = 500_000
			_, err = tmpl.Render(nil)
		}
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %.200v, want an error with %q", name, err, c.want)
		}
	}
}

func TestLoad(t *testing.T) {
	write := func(t *testing.T, files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			testkit.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			testkit.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		}
		return dir
	}
	const folder = "additional_chat_templates/"
	for name, files := range map[string]map[string]string{
		"a list":             {"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]}`},
		"an object":          {"chat_template.json": `{"chat_template": {"tool_use": "T", "default": "D", "rag": "R"}}`},
		"a folder":           {"chat_template.jinja": "D", folder + "tool_use.jinja": "T", folder + "rag.jinja": "R", "tokenizer_config.json": `{"chat_template": "C"}`},
		"a folder and a key": {folder + "tool_use.jinja": "T", folder + "rag.jinja": "R", "tokenizer_config.json": `{"chat_template": "D"}`},
		"no default":         {folder + "tool_use.jinja": "T", folder + "rag.jinja": "R"},
	} {
		tmpl, err := Load(write(t, files))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for part, want := range map[*Template]string{tmpl: "D", tmpl.Named(ToolTemplate): "T", tmpl.Named(DocumentsTemplate): "R"} {
			out, err := part.Render(nil)
			var e *Error
			if name == "no default" && want == "D" {
				if !errors.As(err, &e) || !e.Raised || !strings.Contains(e.Msg, `it has the templates ["rag" "tool_use"], but none named "default"`) {
					t.Errorf("%s: %v", name, err)
				}
			} else if err != nil || out.Text != want {
				t.Errorf("%s: %v, %v, want %s", name, out, err, want)
			}
		}
	}
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string // text that the template renders; "": there is no template
		err   string
	}{
		{"none", nil, "", ""},
		{"file", map[string]string{"chat_template.jinja": "F", "tokenizer_config.json": `{"chat_template": "C"}`}, "F", ""},
		{"string", map[string]string{"tokenizer_config.json": `{"chat_template": "C"}`}, "C", ""},
		{"no key", map[string]string{"tokenizer_config.json": `{"x": 1}`}, "", ""},
		{"null", map[string]string{"tokenizer_config.json": `{"chat_template": null}`}, "", ""},
		{"list", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}`}, "D", ""},
		{"empty list", map[string]string{"tokenizer_config.json": `{"chat_template": []}`}, "", ""},
		{"no default", map[string]string{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "T"}]}`}, "", `tokenizer_config.json: chat_template: it has the templates ["rag"], but none named "default"`},
		{"number", map[string]string{"tokenizer_config.json": `{"chat_template": 3}`}, "", "it is a int, not a string or a list"},
		{"item", map[string]string{"tokenizer_config.json": `{"chat_template": [3]}`}, "", "item 0 is a int, not an object"},
		{"item without", map[string]string{"tokenizer_config.json": `{"chat_template": [{}]}`}, "", "item 0 lacks a name"},
		{"broken JSON", map[string]string{"tokenizer_config.json": `{"chat_template": `}, "", "tokenizer_config.json: JSON: byte 18"},
		{"array", map[string]string{"tokenizer_config.json": `[]`}, "", "holds no JSON object"},
		{"of a processor", map[string]string{"tokenizer_config.json": `{"x": 1}`, "chat_template.json": `{"chat_template": "P"}`}, "P", ""},
		{"of a processor too", map[string]string{"tokenizer_config.json": `{"chat_template": "C"}`, "chat_template.json": `{"chat_template": "P"}`}, "C", ""},
		{"of a broken processor", map[string]string{"chat_template.json": `[]`}, "", "chat_template.json: the file holds no JSON object"},
		{"broken template", map[string]string{"chat_template.jinja": "a\n{% if %}"}, "", "chat_template.jinja:2:7: an expression is missing"},
	} {
		tmpl, err := Load(write(t, c.files))
		if c.err != "" || err != nil {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want %q", c.name, err, c.err)
			}
			continue
		}
		if (tmpl == nil) != (c.want == "") {
			t.Errorf("%s: template %v", c.name, tmpl)
		} else if tmpl != nil {
			if out, err := tmpl.Render(nil); err != nil || out.Text != c.want {
				t.Errorf("%s: %v %v", c.name, out, err)
			}
		}
	}
}

func TestDecodeJSON(t *testing.T) {
	v := testkit.Must(DecodeJSON([]byte(` {"b": [1, -2.5, 1e3, "x\u00e9\ud83d\ude42\n", true, false, null], "a": {}, "b2": 12345678901234567890, "a": -0} `)))(t)
	o := v.(*Object)
	if got := strings.Join(o.Keys(), " "); got != "b a b2" {
		t.Errorf("keys %s", got)
	}
	list := member[[]any](t, o, "b")
	for i, want := range []any{int64(1), -2.5, 1000.0, "xé🙂\n", true, false, nil} {
		if list[i] != want {
			t.Errorf("item %d: %v, want %v", i, list[i], want)
		}
	}
	if b := member[*big.Int](t, o, "b2"); b.String() != "12345678901234567890" {
		t.Error(b)
	}
	if a := member[int64](t, o, "a"); a != 0 {
		t.Error(a)
	}
	for text, want := range map[string]string{
		"": "byte 0: the text ends", "[1": "',' or ']'", "{1}": "a key in double quotes", `{"a" 1}`: "':' is missing", `{"a":1,}`: "a key",
		"tru": "begins no value", `"a`: "without an end", "\"\x01\"": "control character", "\"\xff\"": "byte 0xff is not UTF-8",
		`"\ud83d"`: "surrogate", `"\x"`: "no escape", "1 2": "more after", "01": "more after", "-": "digit", "1.": "digit", `"\u12"`: "hex",
		strings.Repeat("[", 1000): "nested", strings.Repeat("9", 5000): "digits", "NaN": "begins no value",
	} {
		if v, err := DecodeJSON([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v %v, want %q", text, v, err, want)
		}
	}
}

func TestObject(t *testing.T) {
	o := NewObject()
	for i := range 40 {
		o.Set(strings.Repeat("k", i%20+1), i)
	}
	if v, ok := o.Get("kk"); o.Len() != 20 || !ok || v != 21 {
		t.Errorf("%d keys, kk is %v", o.Len(), v)
	}
	if _, ok := o.Get("none"); ok {
		t.Error("a key that is not there")
	}
}

// TestVariables: Render accepts further Go types than those that DecodeJSON returns, such as int
// and map[string]any, and refuses others. It changes none of the caller's values.
func TestVariables(t *testing.T) {
	m := NewObject("role", "user", "content", 7, "tags", []string{"a"}, "reasoning", "r")
	vars := map[string]any{"messages": []*Object{m}, "n": 3, "map": map[string]any{"b": 1, "a": float32(0.5)}}
	before := maps.Clone(vars)
	out, err := render("v", "{{ messages }}{{ n + 1 }}{{ map }}{{ tools is none }}{{ documents }}{{ add_generation_prompt }}", vars)
	want := "[{'thinking': 'r', 'role': 'user', 'content': 7, 'tags': ['a'], 'reasoning': 'r', 'reasoning_content': 'r'}]4{'a': 0.5, 'b': 1}TrueNoneFalse"
	if err != nil || out.Text != want {
		t.Errorf("%v %v", out, err)
	}
	if len(vars) != len(before) || m.Len() != 4 {
		t.Error("the variables changed")
	}
	for name, c := range map[string]struct {
		v    any
		want string
	}{
		"x":        {struct{}{}, "variable x: a value of type struct {} cannot be used"},
		"messages": {[]any{"x"}, "variable messages: message 0 is a str, not an object"},
		"y":        {[]any{NewObject("k", make(chan int))}, "variable y: item 0: key k: a value of type chan int"},
	} {
		if _, err := render("v", "", map[string]any{name: c.v}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestConcurrent(t *testing.T) {
	tmpl := family(t, "caller")
	vars := withTokens(twoTurns)
	want := testkit.Must(tmpl.Render(vars))(t)
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				if out, err := tmpl.Render(vars); err != nil || out.Text != want.Text {
					t.Errorf("%v %v", out, err)
				}
			}
		})
	}
	group.Wait()
}

// TestAsPython: these expressions have the same values as in Python 3.
func TestAsPython(t *testing.T) {
	for source, want := range map[string]string{
		"{{ '%*d|' % (-5, 3) }}":                                                          "3    |",
		"{{ 'aab' | replace(old='a', new='c') }}":                                         "ccb",
		"{{ '{:.0f} {:.0e} {:.0}'.format(2.6, 2.6, 2.6) }}":                               "3 3e+00 3e+00",
		"{{ '{:.2} {:.3} {:.3}'.format(26.0, 26.0, 0.00026) }}":                           "2.6e+01 26.0 0.00026",
		"{{ '{:.3} {:.3} {:.3f}'.format('inf' | float, '-inf' | float, 'nan' | float) }}": "inf -inf nan",
		"{{ 4.5 % 2 }} {{ -4.5 % 2 }}":                                                    "0.5 1.5",
		"{{ 4.5 % -2 }} {{ 4.5 // 2 }} {{ 4 % 2 }}":                                       "-1.5 2.0 0",
	} {
		got, err := parse(t, "values", source).Render(withTokens(twoTurns))
		if err != nil || got.Text != want {
			t.Errorf("%s: %q, %v; want %q", source, got.Text, err, want)
		}
	}
}

func BenchmarkRender(b *testing.B) {
	tmpl := family(b, "thinking")
	vars := withTokens(append(append([]any{}, twoTurns...), twoTurns[1:]...))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tmpl.Render(vars); err != nil {
			b.Fatal(err)
		}
	}
}
