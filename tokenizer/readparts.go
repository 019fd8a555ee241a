package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// part is a normalizer, pre-tokenizer, post-processor or decoder of
// tokenizer.json, with the members of all of them.
type part struct {
	where string // in tokenizer.json
	Type  string `json:"type"`

	Normalizers   []json.RawMessage `json:"normalizers"`
	PreTokenizers []json.RawMessage `json:"pretokenizers"`
	Processors    []json.RawMessage `json:"processors"`
	Decoders      []json.RawMessage `json:"decoders"`

	Prepend        string          `json:"prepend"`
	Pattern        json.RawMessage `json:"pattern"`
	Content        string          `json:"content"`
	StripLeft      bool            `json:"strip_left"`
	StripRight     bool            `json:"strip_right"`
	Behavior       string          `json:"behavior"`
	Invert         bool            `json:"invert"`
	AddPrefixSpace *bool           `json:"add_prefix_space"`
	UseRegex       *bool           `json:"use_regex"`
	Replacement    string          `json:"replacement"`
	PrependScheme  *string         `json:"prepend_scheme"`
	Split          *bool           `json:"split"`
	Individual     bool            `json:"individual_digits"`
	Delimiter      string          `json:"delimiter"`
	Start          int             `json:"start"`
	Stop           int             `json:"stop"`
	Suffix         string          `json:"suffix"`

	Single        []json.RawMessage          `json:"single"`
	SpecialTokens map[string]json.RawMessage `json:"special_tokens"`
	Sep           json.RawMessage            `json:"sep"`
	Cls           json.RawMessage            `json:"cls"`
}

// maxParts is how many a sequence may have.
const maxParts = 256

// parts reads raw, which is at where in tokenizer.json, and takes sequences apart. null gives no
// parts.
func parts(where string, raw []byte, depth int) ([]*part, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	if depth > maxNesting {
		return nil, fmt.Errorf("%s: it nests too deeply", where)
	}
	p := &part{where: where}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("%s: %w", where, err)
	}
	if p.Type != "Sequence" {
		return []*part{p}, nil
	}
	var all []*part
	for _, list := range []struct {
		key   string
		parts []json.RawMessage
	}{{"normalizers", p.Normalizers}, {"pretokenizers", p.PreTokenizers}, {"processors", p.Processors}, {"decoders", p.Decoders}} {
		for i, raw := range list.parts {
			one, err := parts(fmt.Sprintf("%s.%s[%d]", where, list.key, i), raw, depth+1)
			if err != nil {
				return nil, err
			}
			if all = append(all, one...); len(all) > maxParts {
				return nil, fmt.Errorf("%s: more than %d parts", where, maxParts)
			}
		}
	}
	return all, nil
}

// readParts reads raw, the member where of tokenizer.json, and calls read for each of its
// parts.
func readParts[T any](where string, raw []byte, read func(*part) (T, error)) ([]T, error) {
	all, err := parts(where, raw, 0)
	if err != nil {
		return nil, err
	}
	var out []T
	for _, p := range all {
		one, err := read(p)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

func (p *part) unknown() error {
	return fmt.Errorf("%s.type: %q is not supported; give input_ids (JSONL) that another tool has made", p.where, p.Type)
}

// pattern reads {"String": …} or {"Regex": …}: a literal or an expression.
func (p *part) pattern() (lit string, re *regex, err error) {
	var v struct {
		String *string
		Regex  *string
	}
	if err := json.Unmarshal(p.Pattern, &v); err != nil || (v.String == nil) == (v.Regex == nil) {
		return "", nil, fmt.Errorf(`%s.pattern: it is %s, not {"String": …} or {"Regex": …}`, p.where, shorten(p.Pattern))
	}
	if v.String != nil {
		if *v.String == "" {
			err = fmt.Errorf("%s.pattern: an empty string is not supported", p.where)
		}
		return *v.String, nil, err
	}
	re, err = compileRegex(*v.Regex)
	if err != nil {
		return "", nil, describe(p.where+".pattern", *v.Regex, err)
	}
	return *v.Regex, re, nil
}

func (p *part) normalizer() (normalizer, error) {
	switch p.Type {
	case "NFC":
		return unicodeForm{norm.NFC, true}, nil
	case "NFD":
		return unicodeForm{norm.NFD, false}, nil
	case "NFKC":
		return unicodeForm{norm.NFKC, true}, nil
	case "NFKD":
		return unicodeForm{norm.NFKD, false}, nil
	case "Prepend":
		return prependText(p.Prepend), nil
	case "Lowercase":
		return lowercase{}, nil
	case "Strip":
		return stripSpace{p.StripLeft, p.StripRight}, nil
	case "StripAccents":
		return stripAccents{}, nil
	case "ByteLevel":
		return byteLetters{}, nil
	case "Replace":
		return p.replace()
	}
	return nil, p.unknown()
}

// replace reads a normalizer or decoder that replaces a literal or the matches of an
// expression. Text that refers to the expression's groups is refused.
func (p *part) replace() (normalizer, error) {
	lit, re, err := p.pattern()
	switch {
	case err != nil:
		return nil, err
	case re == nil:
		return replaceText{lit, p.Content}, nil
	case strings.Contains(p.Content, "$"):
		return nil, fmt.Errorf("%s.content: %q refers to groups, which is not supported", p.where, p.Content)
	}
	return replacePattern{re, p.Content}, nil
}

// readPreTokenizers reads "pre_tokenizer". The second result tells whether words come out as
// bytes, each written as a letter; the step that would write these letters is left out.
func readPreTokenizers(raw []byte) ([]preTokenizer, bool, error) {
	all, err := readParts("pre_tokenizer", raw, (*part).preTokenizers)
	out := slices.Concat(all...)
	if n := len(out) - 1; n >= 0 && out[n] == (letterPieces{}) {
		return out[:n], true, err
	}
	return out, false, err
}

// preTokenizers are the steps that p stands for, in order.
func (p *part) preTokenizers() (out []preTokenizer, err error) {
	at := func(f finder, b behavior) *splitter { return &splitter{f: f, behavior: b} }
	u := unicodeClasses()
	space := at(oneOf(isSpace), removed)
	switch p.Type {
	case "ByteLevel":
		if p.AddPrefixSpace == nil || *p.AddPrefixSpace {
			out = append(out, spaceBefore{})
		}
		if p.UseRegex == nil || *p.UseRegex {
			out = append(out, at(&scanners[0], isolated))
		}
		return append(out, letterPieces{}), nil
	case "Split":
		s, err := p.splitter()
		return append(out, s), err
	case "Metaspace":
		m, err := p.metaspaces()
		return append(out, m), err
	case "Digits":
		b := contiguous
		if p.Individual {
			b = isolated
		}
		return append(out, at(oneOf(func(r rune) bool { return u.in(r, setN) }), b)), nil
	case "Whitespace":
		re, err := compileRegex(`\w+|[^\w\s]+`)
		return append(out, &splitter{f: re, behavior: removed, invert: true}), err
	case "WhitespaceSplit":
		return append(out, space), nil
	case "CharDelimiterSplit":
		return append(out, at(literal(p.Delimiter), removed)), nil
	case "Punctuation", "BertPreTokenizer":
		b, err := p.behaviorOf()
		if p.Type == "BertPreTokenizer" {
			out = append(out, space)
		}
		return append(out, at(oneOf(func(r rune) bool { return punctuation(u, r) }), b)), err
	}
	return nil, p.unknown()
}

// punctuation tells whether `tokenizers` takes r for punctuation: what is so in Unicode, and
// the symbols of ASCII.
func punctuation(u *unicodeTable, r rune) bool {
	return u.in(r, setP) || r < 0x80 && u.in(r, setS)
}

// behaviorOf reads the behavior; where it is "" that is isolated.
func (p *part) behaviorOf() (behavior, error) {
	for i, n := range []string{"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"} {
		if p.Behavior == n {
			return behavior(i), nil
		}
	}
	if p.Behavior == "" {
		return isolated, nil
	}
	return 0, fmt.Errorf("%s.behavior: %q is not known", p.where, p.Behavior)
}

func (p *part) splitter() (*splitter, error) {
	b, err := p.behaviorOf()
	if err != nil {
		return nil, err
	}
	lit, re, err := p.pattern()
	if err != nil {
		return nil, err
	}
	s := &splitter{f: literal(lit), behavior: b, invert: p.Invert}
	if re == nil {
		return s, nil
	}
	s.f = re
	for i := range scanners {
		if scanners[i].pattern == lit {
			s.f = &scanners[i]
		}
	}
	return s, nil
}

func (p *part) metaspaces() (*metaspaces, error) {
	if len([]rune(p.Replacement)) != 1 {
		return nil, fmt.Errorf("%s.replacement: %q is not one character", p.where, p.Replacement)
	}
	m := &metaspaces{letter: p.Replacement, cut: p.Split == nil || *p.Split}
	switch s := p.scheme(); s {
	case "always":
		m.always = true
	case "first":
		m.first = true
	case "never":
	default:
		return nil, fmt.Errorf("%s.prepend_scheme: %q is none of always, first, never", p.where, s)
	}
	return m, nil
}

// scheme says in front of which pieces Metaspace puts its letter; old files say it in another key.
func (p *part) scheme() string {
	switch {
	case p.PrependScheme != nil:
		return *p.PrependScheme
	case p.AddPrefixSpace != nil && !*p.AddPrefixSpace:
		return "never"
	}
	return "always"
}
