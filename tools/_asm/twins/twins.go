// Package twins finds functions of a generated file that have the same doc, apart from the instruction set or one
// number. Only the first function of each group gets the doc.
package twins

import "regexp"

var (
	number    = regexp.MustCompile(`\d+`)
	described = map[string]bool{}
)

// First reports whether no earlier call had the same doc, ignoring the first number in doc.
func First(doc string) bool {
	if at := number.FindStringIndex(doc); at != nil {
		doc = doc[:at[0]] + doc[at[1]:]
	}
	was := described[doc]
	described[doc] = true
	return !was
}
