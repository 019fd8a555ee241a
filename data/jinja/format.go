package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

func formatMethod(r *run, self any, a *args) any {
	return r.formatText(self, a.pos, a.keywords())
}

func formatMapMethod(r *run, self any, a *args) any {
	v := a.bind(r, "format_map", 1, "mapping").vals[0]
	o, ok := v.(*Object)
	if !ok {
		r.fail("format_map() needs a mapping, not %s", typeName(v))
	}
	return r.formatText(self, nil, o)
}

// formatter is the state of one call of Python's str.format, which replaces fields such as {name:>5}.
type formatter struct {
	r     *run
	pos   []any
	named *Object
	mark  bool
	// next is the index of the argument that the next field without a number, {}, takes. -1: the fields have
	// explicit numbers.
	next int
}

func (r *run) formatText(self any, pos []any, named *Object) any {
	s, _ := asStr(self)
	_, mark := self.(markup)
	return like(self, (&formatter{r, pos, named, mark, 0}).expand(s, 2))
}

// expand returns s with its fields replaced by their values. A field's format may contain fields in turn, at most
// levels deep.
func (f *formatter) expand(s string, levels int) string {
	if levels < 0 {
		f.r.fail("format(): fields nest too deep")
	}
	var b strings.Builder
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			break
		}
		f.r.grow(i + 16)
		f.r.step(1)
		b.WriteString(s[:i])
		if i+1 < len(s) && s[i+1] == s[i] {
			b.WriteByte(s[i])
			s = s[i+2:]
			continue
		}
		if s[i] == '}' {
			f.r.fail("single '}' encountered in format string")
		}
		end := matching(s[i:], '{', '}')
		if end < 0 {
			f.r.fail("expected '}' before end of string")
		}
		part := f.field(s[i+1:i+end], levels)
		f.r.grow(len(part))
		b.WriteString(part)
		s = s[i+end+1:]
	}
	b.WriteString(s)
	return b.String()
}

// matching returns the index of the bracket shut that closes the bracket open at the start of s; -1: it is not
// closed.
func matching(s string, open, shut byte) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case open:
			depth++
		case shut:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field returns the text of one replacement field of str.format; s is its content: name, !conversion, :format. A
// format may contain fields in turn, at most levels deep.
func (f *formatter) field(s string, levels int) string {
	name, format := s, ""
	end := 0
	for bracket := false; end < len(s) && (bracket || s[end] != '!' && s[end] != ':'); end++ {
		bracket = s[end] == '[' || bracket && s[end] != ']'
	}
	conversion := byte(0)
	if name = s[:end]; end < len(s) {
		rest := s[end:]
		if rest[0] == '!' {
			if len(rest) < 2 || len(rest) > 2 && rest[2] != ':' || strings.IndexByte("sra", rest[1]) < 0 {
				f.r.fail("format(): unknown conversion in {%s}", s)
			}
			conversion, rest = rest[1], rest[2:]
		}
		format = strings.TrimPrefix(rest, ":")
	}
	v := f.value(name)
	format = f.expand(format, levels-1)
	if conversion != 0 {
		v = f.r.converted(conversion, v)
	}
	_, safe := v.(markup)
	out := f.r.formatSpec(v, format)
	if f.mark && !safe {
		out = escapeHTML(out)
	}
	return out
}

// value returns the value that a field's name refers to. The name is an argument's number or name, then any number of
// .attribute and [item].
func (f *formatter) value(name string) any {
	first := strings.IndexAny(name, ".[")
	if first < 0 {
		first = len(name)
	}
	v := f.argument(name[:first])
	for rest := name[first:]; rest != ""; {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[") + 1
			if end == 0 {
				end = len(rest)
			}
			v, rest = f.r.getattr(v, rest[1:end]), rest[end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if end < 2 || rest[0] != '[' {
			f.r.fail("format(): a malformed field {%s}", name)
		}
		var key any = rest[1:end]
		if i, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && i >= 0 {
			key = i
		}
		v, rest = f.r.getitem(v, key), rest[end+1:]
	}
	return v
}

func (f *formatter) argument(name string) any {
	i, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.next < 0 {
			f.r.fail("cannot switch from manual field specification to automatic field numbering")
		}
		i = f.next
		f.next++
	case err == nil && name[0] != '-' && name[0] != '+':
		if f.next > 0 {
			f.r.fail("cannot switch from automatic field numbering to manual field specification")
		}
		f.next = -1
	default:
		v, ok := f.named.get(name)
		if !ok {
			f.r.fail("format(): there is no argument '%s'", name)
		}
		return v
	}
	if i >= len(f.pos) {
		f.r.fail("format(): there is no argument %d", i)
	}
	return f.pos[i]
}

// formatSpec is Python's format(v, text), where text is a format specification such as >8.2f.
func (r *run) formatSpec(v any, text string) string {
	if text == "" {
		return r.str(v)
	}
	f := r.parseSpec(text)
	if s, ok := asStr(v); ok {
		if f.verb != 0 && f.verb != 's' || f.sign != 0 || f.align == '=' || f.comma != 0 || f.alt {
			r.fail("format %q does not fit a string", text)
		}
		if f.align == 0 {
			f.align = '<'
		}
		return r.padText(f, cutText(s, f.precision))
	}
	if f.align == 0 {
		f.align = '>'
	}
	if b, ok := asBig(v); ok && strings.IndexByte("\x00bcdoxXn", f.verb) >= 0 {
		return r.formatInt(f, b, text)
	}
	x, ok := asFloat(v)
	if !ok || strings.IndexByte("\x00eEfFgGn%", f.verb) < 0 {
		r.usable(v)
		r.fail("format %q does not fit a value of type %s", text, typeName(v))
	}
	return r.formatFloat(f, x)
}

// parseSpec parses a format specification: [[fill]align][sign][#][0][width][,][.precision][type].
func (r *run) parseSpec(text string) spec {
	f := spec{precision: -1}
	s := text
	_, n := utf8.DecodeRuneInString(s)
	if len(s) > n && strings.IndexByte("<>=^", s[n]) >= 0 {
		f.fill, f.align, s = s[:n], s[n], s[n+1:]
	} else if strings.IndexByte("<>=^", s[0]) >= 0 {
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		if f.sign = s[0]; f.sign == '-' {
			f.sign = 0
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, "#") {
		f.alt, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		if s = s[1:]; f.fill == "" {
			f.fill = "0"
			if f.align == 0 {
				f.align = '='
			}
		}
	}
	f.width, s = r.number(s, nil, 0)
	if s != "" && (s[0] == ',' || s[0] == '_') {
		f.comma, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		if f.precision, s = r.number(s[1:], nil, -1); f.precision < 0 {
			r.fail("format %q lacks its precision", text)
		}
	}
	if len(s) == 1 {
		f.verb, s = s[0], ""
	}
	if s != "" {
		r.fail("format %q is malformed", text)
	}
	return f
}

func (r *run) formatInt(f spec, b *big.Int, text string) string {
	if f.precision >= 0 {
		r.fail("format %q: precision not allowed with an integer", text)
	}
	if f.verb == 'c' {
		if !b.IsInt64() || b.Int64() < 0 || b.Int64() > utf8.MaxRune {
			r.fail("format %q: not a character's number", text)
		}
		return r.padText(f, string(rune(b.Int64())))
	}
	return r.padNumber(f, r.group(f, intText(f, b)))
}

func (r *run) formatFloat(f spec, x float64) string {
	text, percent := "", ""
	switch {
	case f.verb == '%':
		f.verb, percent, x = 'f', "%", x*100
		fallthrough
	case f.verb != 0:
		if f.precision < 0 {
			f.precision = 6
		}
		if f.verb == 'n' {
			f.verb = 'g'
		}
		text = floatText(f, x)
	case f.precision < 0 || math.IsInf(x, 0) || math.IsNaN(x):
		text = floatRepr(x)
	default:
		digits := max(f.precision, 1)
		text = generalText(x, digits, digits-1, false) // room for one decimal
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
	}
	return r.padNumber(f, r.group(f, text+percent))
}

// group inserts f.comma between groups of three digits of the integer part of text, a number. It changes nothing if
// f.comma is 0.
func (r *run) group(f spec, text string) string {
	if f.comma == 0 {
		return text
	}
	sign := ""
	if strings.HasPrefix(text, "-") {
		sign, text = "-", text[1:]
	}
	whole := len(text)
	if i := strings.IndexFunc(text, func(c rune) bool { return c < '0' || c > '9' }); i >= 0 {
		whole = i
	}
	out := text[whole:]
	for i := whole; i > 0; i -= 3 {
		out = text[max(i-3, 0):i] + out
		if i > 3 {
			out = string(f.comma) + out
		}
	}
	return sign + out
}

// maxWidth is the largest width and precision of a formatted value.
const maxWidth = 1 << 16

// spec is a parsed format specification, of str.format or of the % operator.
type spec struct {
	fill      string // "": a space
	align     byte   // < > ^ or =; 0: the default of the type
	sign      byte   // + or space; 0: only - is shown
	alt       bool   // #
	width     int
	comma     byte // , or _; 0: none
	precision int  // -1: none
	verb      byte // 0: none
}

// formatMarkup is Python's v % arg for a string v, whose text is s. If v is markup, so is the result, and inserted
// values are escaped.
func (r *run) formatMarkup(v any, s string, arg any) any {
	_, mark := v.(markup)
	return like(v, r.percent(s, arg, mark))
}

// percentArgs hands out the arguments of a % operator one by one.
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

// percent is Python's s % arg, where s has conversions such as %d. With escape, inserted values are escaped for HTML.
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

// isMapping reports whether Python's % takes v as a mapping of names to values. Unlike a tuple, a mapping may hold
// values that no conversion uses.
func isMapping(v any) bool {
	switch v.(type) {
	case *Object, []any, *undefined, intRange:
		return true
	}
	return false
}

// percentOne formats one conversion of %; s begins after its %. It returns the text, the rest of s after the
// conversion, and whether the conversion named its value, as %(name)d does.
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

// flags parses the flags (-, +, 0 and so on) at the start of s into f, and returns the rest of s.
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

// number parses digits at the start of s, and returns the number and the rest of s. If args is not nil, a * may stand
// there instead, and the next argument is the number. Without either it returns none.
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

// converted returns v as the text of the conversion !s, !r or !a: Python's str, repr or ascii.
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

// intText returns b as digits in the base that f.verb asks for. If f.alt is set, the base's prefix, such as 0x, comes
// first.
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

// floatText returns x in the format e, f or g, as f.verb asks for, with f.precision digits.
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

// generalText returns x in Python's format g, with digits significant digits. It uses scientific notation if the
// decimal exponent is below -4 or at least most. Zeros at the end of the fraction are kept only if keep is set.
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

// cutText returns the first n characters of s; n negative: all of s.
func cutText(s string, n int) string {
	if n < 0 {
		return s
	}
	return s[:byteOffset(s, int64(n))]
}

// padText fills text up to f.width characters, aligned as f.align says.
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

// padNumber fills the number text up to f.width characters, with the sign that f.sign asks for. With align =, the
// fill stands between sign and digits.
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

// clockCodes are the strftime codes that a Go layout can express.
var clockCodes = map[byte]string{
	'a': "Mon", 'A': "Monday", 'b': "Jan", 'h': "Jan", 'B': "January", 'd': "02", 'e': "_2", 'm': "01", 'y': "06",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05",
	'R': "15:04", 'r': "03:04:05 PM", 'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05",
}

// strftime returns the time now in the given format, as Python's strftime does on Linux, in the C locale and without
// a time zone. A - after the % leaves out leading zeros.
func (r *run) strftime(now time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		bare := format[i] == '-' && i+1 < len(format)
		if bare {
			i++
		}
		part, ok := clockPart(now, format[i])
		if !ok {
			r.fail("strftime_now: %%%c is not supported", format[i])
		}
		if bare {
			if part = strings.TrimLeft(part, "0 "); part == "" {
				part = "0"
			}
		}
		r.grow(len(part))
		b.WriteString(part)
	}
	return b.String()
}

func clockPart(now time.Time, code byte) (string, bool) {
	if layout, ok := clockCodes[code]; ok {
		return now.Format(layout), true
	}
	isoYear, isoWeek := now.ISOWeek()
	weekday := int(now.Weekday())
	switch code {
	case 'Y':
		return fmt.Sprint(now.Year()), true
	case 'C':
		return fmt.Sprintf("%02d", now.Year()/100), true
	case 'G':
		return fmt.Sprint(isoYear), true
	case 'V':
		return fmt.Sprintf("%02d", isoWeek), true
	case 'j':
		return fmt.Sprintf("%03d", now.YearDay()), true
	case 'U':
		return fmt.Sprintf("%02d", (now.YearDay()+6-weekday)/7), true
	case 'W':
		return fmt.Sprintf("%02d", (now.YearDay()+6-(weekday+6)%7)/7), true
	case 'u':
		return fmt.Sprint((weekday+6)%7 + 1), true
	case 'w':
		return fmt.Sprint(weekday), true
	case 'f':
		return fmt.Sprintf("%06d", now.Nanosecond()/1000), true
	case 's':
		return fmt.Sprint(now.Unix()), true
	case 'k':
		return fmt.Sprintf("%2d", now.Hour()), true
	case 'l':
		return fmt.Sprintf("%2d", (now.Hour()+11)%12+1), true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case '%':
		return "%", true
	case 'z', 'Z':
		return "", true
	}
	return "", false
}
