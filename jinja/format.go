package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
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

// formatter is one str.format under way.
type formatter struct {
	r     *run
	pos   []any
	named *Object
	mark  bool
	// next is the place that {} takes; -1 once places are numbered by hand.
	next int
}

func (r *run) formatText(self any, pos []any, named *Object) any {
	s, _ := asStr(self)
	_, mark := self.(markup)
	return like(self, (&formatter{r, pos, named, mark, 0}).expand(s, 2))
}

// expand puts the values in for the fields of s; fields nest levels deep.
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

// matching is the place of the shut that closes the open at the begin of s, -1
// where none does.
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

// field is the value of a field: name, !conversion, :format.
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

// value is what a field's name stands for: a place or a name, then .attributes
// and [items].
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

// formatSpec is Python's format(v, text).
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

// parseSpec reads [[fill]align][sign][#][0][width][,][.precision][type].
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
		text = generalText(x, digits, digits-1, false) // which leaves room for a decimal
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
	}
	return r.padNumber(f, r.group(f, text+percent))
}

// group puts f's comma between groups of digits of the whole part.
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
