package lint

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Rules defines which package may import which. A name is the path of a folder, such as "host". It covers the package
// in this folder and all packages below it, except those that a longer name covers.
type Rules struct {
	// Arrows says, for each name, which other names its packages may import. If a may import b and
	// b may import c, then a may import c too. Packages of one name may import each other.
	Arrows map[string][]string
	// Helpers is a folder of packages that everybody may import, except packages that Arrows names. Helpers import only
	// helpers.
	Helpers string
	// Fences protects the packages of its keys. Fences[x] lists the names whose packages may import those of x. No
	// other package may, even if an arrow allows it. The keys are tools around a run, such as benchmarks, on which a
	// run must not depend. For example, Fences["bench"] = {"cmd"}. If two keys cover a package, the longer one counts.
	Fences map[string][]string
	// TestOnly lists names whose packages only tests may import, and other packages of TestOnly.
	TestOnly []string
	// ForTests lists names whose packages every test may import, even without an arrow.
	ForTests []string
	// Only restricts packages outside the module. Only[p] lists the names whose packages may import paths that begin
	// with p, such as "unsafe"; no other package may.
	Only map[string][]string
}

// Arrows are the rules of this module.
var Arrows = Rules{
	Arrows: map[string][]string{
		"cmd":                     {"bench", "internal/run/tune", "checkpoint/export", "base/cluster"},
		"bench":                   {"internal/doctor"},
		"internal/run/tune":       {"internal/doctor"},
		"internal/doctor":         {"internal/run", "internal/run/trials", "base/cluster", "device/conformance"},
		"internal/run/machine":    {"internal/run/config", "internal/doctor/measure", "device/cpu", "device/cuda"},
		"internal/doctor/measure": {"host", "device/op"},
		"checkpoint/export":       {"checkpoint", "model"},
		"internal/run/config":     {"model", "data"},
		"actors":                  {"host", "data", "plan", "plan/rates", "device/virtual", "base/cluster"},
		"checkpoint":              {"host/optim"},
		"plan":                    {"layers", "host/optim"},
		"plan/rates":              {"device/op"},
		"layers":                  {"device/op", "model", "layers/schedule"},
		"host":                    {"host/optim", "host/extents"},
		"host/extents":            nil,
		"host/optim":              {"model"},

		// A run is a chain of stages, and a stage imports those above it.
		"internal/run/settings": {"internal/run/config", "checkpoint", "host", "plan/rates", "cudart", "base/cluster"},
		"internal/run/ranks":    {"internal/run/settings", "actors"},
		"internal/run/report":   {"internal/run/settings", "actors", "internal/chart", "internal/watch"},
		"internal/run/open":     {"internal/run/ranks", "internal/run/report", "internal/run/machine"},
		"internal/run/resume":   {"internal/run/open"},
		"internal/run/resolve":  {"internal/run/resume"},
		"internal/run/save":     {"internal/run/resolve"},
		"internal/run/generate": {"internal/run/open", "layers"},
		"internal/run/session":  {"internal/run/save", "internal/run/generate"},
		"internal/run/predict":  {"internal/run/save", "device/wrap"},
		"internal/run/trials":   {"internal/run/predict"},
		"internal/run":          {"internal/run/session", "internal/run/predict"},

		"model":           nil,
		"data":            {"data/jinja", "data/tokenizer"},
		"data/jinja":      nil,
		"data/tokenizer":  nil,
		"device":          nil,
		"layers/schedule": nil,
		"cudart":          nil,

		"device/op":                 {"device"},
		"device/cpu":                {"device/op"},
		"device/virtual":            {"plan/rates"},
		"device/cuda":               {"device/op", "cudart"},
		"device/cuda/appraise":      {"device/cuda", "plan/rates"},
		"device/conformance/oracle": nil,
		"device/conformance":        {"device/op", "device/conformance/oracle"},
		"device/wrap":               {"device/op"},

		"checkpoint/powercut": {"checkpoint"},
		"tools":               {"internal/chart"},
		"base/cluster":        nil,

		"internal/testkit/reference":   {"model"},
		"internal/testkit/synchronous": {"plan", "host", "data"},
		"internal/chart":               nil,
		"internal/watch":               nil,
		"internal/lint":                nil,
		"internal/testkit":             nil,
	},
	Helpers: "base",
	Fences: map[string][]string{
		"bench":                   {"cmd"},
		"checkpoint/export":       {"cmd"},
		"internal/doctor":         {"bench", "cmd", "internal/run/tune"},
		"internal/doctor/measure": {"bench", "cmd", "internal/doctor", "internal/run/machine", "internal/run/open"},
		"internal/run/tune":       {"cmd"},
	},
	TestOnly: []string{"checkpoint/powercut", "cudart/emu", "device/cuda/appraise", "internal/testkit/reference", "internal/testkit/synchronous", "internal/testkit"},
	ForTests: []string{"checkpoint/powercut", "device/conformance/oracle", "device/conformance", "device/wrap", "device/cpu", "device/cuda", "cudart", "cudart/emu", "internal/testkit/reference", "internal/testkit/synchronous", "internal/testkit"},
	Only: map[string][]string{
		"unsafe":                            {"cudart", "device/cpu", "device/cuda", "host", "base/cluster"},
		"github.com/asynkron/protoactor-go": {"actors"},
		"github.com/ebitengine/purego":      {"cudart", "device/cpu", "base/cluster"},
	},
}

// Check returns the violations of the rules in pkgs, one sentence each, in order.
func (r *Rules) Check(pkgs []Package) []string {
	var found []string
	for _, p := range pkgs {
		if r.name(p.Path) == "" {
			found = append(found, fmt.Sprintf("%s: no rule names this package; add it to Arrows in internal/lint", path.Join(".", p.Path)))
			continue
		}
		for _, to := range p.Imports {
			found = r.appendImport(found, p.Path, to, false)
		}
		for _, to := range p.TestImports {
			if !slices.Contains(p.Imports, to) {
				found = r.appendImport(found, p.Path, to, true)
			}
		}
	}
	slices.Sort(found)
	return found
}

// appendImport returns found, extended by a sentence if the import of to by the package from violates the rules. test
// says that a test imports it.
func (r *Rules) appendImport(found []string, from, to string, test bool) []string {
	who := from
	if test {
		who = "the tests of " + from
	}
	own, internal := strings.CutPrefix(to, "./")
	if !internal {
		for start, names := range r.Only {
			if within(to, start) && !slices.ContainsFunc(names, func(n string) bool { return within(from, n) }) {
				found = append(found, fmt.Sprintf("%s import %s, which only %s may", who, to, strings.Join(names, ", ")))
			}
		}
		return found
	}
	name, target := r.name(from), r.name(own)
	allowed, fenced := r.Fences[r.fence(own)]
	switch {
	case name == target:
	case fenced && longest(from, allowed) == "":
		found = append(found, fmt.Sprintf("%s import %s, which serves a run from beside it: only %s may", who, own, strings.Join(allowed, ", ")))
	case test && longest(own, r.ForTests) != "":
	case longest(own, r.TestOnly) != "" && longest(from, r.TestOnly) == "":
		found = append(found, fmt.Sprintf("%s import %s, which is for tests", who, own))
	case !r.reaches(name, target, map[string]bool{}):
		found = append(found, fmt.Sprintf("%s import %s against the arrows: %s may reach %s", who, own, name, r.below(name)))
	}
	return found
}

// name returns the longest of the names in Arrows that covers the package with this path; "" if none does.
func (r *Rules) name(path string) string {
	names := make([]string, 0, len(r.Arrows))
	for n := range r.Arrows {
		names = append(names, n)
	}
	best := longest(path, names)
	if best == "" && within(path, r.Helpers) {
		best = r.Helpers
	}
	return best
}

// fence returns the longest of the names in Fences that covers the package with this path; "" if none does.
func (r *Rules) fence(path string) string {
	names := make([]string, 0, len(r.Fences))
	for n := range r.Fences {
		names = append(names, n)
	}
	return longest(path, names)
}

// reaches reports whether a chain of Arrows leads from the name `from` to the name `to`. Every name
// reaches itself and Helpers. seen holds the names that were already visited.
func (r *Rules) reaches(from, to string, seen map[string]bool) bool {
	if from == to || to == r.Helpers {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	return slices.ContainsFunc(r.Arrows[from], func(next string) bool { return r.reaches(next, to, seen) })
}

// below lists the names to which chains of Arrows lead from name, as text for an error.
func (r *Rules) below(name string) string {
	var names []string
	for to := range r.Arrows {
		if to != name && r.reaches(name, to, map[string]bool{}) {
			names = append(names, to)
		}
	}
	slices.Sort(names)
	return strings.Join(append(names, "helpers in "+r.Helpers), ", ")
}

// within reports whether path is the folder name or lies below it.
func within(path, name string) bool {
	return path == name || strings.HasPrefix(path, name+"/")
}

// longest returns the longest of names that is path or a folder above it; "" if none is.
func longest(path string, names []string) string {
	best := ""
	for _, n := range names {
		if len(n) > len(best) && within(path, n) {
			best = n
		}
	}
	return best
}
