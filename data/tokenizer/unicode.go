package tokenizer

import (
	_ "embed" // for unicodeRuns
	"encoding/binary"
	"sync"
	"unicode/utf8"
)

// unicodeRuns holds the classes of all code points as the `tokenizers` library sees them. The library's Unicode
// version is not Go's and stays the same when Go's changes. testdata/unicode.py writes the file and documents its
// format.
//
//go:embed unicode.bin
var unicodeRuns []byte

// class is the general category of a code point, such as uppercase letter, with three further properties as flags.
type class uint8

const (
	catLu class = iota
	catLl
	catLt
	catLm
	catLo
	catMn
	catMc
	catMe
	catNd
	catNl
	catNo
	catPc
	catPd
	catPs
	catPe
	catPi
	catPf
	catPo
	catSm
	catSc
	catSk
	catSo
	catZs
	catZl
	catZp
	catCc
	catCf
	catCo
	// Combining marks that Unicode added after version 9, the version that the normalizers know.
	catYoungMn
	catYoungMc
	catYoungMe

	catMask    class = 31
	classWord  class = 32
	classInert class = 64 // has no decomposition and combining class 0
	classHan   class = 128
)

// categories is a set of general categories, with one bit for each.
type categories uint32

const (
	setL    = 1<<catLu | 1<<catLl | 1<<catLt | 1<<catLm | 1<<catLo
	setM    = setOldM | 1<<catYoungMn | 1<<catYoungMc | 1<<catYoungMe
	setOldM = 1<<catMn | 1<<catMc | 1<<catMe
	setN    = 1<<catNd | 1<<catNl | 1<<catNo
	setP    = 1<<catPc | 1<<catPd | 1<<catPs | 1<<catPe | 1<<catPi | 1<<catPf | 1<<catPo
	setS    = 1<<catSm | 1<<catSc | 1<<catSk | 1<<catSo
	setZ    = 1<<catZs | 1<<catZl | 1<<catZp
	setC    = 1<<catCc | 1<<catCf | 1<<catCo | 1<<catMask
	// The letters that the pattern of o200k (GPT-4o) accepts at the start of a word, and in the rest of a word.
	setUpper = 1<<catLu | 1<<catLt | 1<<catLm | 1<<catLo | setM
	setLower = 1<<catLl | 1<<catLm | 1<<catLo | setM
)

// unicodeTable holds the class of every code point, unpacked from unicodeRuns as a two-stage table. block gives for
// each 256 code points the row of class that holds their classes.
type unicodeTable struct {
	block [0x1100]uint16
	class [][256]class
}

var unicodeClasses = sync.OnceValue(func() *unicodeTable {
	flat, runs := make([]class, 0, 0x110000), unicodeRuns
	for len(runs) > 0 {
		n, size := binary.Uvarint(runs)
		for range n {
			flat = append(flat, class(runs[size]))
		}
		runs = runs[size+1:]
	}
	t, seen := new(unicodeTable), map[[256]class]uint16{}
	for i := range t.block {
		b := [256]class(flat[i*256:])
		n, ok := seen[b]
		if !ok {
			n = uint16(len(t.class))
			seen[b] = n
			t.class = append(t.class, b)
		}
		t.block[i] = n
	}
	return t
})

func (t *unicodeTable) of(r rune) class { return t.class[t.block[r>>8]][r&255] }

// in reports whether the general category of the character r is in set.
func (t *unicodeTable) in(r rune, set categories) bool { return set>>(t.of(r)&catMask)&1 != 0 }

// isSpace reports whether r is white space, as \s in patterns and Rust's char::is_whitespace define it.
func isSpace(r rune) bool {
	switch {
	case r <= ' ':
		return r == ' ' || r >= '\t' && r <= '\r'
	case r < 0x2000:
		return r == 0x85 || r == 0xa0 || r == 0x1680
	}
	return r <= 0x200a || r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000
}

// decodeRune returns the first character of text and its length in bytes. Text must be valid UTF-8 and not empty.
func decodeRune(text []byte) (rune, int) {
	if text[0] < utf8.RuneSelf {
		return rune(text[0]), 1
	}
	return utf8.DecodeRune(text)
}
