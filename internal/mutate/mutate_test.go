package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// TestListFitsTheProgram: every mutation must fit the program, or the list is worth nothing.
func TestListFitsTheProgram(t *testing.T) {
	tests := map[string]map[string]bool{} // names by package
	seen := map[string]bool{}
	for _, m := range all() {
		text, line, err := m.apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		if key := m.file + "\n" + string(text); seen[key] {
			t.Errorf("%s:%d: %q to %q is listed twice", m.file, line, m.from, m.to)
		} else {
			seen[key] = true
		}
		if m.from == m.to {
			t.Errorf("%s:%d: %q is replaced by itself", m.file, line, m.from)
		}
		if strings.HasSuffix(m.file, ".go") {
			if _, err := parser.ParseFile(token.NewFileSet(), m.file, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%q to %q is no Go: %v", m.from, m.to, err)
			}
		}
		if m.same != "" {
			if m.test != "" {
				t.Errorf("%s:%d: changes nothing (%s), and %s cannot notice it", m.file, line, m.same, m.test)
			}
			continue
		}
		if tests[m.in] == nil {
			tests[m.in] = testsOf(t, m.in)
		}
		for _, one := range strings.Split(m.test, "|") {
			if name, _, _ := strings.Cut(one, "/"); !tests[m.in][name] {
				t.Errorf("%s:%d: %s has no test %q", m.file, line, m.in, name)
			}
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// testsOf are the names of the tests in a package's folder.
func testsOf(t *testing.T, pkg string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			names[string(m[1])] = true
		}
	}
	return names
}

func TestApply(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte("one\ntwo\ntwo three\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, want string }{{"two t", "one\ntwo\nXhree\n"}, {"two", ""}, {"four", ""}} {
		text, line, err := mutation{"a.go", way{from: c.from, to: "X"}}.apply(dir)
		if string(text) != c.want || (err == nil) != (c.want != "") || err == nil && line != 3 {
			t.Errorf("%q: %q at line %d, %v; want %q at line 3", c.from, text, line, err, c.want)
		}
	}
}

func TestAnchored(t *testing.T) {
	for pattern, want := range map[string]string{
		"TestA":         "^TestA$",
		"TestA|TestB/c": "^TestA$|^TestB$/^c$",
	} {
		if got := anchored(pattern); got != want {
			t.Errorf("%s: %s, want %s", pattern, got, want)
		}
	}
}
