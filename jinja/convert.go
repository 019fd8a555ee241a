package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func toInt(r *run, v any, a *args) any {
	b := a.bind(r, "int", 0, "default", "base")
	if s, ok := asStr(v); ok {
		r.grow(4 * len(s))
		if i, ok := parseInt(s, int(b.int(1, 10))); ok {
			return i
		}
		if f, ok := parseFloat(s); ok && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return intOf(math.Trunc(f))
		}
		return b.or(0, int64(0))
	}
	if i, ok := asBig(v); ok {
		return shrink(i)
	}
	if f, ok := v.(float64); ok && !math.IsNaN(f) {
		if math.IsInf(f, 0) {
			r.fail("cannot convert float infinity to integer")
		}
		return intOf(math.Trunc(f))
	}
	r.usable(v)
	return b.or(0, int64(0))
}

func toFloat(r *run, v any, a *args) any {
	b := a.bind(r, "float", 0, "default")
	if s, ok := asStr(v); ok {
		r.grow(2 * len(s))
		if f, ok := parseFloat(s); ok {
			return f
		}
	} else if f, ok := asFloat(v); ok {
		return f
	}
	r.usable(v)
	return b.or(0, 0.0)
}

// number is s without the white space around it and without single underscores between
// digits, which Python's int and float ignore; false where underscores stand elsewhere.
func number(s string) (string, bool) {
	s = strings.Map(asciiDigit, strings.TrimFunc(s, isSpace))
	if !strings.Contains(s, "_") {
		return s, s != ""
	}
	for i := range len(s) {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !isHex(s[i-1]) || !isHex(s[i+1])) {
			return "", false
		}
	}
	return strings.ReplaceAll(s, "_", ""), true
}

// asciiDigit is the ASCII digit of the same value as a digit of any script.
func asciiDigit(c rune) rune {
	if c < utf8.RuneSelf || !unicode.IsDigit(c) {
		return c
	}
	for _, r := range unicode.Nd.R16 {
		if c >= rune(r.Lo) && c <= rune(r.Hi) {
			return '0' + (c-rune(r.Lo))%10
		}
	}
	for _, r := range unicode.Nd.R32 {
		if c >= rune(r.Lo) && c <= rune(r.Hi) {
			return '0' + (c-rune(r.Lo))%10
		}
	}
	return c
}

func isHex(c byte) bool { return c < 0x80 && (unicode.IsDigit(rune(c)) || unicode.IsLetter(rune(c))) }

// parseInt is Python's int(s, base).
func parseInt(s string, base int) (any, bool) {
	s, ok := number(s)
	if !ok || len(s) > maxJSONDigits || base < 0 || base == 1 || base > 36 {
		return nil, false
	}
	sign := ""
	if s[0] == '-' || s[0] == '+' {
		sign, s = s[:1], s[1:]
	}
	for _, p := range []struct {
		prefix string
		base   int
	}{{"0x", 16}, {"0o", 8}, {"0b", 2}} {
		if strings.HasPrefix(strings.ToLower(s), p.prefix) && (base == p.base || base == 0) {
			base, s = p.base, s[2:]
		}
	}
	if base == 0 {
		if base = 10; strings.HasPrefix(s, "0") && strings.Trim(s, "0") != "" {
			return nil, false
		}
	}
	if s == "" || s[0] == '-' || s[0] == '+' {
		return nil, false
	}
	b, ok := new(big.Int).SetString(sign+s, base)
	if !ok {
		return nil, false
	}
	return shrink(b), true
}

// parseFloat is Python's float(s).
func parseFloat(s string) (float64, bool) {
	s, ok := number(s)
	if !ok || strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	if strings.EqualFold(strings.TrimLeft(s, "+-"), "nan") && len(s) <= 4 {
		return math.NaN(), true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func round(r *run, v any, a *args) any {
	b := a.bind(r, "round", 0, "precision", "method")
	digits, method := b.int(0, 0), b.str(1, "common")
	if method != "common" && method != "ceil" && method != "floor" {
		r.fail("round: the method must be common, ceil or floor")
	}
	r.usable(v)
	f, ok := asFloat(v)
	if !ok {
		r.fail("type %s doesn't define round", typeName(v))
	}
	if digits < -400 || digits > 400 {
		r.fail("round: a precision of more than 400 digits")
	}
	if method == "common" {
		if i, ok := asBig(v); ok {
			return roundInt(i, digits)
		}
		return roundFloat(r, f, int(digits))
	}
	scale := math.Pow(10, float64(digits))
	f *= scale
	if math.IsNaN(f) || math.IsInf(f, 0) {
		r.fail("cannot convert float %s to integer", floatRepr(f))
	}
	if f = math.Floor(f); method == "ceil" {
		x, _ := asFloat(v)
		f = math.Ceil(x * scale)
	}
	return (f + 0) / scale
}

// roundInt rounds to a multiple of a power of ten, halves to even.
func roundInt(i *big.Int, digits int64) any {
	if digits >= 0 {
		return shrink(i)
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(-digits), nil)
	whole := halfEven(i, unit)
	return shrink(whole.Mul(whole, unit))
}

// halfEven is a / b, rounded to the nearest integer, halves to even; b > 0.
func halfEven(a, b *big.Int) *big.Int {
	whole, rest := new(big.Int).DivMod(a, b, new(big.Int))
	if c := rest.Lsh(rest, 1).Cmp(b); c > 0 || c == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return whole
}

// roundFloat rounds the exact value of f, halves to even.
func roundFloat(r *run, f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	if digits >= 0 {
		out, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return out
	}
	unit := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil))
	q := new(big.Rat).Quo(new(big.Rat).SetFloat64(f), unit)
	whole := new(big.Rat).SetInt(halfEven(q.Num(), q.Denom()))
	out, _ := whole.Mul(whole, unit).Float64()
	if math.IsInf(out, 0) {
		r.fail("rounded value too large to represent")
	}
	return math.Copysign(out, f)
}
