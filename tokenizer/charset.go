package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
)

// charset is a set of characters as a regular expression writes one.
type charset struct {
	ranges []runeRange
	cats   categories
	space  bool
	word   bool
	tables []*unicode.RangeTable // scripts
	parts  []*charset            // sets within the set
	and    *charset              // what it is cut with
	not    bool                  // all the others are meant
	fold   bool                  // case does not matter
}

type runeRange struct{ from, to rune }

// has tells whether r is in the set.
func (s *charset) has(u *unicodeTable, r rune) bool {
	in := s.plain(u, r)
	if s.fold {
		for f := unicode.SimpleFold(r); f != r && !in; f = unicode.SimpleFold(f) {
			in = s.plain(u, f)
		}
	}
	if s.and != nil {
		in = in && s.and.has(u, r)
	}
	return in != s.not
}

func (s *charset) plain(u *unicodeTable, r rune) bool {
	for _, x := range s.ranges {
		if x.from <= r && r <= x.to {
			return true
		}
	}
	if c := u.of(r); s.cats>>(c&catMask)&1 != 0 || s.word && c&classWord != 0 || s.space && isSpace(r) {
		return true
	}
	for _, t := range s.tables {
		if t == unicode.Han && u.of(r)&classHan != 0 || t != unicode.Han && unicode.Is(t, r) {
			return true
		}
	}
	for _, p := range s.parts {
		if p.has(u, r) {
			return true
		}
	}
	return false
}

func (s *charset) add(from, to rune) { s.ranges = append(s.ranges, runeRange{from, to}) }

// categoryNames are the names that \p{…} knows.
var categoryNames = map[string]categories{
	"l": setL, "m": setM, "n": setN, "p": setP, "s": setS, "z": setZ, "c": setC,
	"letter": setL, "mark": setM, "number": setN, "punctuation": setP, "punct": setP, "symbol": setS, "separator": setZ,
	"lu": 1 << catLu, "ll": 1 << catLl, "lt": 1 << catLt, "lm": 1 << catLm, "lo": 1 << catLo,
	"mn": 1<<catMn | 1<<catYoungMn, "mc": 1<<catMc | 1<<catYoungMc, "me": 1<<catMe | 1<<catYoungMe, "nd": 1 << catNd, "nl": 1 << catNl, "no": 1 << catNo,
	"pc": 1 << catPc, "pd": 1 << catPd, "ps": 1 << catPs, "pe": 1 << catPe, "pi": 1 << catPi, "pf": 1 << catPf, "po": 1 << catPo,
	"sm": 1 << catSm, "sc": 1 << catSc, "sk": 1 << catSk, "so": 1 << catSo, "zs": 1 << catZs, "zl": 1 << catZl, "zp": 1 << catZp,
	"cc": 1 << catCc, "cf": 1 << catCf, "co": 1 << catCo, "digit": 1 << catNd,
}

// property is the set that \p{name} stands for. Scripts other than Han are
// those of Go's version of Unicode.
func property(name string) (*charset, error) {
	s := &charset{}
	if strings.HasPrefix(name, "^") {
		s.not, name = true, name[1:]
	}
	plain := strings.ToLower(strings.NewReplacer("_", "", " ", "", "-", "").Replace(name))
	if set, ok := categoryNames[plain]; ok {
		s.cats = set
		return s, nil
	}
	switch plain {
	case "space", "whitespace":
		s.space = true
		return s, nil
	case "word":
		s.word = true
		return s, nil
	}
	for script, table := range unicode.Scripts {
		if strings.EqualFold(strings.ReplaceAll(script, "_", ""), plain) {
			s.tables = append(s.tables, table)
			return s, nil
		}
	}
	return nil, fmt.Errorf("the property {%s} is not known here", name)
}
