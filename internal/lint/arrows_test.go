package lint

import (
	"slices"
	"strings"
	"testing"
)

// toy are rules of a small invented module, for tests.
var toy = Rules{
	Arrows: map[string][]string{
		"cmd":          {"pipe"},
		"pipe":         {"steps", "disk"},
		"steps":        {"chip"},
		"disk":         nil,
		"chip":         nil,
		"chip/soft":    {"chip"},
		"chip/truth":   nil,
		"internal/fit": nil,
	},
	Helpers:  "internal",
	TestOnly: []string{"chip/truth"},
	ForTests: []string{"chip/truth", "chip/soft"},
	Only:     map[string][]string{"unsafe": {"chip/soft"}, "example.com/actor": {"pipe"}},
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		pkg  Package
		want string // a part of the only finding; "" for none
	}{
		{"direct arrow", Package{Path: "pipe", Imports: []string{"./steps", "fmt"}}, ""},
		{"arrow by way of others", Package{Path: "cmd/x", Imports: []string{"./chip"}}, ""},
		{"same name", Package{Path: "disk/a", Imports: []string{"./disk/b", "./disk"}}, ""},
		{"helper", Package{Path: "chip", Imports: []string{"./internal/pool"}}, ""},
		{"helper of a helper", Package{Path: "internal/pool", Imports: []string{"./internal/bits"}}, ""},
		{"upward", Package{Path: "steps", Imports: []string{"./pipe"}}, "steps import pipe against the arrows"},
		{"sideways", Package{Path: "disk", Imports: []string{"./steps"}}, "disk import steps against the arrows: disk may reach helpers in internal"},
		{"below a name of its own", Package{Path: "steps", Imports: []string{"./chip/soft"}}, "steps import chip/soft against the arrows"},
		{"contract to implementation", Package{Path: "chip", Imports: []string{"./chip/soft"}}, "chip import chip/soft against"},
		{"helper upward", Package{Path: "internal/pool", Imports: []string{"./chip"}}, "internal/pool import chip against the arrows"},
		{"named package in the helpers' folder", Package{Path: "pipe", Imports: []string{"./internal/fit"}}, "pipe import internal/fit against the arrows"},
		{"root of the module", Package{Path: ""}, ".: no rule names this package"},
		{"unknown package", Package{Path: "extra", Imports: []string{"fmt"}}, "extra: no rule names this package"},
		{"name is no prefix of a word", Package{Path: "chipper"}, "chipper: no rule"},

		{"test of itself", Package{Path: "chip", TestImports: []string{"./chip"}}, ""},
		{"test with a test helper", Package{Path: "steps", TestImports: []string{"./chip/truth", "./chip/soft"}}, ""},
		{"test upward", Package{Path: "steps", TestImports: []string{"./pipe"}}, "the tests of steps import pipe against"},
		{"test helper in a program", Package{Path: "chip/soft", Imports: []string{"./chip/truth"}}, "chip/soft import chip/truth, which is for tests"},

		{"reserved, allowed", Package{Path: "chip/soft/simd", Imports: []string{"unsafe"}}, ""},
		{"reserved", Package{Path: "disk", Imports: []string{"unsafe"}}, "disk import unsafe, which only chip/soft may"},
		{"reserved in a test", Package{Path: "disk", TestImports: []string{"unsafe"}}, "the tests of disk import unsafe"},
		{"reserved subpackage", Package{Path: "steps", Imports: []string{"example.com/actor/log"}}, "steps import example.com/actor/log, which only pipe may"},
		{"other module with the same start", Package{Path: "steps", Imports: []string{"example.com/actors"}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := toy.Check([]Package{tt.pkg})
			if tt.want == "" {
				if len(got) != 0 {
					t.Errorf("found %q, want nothing", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Errorf("found %q, want one that says %q", got, tt.want)
			}
		})
	}
}

// TestFences: if two keys of Fences cover a package, the longer one decides who may import it. A
// fence does not permit an import for which Arrows has no entry.
func TestFences(t *testing.T) {
	rules := Rules{
		Arrows: map[string][]string{"cmd": {"pipe"}, "pipe": {"aside", "aside/part"}, "disk": nil, "aside": nil, "aside/part": nil},
		Fences: map[string][]string{"aside": {"cmd"}, "aside/part": {"cmd", "disk"}},
	}
	for _, tt := range []struct {
		pkg  Package
		want string
	}{
		{Package{Path: "cmd/x", Imports: []string{"./aside"}}, ""},
		{Package{Path: "aside/x", Imports: []string{"./aside"}}, ""},
		{Package{Path: "pipe", Imports: []string{"./aside"}}, "pipe import aside, which serves a run from beside it: only cmd may"},
		{Package{Path: "pipe", Imports: []string{"./aside/x"}}, "pipe import aside/x, which serves a run from beside it: only cmd may"},
		{Package{Path: "pipe", TestImports: []string{"./aside"}}, "the tests of pipe import aside, which serves a run from beside it: only cmd may"},
		{Package{Path: "pipe", Imports: []string{"./aside/part"}}, "pipe import aside/part, which serves a run from beside it: only cmd, disk may"},
		{Package{Path: "disk", Imports: []string{"./aside/part"}}, "disk import aside/part against the arrows: disk may reach helpers in "},
	} {
		if got := strings.Join(rules.Check([]Package{tt.pkg}), "\n"); got != tt.want {
			t.Errorf("%v: found %q, want %q", tt.pkg, got, tt.want)
		}
	}
}

func TestCheckReportsEachImportOnce(t *testing.T) {
	got := toy.Check([]Package{
		{Path: "steps", Imports: []string{"./pipe"}, TestImports: []string{"./pipe"}},
		{Path: "disk", Imports: []string{"./chip", "unsafe"}},
	})
	if len(got) != 3 || !slices.IsSorted(got) {
		t.Errorf("found %q, want three in order", got)
	}
}

// TestArrowsAreSound: the rules of this module refer only to names that they define, and Arrows has
// no cycle.
func TestArrowsAreSound(t *testing.T) {
	for from, tos := range Arrows.Arrows {
		for _, to := range tos {
			if _, ok := Arrows.Arrows[to]; !ok {
				t.Errorf("%s may import %s, which is no name", from, to)
			}
			if Arrows.reaches(to, from, map[string]bool{}) {
				t.Errorf("arrows lead from %s to %s and back", from, to)
			}
		}
	}
	for beside, names := range Arrows.Fences {
		for _, n := range append(names, beside) {
			if _, ok := Arrows.Arrows[n]; !ok {
				t.Errorf("the fence around %s has %s, which is no name", beside, n)
			}
		}
	}
}

// TestRunsStayInside: no package of a training run may import a package that Fences protects. Only
// cmd, the protected packages and the measurement of a machine may.
func TestRunsStayInside(t *testing.T) {
	for from := range Arrows.Arrows {
		if from == "cmd" || Arrows.fence(from) != "" {
			continue
		}
		for beside := range Arrows.Fences {
			if beside == "internal/doctor/measure" {
				continue
			}
			got := Arrows.Check([]Package{{Path: from, Imports: []string{"./" + beside}}})
			if len(got) != 1 || !strings.Contains(got[0], "from beside it") {
				t.Errorf("%s importing %s: found %q, want that it is beside a run", from, beside, got)
			}
		}
	}
}

// TestArrowsForbid: this module's rules reject imports that must never be, such as protoactor in
// layers.
func TestArrowsForbid(t *testing.T) {
	for _, tt := range [][2]string{
		{"actors", "github.com/ebitengine/purego"},
		{"layers", "github.com/asynkron/protoactor-go/actor"},
		{"cmd/mt", "unsafe"},
		{"bench", "unsafe"},
		{"data", "unsafe"},
		{"data", "./model"},
		{"model", "./data"},
		{"device", "./model"},
		{"device", "./device/cpu"},
		{"cudart", "./device"},
		{"layers", "./device/cpu"},
		{"layers", "./host"},
		{"host", "./device"},
		{"host", "./bench"},
		{"checkpoint", "./actors"},
		{"plan", "./actors"},
		{"internal/run/generate", "./internal/run/session"},
		{"actors", "./internal/run"},
		{"actors", "./internal/run/config"},
		{"actors", "./device/cpu"},
		{"internal/run/config", "./internal/run"},
		{"internal/run", "./bench"},
		{"internal/run", "./cmd/mt"},
		{"internal/run", "./internal/run/tune"},
		{"internal/run/session", "./internal/doctor"},
		{"internal/run/session", "./internal/doctor/measure"},
		{"internal/run/save", "./checkpoint/export"},
		{"internal/run/settings", "./internal/run/open"},
		{"internal/run/report", "./internal/run/open"},
		{"internal/run/open", "./internal/run/resume"},
		{"internal/run/resume", "./internal/run/resolve"},
		{"internal/run/resolve", "./internal/run/save"},
		{"internal/run/save", "./internal/run/session"},
		{"internal/run/session", "./internal/run/predict"},
		{"internal/run/trials", "./internal/run/session"},
		{"base/parallel", "./device"},
		{"device/cpu", "./device/conformance/oracle"},
		{"layers", "./internal/testkit/reference"},
		{"actors", "./checkpoint"},
		{"checkpoint", "./host"},
		{"checkpoint/export", "./data"},
		{"internal/testkit/reference", "./device/conformance/oracle"},
		{"internal/run", "./internal/lint"},
		{"device/conformance/oracle", "unsafe"},
	} {
		if got := Arrows.Check([]Package{{Path: tt[0], Imports: []string{tt[1]}}}); len(got) != 1 {
			t.Errorf("%s importing %s: found %q, want one finding", tt[0], tt[1], got)
		}
	}
}
