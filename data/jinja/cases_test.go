package jinja

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"mt/internal/testkit"
)

// clock returns the fixed time at which testdata/environment.py renders with Jinja.
func clock() time.Time { return time.Date(2024, 7, 26, 14, 5, 9, 1234000, time.UTC) }

// decoded reads a JSON file of testdata, which must hold an object.
func decoded(t testing.TB, path string) *Object {
	t.Helper()
	text, err := os.ReadFile(path)
	testkit.NoError(t, err)
	v, err := DecodeJSON(text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v.(*Object)
}

func member[T any](t testing.TB, o *Object, key string) T {
	t.Helper()
	v, _ := o.Get(key)
	out, ok := v.(T)
	if !ok {
		t.Fatalf("key %s is a %T", key, v)
	}
	return out
}

// varsOf returns an object's members as a template's variables.
func varsOf(o *Object) map[string]any {
	vars := map[string]any{}
	for _, k := range o.Keys() {
		vars[k], _ = o.Get(k)
	}
	return vars
}

// render parses and renders a template. It does not recover from panics: a panic that leaves the
// package fails the test.
func render(name, source string, vars map[string]any) (*Rendered, error) {
	tmpl, err := Parse(name, source)
	if err != nil {
		return nil, err
	}
	tmpl.Now = clock
	return tmpl.Render(vars)
}

// characters converts spans of bytes into spans of characters, which Python counts in.
func characters(text string, spans []Span) [][2]int64 {
	var out [][2]int64
	for _, s := range spans {
		from := utf8.RuneCountInString(text[:s.From])
		out = append(out, [2]int64{int64(from), int64(from + utf8.RuneCountInString(text[s.From:s.To]))})
	}
	return out
}

// TestAsJinja: every case of testdata/cases.json gives the same text, the same {% generation %}
// spans and the same failures as Python's jinja2. render.py recorded the cases.
func TestAsJinja(t *testing.T) {
	checkCases(t, filepath.Join("testdata", "cases.json"), filepath.Join("testdata", "templates"))
}

func checkCases(t *testing.T, path, templates string) {
	data := decoded(t, path)
	snippets, vars := member[*Object](t, data, "snippets"), member[*Object](t, data, "vars")
	bad := 0
	for _, c := range member[[]any](t, data, "cases") {
		c := c.(*Object)
		name, varsName := member[string](t, c, "name"), member[string](t, c, "vars")
		source, ok := snippets.Get(name)
		if !ok {
			text := testkit.Must(os.ReadFile(filepath.Join(templates, name)))(t)
			source = string(text)
		}
		got, err := render(name, source.(string), varsOf(member[*Object](t, vars, varsName)))
		if !sameCase(t, c, name+" "+varsName, got, err) {
			if bad++; bad > 40 {
				t.Fatal("and more")
			}
		}
	}
}

// sameCase compares one rendering with Jinja's, which the case c records.
func sameCase(t *testing.T, c *Object, name string, got *Rendered, err error) bool {
	t.Helper()
	if why, failed := c.Get("error"); failed {
		if err == nil {
			t.Errorf("%s: got %q; Jinja fails: %s", name, got.Text, why)
		}
		return err != nil
	}
	want := member[string](t, c, "text")
	if err != nil {
		t.Errorf("%s: %v; Jinja writes %q", name, err, want)
		return false
	}
	if got.Text != want {
		t.Errorf("%s:\n got %q\nwant %q", name, got.Text, want)
		return false
	}
	spans, _ := c.Get("generation")
	if strings.Contains(name, "macro") || spans == nil && len(got.Generation) == 0 {
		return true // Transformers reports wrong offsets for spans inside macros
	}
	list, _ := spans.([]any)
	have := characters(got.Text, got.Generation)
	for i, s := range list {
		pair := s.([]any)
		if i >= len(have) || pair[0] != have[i][0] || pair[1] != have[i][1] {
			t.Errorf("%s: generation spans %v; Jinja has %v", name, have, list)
			return false
		}
	}
	return len(list) == len(have)
}

// TestDifferences: random templates give the same results as Python's jinja2.
// testdata/differences.py makes the cases and runs this test.
func TestDifferences(t *testing.T) {
	path := os.Getenv("MT_TEMPLATE_CASES")
	if path == "" {
		t.Skip("MT_TEMPLATE_CASES is not set: testdata/differences.py sets it to a file of random cases")
	}
	checkCases(t, path, "")
}

// seeds returns the source texts of the templates in testdata.
func seeds(f *testing.F) []string {
	files, err := filepath.Glob(filepath.Join("testdata", "templates", "*.jinja"))
	if err != nil || len(files) == 0 {
		f.Fatalf("testdata/templates: %d files, %v", len(files), err)
	}
	var out []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		out = append(out, string(text))
	}
	snippets := member[*Object](f, decoded(f, filepath.Join("testdata", "cases.json")), "snippets")
	for _, name := range snippets.Keys() {
		out = append(out, member[string](f, snippets, name))
	}
	return out
}

// FuzzParse: Parse accepts any text as a template, or returns an *Error with a position inside the
// text.
func FuzzParse(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := Parse("t", source)
		if err == nil {
			if tmpl.Source() != source {
				t.Fatal("the source is another")
			}
			return
		}
		if e, ok := err.(*Error); !ok || e.Line < 1 || e.Col < 1 || e.Name != "t" {
			t.Fatalf("%T %v", err, err)
		}
	})
}

// FuzzRender: rendering any template ends within its limits, with text or an *Error. The spans it
// reports lie inside the text.
func FuzzRender(f *testing.F) {
	for _, s := range seeds(f) {
		f.Add(s, "Hi <think>a</think>")
	}
	data := decoded(f, filepath.Join("testdata", "cases.json"))
	base := varsOf(member[*Object](f, member[*Object](f, data, "vars"), "VARIABLES"))
	base["bos_token"], base["eos_token"] = "<s>", "</s>"
	f.Fuzz(func(t *testing.T, source, content string) {
		tmpl, err := Parse("t", source)
		if err != nil {
			return
		}
		tmpl.Now = clock
		vars := map[string]any{}
		for k, v := range base {
			vars[k] = v
		}
		vars["messages"] = []any{
			NewObject("role", "user", "content", content),
			NewObject("role", "assistant", "content", content, "tool_calls", []any{NewObject("name", "f", "arguments", NewObject("a", 1))}),
			NewObject("role", "tool", "content", content),
			NewObject("role", "assistant", "content", "x"),
		}
		out, err := tmpl.Render(vars)
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if utf8.ValidString(content) && !utf8.ValidString(out.Text) {
			t.Fatalf("the text is not UTF-8: %q", out.Text)
		}
		checkSpans(t, out, out.Generation)
		_, turns, err := tmpl.SupervisedSpans(vars)
		if err != nil {
			return
		}
		for _, turn := range turns {
			checkSpans(t, out, []Span{turn.Span})
		}
	})
}

func checkSpans(t *testing.T, out *Rendered, spans []Span) {
	t.Helper()
	for _, s := range spans {
		if s.From < 0 || s.From > s.To || s.To > len(out.Text) {
			t.Fatalf("span %v of %d bytes", s, len(out.Text))
		}
	}
}
