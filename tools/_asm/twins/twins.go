// Package twins serves generators of assembly: it finds functions of a generated file whose comments are the same,
// apart from the instruction set or one number. Only the first function of such a group gets the comment.
package twins

import "regexp"

var (
	number    = regexp.MustCompile(`\d+`)
	described = map[string]bool{}
)

// First reports whether doc is new: no earlier call had the same text, apart from the first number in it.
func First(doc string) bool {
	if at := number.FindStringIndex(doc); at != nil {
		doc = doc[:at[0]] + doc[at[1]:]
	}
	was := described[doc]
	described[doc] = true
	return !was
}
