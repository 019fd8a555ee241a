package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxWidth bounds the width and precision of a formatted value.
const maxWidth = 1 << 16

// spec is how one value is formatted.
type spec struct {
	fill      string // "" means a space
	align     byte   // < > ^ =, 0 as the type has it
	sign      byte   // + or space, 0 only -
	alt       bool   // #
	width     int
	comma     byte // , or _, 0 none
	precision int  // -1: none
	verb      byte // 0: none
}

// formatMarkup is v % arg for a string v.
func (r *run) formatMarkup(v any, s string, arg any) any {
	_, mark := v.(markup)
	return like(v, r.percent(s, arg, mark))
}

// percentArgs gives the arguments of a % one by one.
type percentArgs struct {
	r    *run
	arg  any
	list []any
	used int
}

func (p *percentArgs) next() any {
	if p.used >= len(p.list) {
		p.r.fail("not enough arguments for format string")
	}
	p.used++
	return p.list[p.used-1]
}

// percent is Python's s % arg. With escape, what is inserted is escaped for HTML.
func (r *run) percent(s string, arg any, escape bool) string {
	args := &percentArgs{r: r, arg: arg, list: []any{arg}}
	if isTuple(arg) {
		args.list, _ = asSeq(arg)
	}
	keyed := false
	var b strings.Builder
	for {
		i := strings.IndexByte(s, '%')
		if i < 0 {
			break
		}
		r.grow(i + 16)
		b.WriteString(s[:i])
		s = s[i+1:]
		if strings.HasPrefix(s, "%") {
			b.WriteByte('%')
			s = s[1:]
			continue
		}
		var part string
		var byKey bool
		part, s, byKey = r.percentOne(s, args, escape)
		keyed = keyed || byKey
		r.grow(len(part))
		b.WriteString(part)
	}
	b.WriteString(s)
	if !keyed && args.used < len(args.list) && !isMapping(arg) {
		r.fail("not all arguments converted during string formatting")
	}
	return b.String()
}

// isMapping tells whether Python takes v for a mapping of values to format, which may have
// values that are not used.
func isMapping(v any) bool {
	switch v.(type) {
	case *Object, []any, *undefined, intRange:
		return true
	}
	return false
}

// percentOne formats one value as s says, which begins after the %. rest is the rest of s.
func (r *run) percentOne(s string, args *percentArgs, escape bool) (out, rest string, byKey bool) {
	f := spec{precision: -1}
	var v any
	if strings.HasPrefix(s, "(") {
		end := matching(s, '(', ')')
		o, ok := args.arg.(*Object)
		if end < 0 || !ok {
			r.fail("format requires a mapping")
		}
		v, ok = o.get(s[1:end])
		if !ok {
			r.fail("the format string's key %q is not there", s[1:end])
		}
		byKey, s = true, s[end+1:]
	}
	s = f.flags(s)
	f.width, s = r.number(s, args, 0)
	if strings.HasPrefix(s, ".") {
		if f.precision, s = r.number(s[1:], args, 0); f.precision < 0 {
			f.precision = 0
		}
	}
	if f.width < 0 {
		f.width, f.align = -f.width, '<'
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		r.fail("incomplete format")
	}
	f.verb = s[0]
	if !byKey {
		v = args.next()
	}
	out = r.percentValue(f, v, escape)
	return out, s[1:], byKey
}

// flags reads the flags at s.
func (f *spec) flags(s string) string {
	for ; s != ""; s = s[1:] {
		switch c := s[0]; c {
		case '-':
			f.align = '<'
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			if f.align == 0 {
				f.fill, f.align = "0", '='
			}
		default:
			return s
		}
	}
	return s
}

// number reads digits, or a * for an argument, at the start of s; it is none where neither is there.
func (r *run) number(s string, args *percentArgs, none int) (int, string) {
	n, digits := none, 0
	if strings.HasPrefix(s, "*") && args != nil {
		i, ok := asInt(args.next())
		if !ok {
			r.fail("* wants int")
		}
		if i < -maxWidth || i > maxWidth {
			r.fail("a width or precision of more than %d", maxWidth)
		}
		return int(i), s[1:]
	}
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	if digits > 0 {
		var err error
		if n, err = strconv.Atoi(s[:digits]); err != nil || n > maxWidth {
			r.fail("a width or precision of more than %d", maxWidth)
		}
	}
	return n, s[digits:]
}

func (r *run) percentValue(f spec, v any, escape bool) string {
	if f.align == 0 {
		f.align = '>'
	}
	switch f.verb {
	case 's', 'r', 'a':
		f.fill = ""
		if f.align == '=' {
			f.align = '>'
		}
		text := r.converted(f.verb, v)
		if _, safe := v.(markup); escape && !(safe && f.verb == 's') {
			text = escapeHTML(text)
		}
		return r.padText(f, cutText(text, f.precision))
	case 'c':
		f.fill = ""
		if i, ok := asInt(v); ok && i >= 0 && utf8.ValidRune(rune(min(i, math.MaxInt32))) {
			return r.padText(f, string(rune(i)))
		}
		if s, ok := asStr(v); ok && runeCount(s) == 1 {
			return r.padText(f, s)
		}
		r.fail("%%c requires int or char")
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return r.percentInt(f, v)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		x, ok := asFloat(v)
		if !ok {
			r.usable(v)
			r.fail("must be real number, not %s", typeName(v))
		}
		if f.precision < 0 {
			f.precision = 6
		}
		return r.padNumber(f, floatText(f, x))
	}
	r.fail("unsupported format character '%c'", f.verb)
	return ""
}

// converted is v as the conversion s, r or a makes it.
func (r *run) converted(conversion byte, v any) string {
	switch conversion {
	case 'r':
		return r.reprOf(v)
	case 'a':
		var b strings.Builder
		for _, c := range r.reprOf(v) {
			if c < 0x80 {
				b.WriteRune(c)
				continue
			}
			var one strings.Builder
			reprString(&one, string(c), true)
			b.WriteString(strings.Trim(one.String(), "'"))
		}
		return b.String()
	}
	return r.str(v)
}

func (r *run) percentInt(f spec, v any) string {
	b, ok := asBig(v)
	if x, isFloat := v.(float64); isFloat && f.verb != 'x' && f.verb != 'X' && f.verb != 'o' {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			r.fail("cannot convert float %s to integer", floatRepr(x))
		}
		b, ok = asBig(intOf(math.Trunc(x)))
	}
	if !ok {
		r.usable(v)
		r.fail("%%%c format: a number is required, not %s", f.verb, typeName(v))
	}
	text := intText(f, b)
	if sign := strings.HasPrefix(text, "-"); f.precision > 0 {
		digits := strings.TrimPrefix(text, "-")
		if n := f.precision - len(digits); n > 0 {
			digits = strings.Repeat("0", n) + digits
		}
		if text = digits; sign {
			text = "-" + digits
		}
	}
	return r.padNumber(f, text)
}

// intText is b in the base of the verb, with its prefix where f has #.
func intText(f spec, b *big.Int) string {
	base, prefix := 10, ""
	switch f.verb {
	case 'x', 'X':
		base, prefix = 16, "0"+string(f.verb)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	text := new(big.Int).Abs(b).Text(base)
	if f.verb == 'X' {
		text = strings.ToUpper(text)
	}
	if f.alt {
		text = prefix + text
	}
	if b.Sign() < 0 {
		text = "-" + text
	}
	return text
}

// floatText is x in the form e, f or g.
func floatText(f spec, x float64) string {
	verb := f.verb | 0x20
	var text string
	switch {
	case math.IsNaN(x):
		text = "nan"
	case math.IsInf(x, 0):
		text = strings.TrimPrefix(floatRepr(x), "+")
	case verb == 'g':
		text = generalText(x, max(f.precision, 1), max(f.precision, 1), f.alt)
	default:
		text = strconv.FormatFloat(x, verb, f.precision, 64)
		if f.alt && f.precision == 0 {
			if i := strings.IndexByte(text, 'e'); i >= 0 {
				text = text[:i] + "." + text[i:]
			} else {
				text += "."
			}
		}
	}
	if f.verb < 'a' {
		text = strings.ToUpper(text)
	}
	return text
}

// generalText is x with the given number of digits, in the form g: with a power of ten
// from 10^most on.
func generalText(x float64, digits, most int, keep bool) string {
	e := strconv.FormatFloat(x, 'e', digits-1, 64)
	at := strings.IndexByte(e, 'e')
	exp, _ := strconv.Atoi(e[at+1:])
	mantissa, tail := e[:at], e[at:]
	if exp >= -4 && exp < most {
		mantissa, tail = strconv.FormatFloat(x, 'f', digits-1-exp, 64), ""
	}
	if strings.Contains(mantissa, ".") && !keep {
		mantissa = strings.TrimRight(strings.TrimRight(mantissa, "0"), ".")
	}
	return mantissa + tail
}

// cutText is the first n characters of s, all of them where n is negative.
func cutText(s string, n int) string {
	if n < 0 {
		return s
	}
	return s[:byteOffset(s, int64(n))]
}

// padText fills text to f's width.
func (r *run) padText(f spec, text string) string {
	n := f.width - runeCount(text)
	if n <= 0 {
		return text
	}
	fill := f.fill
	if fill == "" {
		fill = " "
	}
	r.grow(n * len(fill))
	switch f.align {
	case '<':
		return text + strings.Repeat(fill, n)
	case '^':
		return strings.Repeat(fill, n/2) + text + strings.Repeat(fill, n-n/2)
	}
	return strings.Repeat(fill, n) + text
}

// padNumber puts f's sign before text and fills it; = fills behind the sign.
func (r *run) padNumber(f spec, text string) string {
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	} else if f.sign != 0 {
		sign = string(f.sign)
	}
	if f.alt && len(text) > 2 && text[0] == '0' && strings.IndexByte("xXob", text[1]) >= 0 {
		sign, text = sign+text[:2], text[2:]
	}
	if f.align != '=' {
		return r.padText(f, sign+text)
	}
	f.align = '>'
	f.width -= len(sign)
	return sign + r.padText(f, text)
}
