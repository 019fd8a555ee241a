package jinja

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// seeds are the templates of testdata.
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

// FuzzParse: any text is a template or an *Error with a place in it.
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

// FuzzRender: any template ends, within its budget, with text or an *Error, and
// its spans lie in the text.
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
