package lint

import (
	"fmt"
	"slices"
	"strings"
)

// uses collects the entries of Rules that allow some import. Other entries are superfluous.
type uses struct {
	names            map[string]bool
	arrows, only     map[[2]string]bool // from and to; start of a path and name
	testOnly, tested map[string]bool
}

// Unused returns the entries of the rules that no import of pkgs needs, one sentence each, in order. pkgs must be all
// packages of the module. An import needs an arrow if the arrow alone allows it, not if it takes several arrows.
func (r *Rules) Unused(pkgs []Package) []string {
	u := uses{map[string]bool{}, map[[2]string]bool{}, map[[2]string]bool{}, map[string]bool{}, map[string]bool{}}
	for _, p := range pkgs {
		u.names[r.name(p.Path)] = true
		for _, to := range p.Imports {
			r.use(&u, p.Path, to, false)
		}
		for _, to := range p.TestImports {
			r.use(&u, p.Path, to, true)
		}
	}
	var found []string
	for from, tos := range r.Arrows {
		if !u.names[from] {
			found = append(found, fmt.Sprintf("Arrows: no package is %s", from))
		}
		for _, to := range tos {
			if !u.arrows[[2]string{from, to}] {
				found = append(found, fmt.Sprintf("Arrows: nothing in %s imports %s", from, to))
			}
		}
	}
	for start, names := range r.Only {
		for _, n := range names {
			if !u.only[[2]string{start, n}] {
				found = append(found, fmt.Sprintf("Only: nothing in %s imports %s", n, start))
			}
		}
	}
	for _, n := range r.TestOnly {
		if !u.testOnly[n] {
			found = append(found, fmt.Sprintf("TestOnly: nothing else imports %s", n))
		}
	}
	for _, n := range r.ForTests {
		if !u.tested[n] {
			found = append(found, fmt.Sprintf("ForTests: no test imports %s that could not without", n))
		}
	}
	slices.Sort(found)
	return found
}

// use records in u which entries of the rules allow the package from to import to. test says that a test imports it; a
// test's import of a name in ForTests needs no arrow.
func (r *Rules) use(u *uses, from, to string, test bool) {
	own, internal := strings.CutPrefix(to, "./")
	if !internal {
		for start, names := range r.Only {
			if n := longest(from, names); n != "" && within(to, start) {
				u.only[[2]string{start, n}] = true
			}
		}
		return
	}
	name, target := r.name(from), r.name(own)
	if name == target {
		return
	}
	u.testOnly[longest(own, r.TestOnly)] = true
	if tested := longest(own, r.ForTests); test && tested != "" {
		u.tested[tested] = u.tested[tested] || !r.reaches(name, target, map[string]bool{})
		return
	}
	u.arrows[[2]string{name, target}] = true
}
