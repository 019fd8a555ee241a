package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// fields reads typed values out of a mapping that came from JSON or YAML. The
// first mistake is kept in err and the reading goes on with defaults, so that a
// caller checks once. A null counts as absent.
type fields struct {
	where string // file or key path, for messages
	vals  map[string]any
	// names are what the file calls keys whose values are in vals by another name; nil: none.
	names map[string]string
	err   error
}

// renamed moves the values of keys that the file calls otherwise to the names that all families
// share. A key of such a name that is in the file means nothing there.
func (f *fields) renamed(names map[string]string) {
	vals := maps.Clone(f.vals)
	for common, own := range names {
		delete(vals, common)
		if v, given := f.vals[own]; given {
			vals[common] = v
			delete(vals, own)
		}
	}
	f.vals, f.names = vals, names
}

func (f *fields) fail(key, format string, args ...any) {
	if f.err == nil {
		key = cmp.Or(f.names[key], key)
		f.err = fmt.Errorf("%s: %s: %s", f.where, key, fmt.Sprintf(format, args...))
	}
}

// setDefaults sets the keys that are missing; a null is not missing.
func (f *fields) setDefaults(defaults map[string]any) {
	vals := maps.Clone(f.vals)
	for k, v := range defaults {
		if _, given := vals[k]; !given {
			vals[k] = v
		}
	}
	f.vals = vals
}

// has says whether key is there and not null.
func (f *fields) has(key string) bool { return f.vals[key] != nil }

// need is an integer in [lo, hi] that must be there.
func (f *fields) need(key string, lo, hi int) int {
	if !f.has(key) {
		f.fail(key, "missing")
		return lo
	}
	return f.int(key, lo, lo, hi)
}

// int is an integer in [lo, hi], or def where there is none.
func (f *fields) int(key string, def, lo, hi int) int {
	if !f.has(key) {
		return def
	}
	x, ok := number(f.vals[key])
	switch {
	case !ok || x != math.Trunc(x):
		f.fail(key, "%s is not a whole number", show(f.vals[key]))
	case x < float64(lo) || x > float64(hi):
		f.fail(key, "%s is out of range: %d to %d are possible", show(f.vals[key]), lo, hi)
	default:
		return int(x)
	}
	return lo
}

// float is a finite number in [lo, hi], or def where there is none.
func (f *fields) float(key string, def, lo, hi float64) float64 {
	if !f.has(key) {
		return def
	}
	x, ok := number(f.vals[key])
	switch {
	case !ok:
		f.fail(key, "%s is not a number", show(f.vals[key]))
	case math.IsNaN(x) || x < lo || x > hi:
		f.fail(key, "%s is out of range: %g to %g are possible", show(f.vals[key]), lo, hi)
	default:
		return x
	}
	return def
}

func (f *fields) bool(key string, def bool) bool {
	if !f.has(key) {
		return def
	}
	b, ok := f.vals[key].(bool)
	if !ok {
		f.fail(key, "%s is not true or false", show(f.vals[key]))
	}
	return b
}

func (f *fields) str(key, def string) string {
	if !f.has(key) {
		return def
	}
	s, ok := f.vals[key].(string)
	if !ok {
		f.fail(key, "%s is not a string", show(f.vals[key]))
	}
	return s
}

// strs is a list of strings.
func (f *fields) strs(key string) []string {
	var out []string
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		f.fail(key, "%s is not a list", show(f.vals[key]))
	}
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			f.fail(key, "%s is not a string", show(v))
		}
		out = append(out, s)
	}
	return out
}

// ints and floats are lists of numbers in [lo, hi], nil where there is none.
func (f *fields) ints(key string, lo, hi int) []int {
	var out []int
	for _, x := range f.floats(key, float64(lo), float64(hi)) {
		if x != math.Trunc(x) {
			f.fail(key, "%g is not a whole number", x)
		}
		out = append(out, int(x))
	}
	return out
}

func (f *fields) floats(key string, lo, hi float64) []float64 {
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		f.fail(key, "%s is not a list", show(f.vals[key]))
	}
	out := make([]float64, 0, len(list))
	for _, v := range list {
		x, ok := number(v)
		if !ok || math.IsNaN(x) || x < lo || x > hi {
			f.fail(key, "%s is not a number from %g to %g", show(v), lo, hi)
			x = lo
		}
		out = append(out, x)
	}
	return out
}

// ids is a token id or a list of them, each below vocab. -1 means none, as some
// published models write it.
func (f *fields) ids(key string, vocab int) []int {
	if !f.has(key) {
		return nil
	}
	list, ok := f.vals[key].([]any)
	if !ok {
		list = []any{f.vals[key]}
	}
	var out []int
	for _, v := range list {
		x, ok := number(v)
		if !ok || x != math.Trunc(x) || x < -1 || x >= float64(vocab) {
			f.fail(key, "%s is not a token id below vocab_size %d", show(v), vocab)
			return nil
		}
		if x >= 0 {
			out = append(out, int(x))
		}
	}
	return out
}

// object is a mapping, or nil where there is none. The caller passes up what is wrong in it.
func (f *fields) object(key string) *fields {
	if !f.has(key) {
		return nil
	}
	m, ok := f.vals[key].(map[string]any)
	if !ok {
		f.fail(key, "%s is not a mapping", show(f.vals[key]))
		return nil
	}
	return &fields{where: f.where + ": " + key, vals: m}
}

// known refuses keys that are not in names.
func (f *fields) known(names []string) {
	keys := make([]string, 0, len(f.vals))
	for k := range f.vals {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if !slices.Contains(names, k) {
			f.fail(k, "unknown key%s", didYouMean(k, names))
		}
	}
}

// number is v as a float64; all integers a config can hold are exact in it.
func number(v any) (float64, bool) {
	switch x := v.(type) {
	case json.Number:
		f, err := x.Float64()
		return f, err == nil
	case int:
		return float64(x), true
	case int64:
		return float64(x), true
	case uint64:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

// show prints a value of a config for a message, cut where it is long.
func show(v any) string {
	s := fmt.Sprint(v)
	if str, ok := v.(string); ok {
		s = strconv.Quote(str)
	}
	return cut(s)
}

// cut shortens what a message quotes.
func cut(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// didYouMean suggests the name nearest to key, if one is near.
func didYouMean(key string, names []string) string {
	best, at := 1+len(key)/3, ""
	for _, n := range names {
		if d := distance(key, n); d < best+1 && (at == "" || d < best) {
			best, at = d, n
		}
	}
	if at == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", at)
}

// distance is the number of single-byte edits from a to b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diag
			if a[i] != b[j] {
				d = 1 + min(diag, row[j], row[j+1])
			}
			diag, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}
