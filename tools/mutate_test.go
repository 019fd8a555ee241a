package main

import (
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mt/internal/testkit"
)

// mutantsOf returns the mutants of a method with this signature and body.
func mutantsOf(t *testing.T, signature, body string) []*mutant {
	t.Helper()
	src := "package p\n\nfunc (p *T[E]) F" + signature + " {\n" + body + "\n}\n"
	f := testkit.Must(parser.ParseFile(token.NewFileSet(), "p.go", src, parser.ParseComments))(t)
	all := mutants(f, src)
	for _, m := range all {
		if _, err := parser.ParseFile(token.NewFileSet(), "p.go", m.apply(src), 0); err != nil || m.function != "T.F" || m.line < 3 || m.col < 1 {
			t.Errorf("%s of %q in %s:%d:%d: %v", m.op, body, m.function, m.line, m.col, err)
		}
	}
	return all
}

func TestOperators(t *testing.T) {
	for _, c := range []struct{ signature, body, want string }{
		{"()", "if a { // b\n return\n}", "negate: if !(a) {¦drop:"},
		{"()", "for a {\n}", "negate: for !(a) {"},
		{"()", "switch {\ncase a, b:\n}", "negate: case !(a), b:¦negate: case a, !(b):"},
		{"()", "switch a {\ncase b:\n}", ""},
		{"()", "a = b", "drop:"},
		{"()", "_ = b", ""},
		{"()", "a <<= b", "operator: a >>= b¦drop:"},
		{"()", "a--", "operator: a++¦drop:"},
		{"() (n int, err error)", "a := b - c", "operator: a := b + c¦operands: a := (c) - (b)"},
		{"()", "a := b & c", "operator: a := b | c"},
		{"()", "a := b <= c && d", "operator: a := b <= c || d¦operator: a := b < c && d¦operands: a := (c) <= (b) && d"},
		{"()", "f(a, b, c.d, 1)", "operands: f(b, a, c.d, 1)¦constant: f(a, b, c.d, 2)¦drop:"},
		{"()", "f(a, b...)", "drop:"},
		{"()", "a := max(b, c)", ""},
		{"()", "if err := f(); err != nil {\n}", "ignore error: if err := f(); err != nil && false {"},
		{"() (int, error)", "return 1, err", "ignore error: return 1, nil"},
		{"() bool", "return false", "constant: return true"},
		{"()", "a := 0x1f + 1.5 + 'c'", "operator: a := 0x1f + 1.5 - 'c'¦operator: a := 0x1f - 1.5 + 'c'¦constant: a := (0x1f + 1) + 1.5 + 'c'¦" +
			"constant: a := 0x1f + (1.5 + 1) + 'c'¦constant: a := 0x1f + 1.5 + ('c' + 1)"},
		{"()", "for {\nselect {\ncase <-c:\nbreak\n}\n}", "drop:"},
		{"() (int, error)", "a := func() error {\nreturn nil\n}", ""},
	} {
		var got []string
		for _, m := range mutantsOf(t, c.signature, c.body) {
			if m.op != "return early" {
				got = append(got, strings.TrimSpace(m.op+": "+m.after))
			}
		}
		want := strings.Split(c.want, "¦")
		slices.Sort(got)
		slices.Sort(want)
		if strings.Join(got, "¦") != strings.Join(want, "¦") {
			t.Errorf("%s: %q, want %q", c.body, got, want)
		}
	}
	for signature, want := range map[string]string{"()": "return; f()", "() (n int, err error)": "return; f()", "() (int, *T)": "return *new(int), *new(*T); f()"} {
		if all := mutantsOf(t, signature, "f()"); all[len(all)-1].after != want {
			t.Errorf("%s: %q, want %q", signature, all[len(all)-1].after, want)
		}
	}
}

func TestDraw(t *testing.T) {
	all := mutantsOf(t, "(a, b int) error", strings.Repeat("if f(a, b) > 1 && true {\n g()\n}\n", 9)+"return err")
	drawn := func(seed uint64) (out []string) {
		lines := map[int]bool{}
		for i, m := range draw(all, "p", seed) {
			if i < len(operators) && m.op != operators[i] || lines[m.line] {
				t.Errorf("mutant %d is %s in line %d of %v", i, m.op, m.line, lines)
			}
			lines[m.line] = true
			out = append(out, fmt.Sprint(m.line, m.op))
		}
		return out
	}
	one := drawn(1)
	if len(one) != 19 || !slices.Equal(one, drawn(1)) || slices.Equal(one, drawn(2)) {
		t.Errorf("seed 1: %v, again %v; seed 2: %v", one, drawn(1), drawn(2))
	}
}

func TestEntries(t *testing.T) {
	got, err := parseEntries("list", "# a\n# b\n\nd/a.go T.F\n- a\n-  b\n+\n  why\n  so\n\nb.go G e\n- c\n+ d\n")
	want := []entry{{"d/a.go", "T.F", "d", "a\n b", "", "why\nso"}, {"b.go", "G", "e", "c", "d", ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, text := range []string{"- a\n+ b\n", "a\n- b\n+ c\n", "a b c d\n- b\n+ c\n"} {
		if _, err := parseEntries("list", text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	if m := (&mutant{file: "b.go", function: "G", before: "c", after: "d"}); !want[1].judges(m) || want[0].judges(m) {
		t.Errorf("%q is about %v: %v", want[1], m, want[1].judges(m))
	}
}

// TestLists: every entry of hand.txt still matches the program: its text occurs once, and its tests
// exist. survivors.txt can be parsed, and each entry has a reason.
func TestLists(t *testing.T) {
	judged, err := parseEntries("survivors.txt", survivorsText)
	for _, e := range judged {
		if e.reason == "" {
			t.Errorf("survivors.txt: %s %s has no reason", e.file, e.name)
		}
	}
	hand, herr := parseEntries("hand.txt", handText)
	if err != nil || herr != nil || len(hand) > 200 {
		t.Fatalf("%v, %v, %d entries", err, herr, len(hand))
	}
	for _, e := range hand {
		if _, err := e.mutant(".."); err != nil || e.from == e.to {
			t.Errorf("%v: %q to %q", err, e.from, e.to)
		}
		tests := ""
		files, _ := filepath.Glob(filepath.Join("..", e.in, "*_test.go"))
		for _, f := range files {
			text, _ := os.ReadFile(f)
			tests += string(text)
		}
		for one := range strings.SplitSeq(e.name, "|") {
			if name, _, _ := strings.Cut(one, "/"); !strings.Contains(tests, "\nfunc "+name+"(") {
				t.Errorf("hand.txt: %s: %s has no test %q", e.file, e.in, name)
			}
		}
	}
}

// TestVerdicts runs mutants of a small module with three packages. Each verdict (noticed, hung,
// survived and so on) occurs for the mutant for which it should.
func TestVerdicts(t *testing.T) {
	if testing.Short() {
		t.Skip("short: go test without -short runs it")
	}
	root := t.TempDir()
	test := "\n\nfunc TestOne(t *testing.T) {\n\tif %s {\n\t\tt.Error()\n\t}\n}\n"
	for name, text := range map[string]string{
		"go.mod":      "module small\n\ngo 1.26\n",
		"a/a.go":      "package a\n\nfunc Add(a, b int) int {\n\tfor a < -9 {\n\t\ta++\n\t}\n\treturn a + b\n}\n\nfunc Sub(a, b int) int { return a - b }\n\nfunc Mul(a, b int) int { return a * b }\n",
		"a/a_test.go": "package a\n\nimport \"testing\"" + fmt.Sprintf(test, "Add(2, 2) != 4"),
		"b/b_test.go": "package b\n\nimport (\n\t\"small/a\"\n\t\"testing\"\n)" + fmt.Sprintf(test, "a.Sub(2, 1) != 1"),
		"c/c_test.go": "package c\n\nimport \"testing\"" + fmt.Sprintf(test, "true"),
	} {
		testkit.NoError(t, errors.Join(os.MkdirAll(filepath.Join(root, name, ".."), 0o755), os.WriteFile(filepath.Join(root, name), []byte(text), 0o644)))
	}
	all := testkit.Must(goList(t.Context(), root, "-test", "-export", "./..."))(t)
	s := &session{all: all, most: 9, judged: []entry{{"a/a.go", "-", "a", "return a + b", "return b + a", "commutes"}},
		root: root, module: "small", scratch: t.TempDir(), cache: t.TempDir(), memory: 128 << 20, profiles: map[string]*profile{}}
	for _, c := range []struct{ from, to, test, verdict, who string }{
		{"a + b", "a - b", "", noticed, "TestOne"},
		{"a + b", "a * b", "", survived, ""},
		{"a + b", "a + c", "", invalid, ""},
		{"a + b", "b + a", "", judged, "commutes"},
		{"a < -9", "a < 9 || true", "", hung, "time limit"},
		{"return a + b", "for x := []byte{}; ; {\n\t\tx = append(x, make([]byte, 1<<20)...)\n\t}", "", hung, "memory limit"},
		{"a - b", "b - a", "", noticed, "small/b TestOne"},
		{"a * b", "a", "", notExecuted, ""},
		{"a * b", "a", "^TestOne$", survived, ""},
	} {
		if s.least = time.Hour; c.who == "time limit" {
			s.least = time.Second
		}
		m := testkit.Must((&entry{file: "a/a.go", in: "a", from: c.from, to: c.to}).mutant(root))(t)
		m.pkg, m.function, m.test, s.hand = "small/a", "-", c.test, c.test != ""
		if err := s.judge(t.Context(), m); m.verdict != c.verdict || !strings.HasPrefix(m.who, c.who) || err != nil {
			t.Errorf("%s to %s: %s by %s, %v; want %s by %s", c.from, c.to, m.verdict, m.who, err, c.verdict, c.who)
		}
	}
	if _, err := s.clean(t.Context(), importers(all, "small/c")[0]); err == nil || !strings.Contains(err.Error(), "fail") {
		t.Errorf("a test that fails without a mutation: %v", err)
	}
}
