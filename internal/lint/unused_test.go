package lint

import (
	"reflect"
	"slices"
	"testing"
)

// TestUnused: in a module that needs every entry of the toy rules, dropping one import makes
// exactly its entry unused.
func TestUnused(t *testing.T) {
	tests := []struct {
		from, to string
		test     bool
		want     []string // without this import
	}{
		{"cmd/x", "./pipe", false, []string{"Arrows: nothing in cmd imports pipe"}},
		{"pipe", "./steps/a", false, []string{"Arrows: nothing in pipe imports steps"}},
		{"pipe", "./disk", true, []string{"Arrows: nothing in pipe imports disk"}}, // a test's import is one
		{"steps/a", "./chip", false, []string{"Arrows: nothing in steps imports chip"}},
		{"chip/soft", "./chip", false, []string{"Arrows: nothing in chip/soft imports chip"}},
		{"chip/soft/simd", "unsafe", false, []string{"Only: nothing in chip/soft imports unsafe"}},
		{"pipe", "example.com/actor/log", false, []string{"Only: nothing in pipe imports example.com/actor"}},
		{"steps/a", "./chip/soft", true, []string{"ForTests: no test imports chip/soft that could not without"}},
		{"chip", "./chip/truth", true, []string{"ForTests: no test imports chip/truth that could not without", "TestOnly: nothing else imports chip/truth"}},

		// These imports use no entry of the rules:
		// - an import that several arrows together allow
		// - an import of a helper, or within one name
		// - a test's import that an arrow allows
		// - another module with the same prefix
		{"cmd/x", "./chip", false, nil},
		{"steps/a", "./internal/pool", false, nil},
		{"disk", "./disk/b", false, nil},
		{"chip/soft/simd", "./chip/soft", true, nil},
		{"pipe", "example.com/actors", false, nil},
		{"disk", "fmt", false, nil},
	}
	module := func(without int) []Package {
		pkgs := []Package{{Path: "disk/b"}, {Path: "chip/truth"}, {Path: "internal/fit"}, {Path: "internal/pool"}}
		for _, path := range []string{"cmd/x", "pipe", "steps/a", "disk", "chip", "chip/soft", "chip/soft/simd"} {
			p := Package{Path: path}
			for i, tt := range tests {
				switch {
				case i == without || tt.from != path:
				case tt.test:
					p.TestImports = append(p.TestImports, tt.to)
				default:
					p.Imports = append(p.Imports, tt.to)
				}
			}
			pkgs = append(pkgs, p)
		}
		return pkgs
	}
	if got := toy.Unused(module(-1)); len(got) != 0 {
		t.Fatalf("found %q where every entry is needed", got)
	}
	for i, tt := range tests {
		if got := toy.Unused(module(i)); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s does not import %s: found %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
	rest := slices.DeleteFunc(module(-1), func(p Package) bool { return p.Path == "internal/fit" })
	if got, want := toy.Unused(rest), []string{"Arrows: no package is internal/fit"}; !reflect.DeepEqual(got, want) {
		t.Errorf("without internal/fit: found %q, want %q", got, want)
	}
}

// TestUnusedByTests: an import by a test of a package in ForTests does not use an arrow. If an
// arrow allows the test's import anyway, the import does not use ForTests.
func TestUnusedByTests(t *testing.T) {
	r := Rules{
		Arrows:   map[string][]string{"top": {"base"}, "base": nil},
		Helpers:  "internal",
		ForTests: []string{"base"},
	}
	got := r.Unused([]Package{{Path: "top", TestImports: []string{"./base"}}, {Path: "base"}})
	list := "ForTests: no test imports base that could not without"
	if want := []string{"Arrows: nothing in top imports base", list}; !reflect.DeepEqual(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	got = r.Unused([]Package{{Path: "top", Imports: []string{"./base"}}, {Path: "base"}})
	if want := []string{list}; !reflect.DeepEqual(got, want) {
		t.Errorf("of a program: found %q, want %q", got, want)
	}
}
