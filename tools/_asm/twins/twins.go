// Package twins knows which functions of a generated file are alike but for their set of instructions or one number: what
// they do stands once, above the first of them.
package twins

import "regexp"

var (
	number    = regexp.MustCompile(`\d+`)
	described = map[string]bool{}
)

// First says whether no function before was described by these words, whatever the first number in them is.
func First(doc string) bool {
	if at := number.FindStringIndex(doc); at != nil {
		doc = doc[:at[0]] + doc[at[1]:]
	}
	was := described[doc]
	described[doc] = true
	return !was
}
