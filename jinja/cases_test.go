package jinja

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// clock is the time that testdata/environment.py renders at.
func clock() time.Time { return time.Date(2024, 7, 26, 14, 5, 9, 1234000, time.UTC) }

// decoded reads a JSON file of testdata.
func decoded(t testing.TB, path string) *Object {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
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

// varsOf are an object's members as variables.
func varsOf(o *Object) map[string]any {
	vars := map[string]any{}
	for _, k := range o.Keys() {
		vars[k], _ = o.Get(k)
	}
	return vars
}

// render parses and renders; a panic is a fault of the test's.
func render(name, source string, vars map[string]any) (*Rendered, error) {
	tmpl, err := Parse(name, source)
	if err != nil {
		return nil, err
	}
	tmpl.Now = clock
	return tmpl.Render(vars)
}

// characters are spans of bytes as spans of characters.
func characters(text string, spans []Span) [][2]int64 {
	var out [][2]int64
	for _, s := range spans {
		from := utf8.RuneCountInString(text[:s.From])
		out = append(out, [2]int64{int64(from), int64(from + utf8.RuneCountInString(text[s.From:s.To]))})
	}
	return out
}

// TestAsJinja compares every case of testdata/cases.json, which render.py makes
// with jinja2: equal texts, equal {% generation %} spans, the same failures.
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
			text, err := os.ReadFile(filepath.Join(templates, name))
			if err != nil {
				t.Fatal(err)
			}
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

// sameCase compares one rendering with what Jinja made.
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
		return true // in a macro Transformers counts from the wrong place
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

// TestDifferences compares the random cases that testdata/differences.py makes.
func TestDifferences(t *testing.T) {
	path := os.Getenv("MT_TEMPLATE_CASES")
	if path == "" {
		t.Skip("MT_TEMPLATE_CASES is not set: testdata/differences.py sets it to a file of random cases")
	}
	checkCases(t, path, "")
}
