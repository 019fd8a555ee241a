package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"mt/internal/files"
)

// source is the text of a JSON object and where its values stand in it.
type source struct {
	raw  []byte
	keys []sourceKey
}

// sourceKey is one key of a source: its value is raw[start:end].
type sourceKey struct {
	name       string
	start, end int
}

// scanObject reads a JSON object, keeping the place of every value. Keys that
// appear twice are refused: which of them counts differs between readers. Numbers that are not finite are read as Python
// writes them.
func scanObject(text []byte) (source, map[string]any, error) {
	src := source{raw: text}
	raw := files.ReplaceNonFinite(text, func(word string) string { return standIns[word] })
	vals := map[string]any{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if tok, err := dec.Token(); err != nil {
		return src, nil, jsonError(raw, err)
	} else if tok != json.Delim('{') {
		return src, nil, errors.New("not a JSON object")
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return src, nil, jsonError(raw, err)
		}
		name, ok := tok.(string)
		if !ok {
			return src, nil, fmt.Errorf("unexpected %v in place of a key", tok)
		}
		if _, twice := vals[name]; twice {
			return src, nil, fmt.Errorf("%s: appears twice", name)
		}
		var val json.RawMessage
		if err := dec.Decode(&val); err != nil {
			return src, nil, jsonError(raw, err)
		}
		end := int(dec.InputOffset())
		src.keys = append(src.keys, sourceKey{name, end - len(val), end})
		v, err := decodeNumbers(val)
		if err != nil {
			return src, nil, fmt.Errorf("%s: %w", name, err)
		}
		vals[name] = withNonFinite(v)
	}
	if _, err := dec.Token(); err != nil {
		return src, nil, jsonError(raw, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return src, nil, errors.New("text after the closing brace")
	}
	return src, vals, nil
}

// standIns are strings of the length of Python's words for numbers that are not finite. No other text has them: DEL
// is in no key or value of a config.json.
var standIns = map[string]string{"NaN": "\"\x7f\"", "Infinity": "\"\x7f+Inf \"", "-Infinity": "\"\x7f-Inf  \""}

// nonFinite are the numbers that standIns stand for.
var nonFinite = map[string]float64{"\x7f": math.NaN(), "\x7f+Inf ": math.Inf(1), "\x7f-Inf  ": math.Inf(-1)}

// withNonFinite returns v with numbers in place of standIns, and of mappings such as {"__float__": "Infinity"}, as Transformers 5
// writes them.
func withNonFinite(v any) any {
	switch x := v.(type) {
	case string:
		if n, ok := nonFinite[x]; ok {
			return n
		}
	case []any:
		for i := range x {
			x[i] = withNonFinite(x[i])
		}
	case map[string]any:
		if word, ok := x["__float__"].(string); ok && len(x) == 1 {
			if n, err := strconv.ParseFloat(word, 64); err == nil {
				return n
			}
		}
		for k := range x {
			x[k] = withNonFinite(x[k])
		}
	}
	return v
}

// decodeNumbers decodes a JSON value, numbers as json.Number.
func decodeNumbers(raw []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err
}

// jsonError adds the line to a syntax error of text raw.
func jsonError(raw []byte, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the file ends in the middle of a JSON value")
	}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		n := min(max(int(syntax.Offset), 0), len(raw))
		return fmt.Errorf("line %d: %w", 1+bytes.Count(raw[:n], []byte("\n")), err)
	}
	return err
}

// with returns the text with every value of the named keys replaced by value. Where none of
// them is there, names[0] is put in front with that value.
func (s source) with(value []byte, names ...string) []byte {
	var out []byte
	from, found := 0, false
	for _, k := range s.keys {
		for _, n := range names {
			if k.name == n {
				out = append(append(out, s.raw[from:k.start]...), value...)
				from, found = k.end, true
			}
		}
	}
	if !found {
		open := bytes.IndexByte(s.raw, '{') + 1
		sep := ","
		if len(s.keys) == 0 {
			sep = ""
		}
		out = append(out, s.raw[:open]...)
		out = fmt.Appendf(out, "\n  %q: %s%s", names[0], value, sep)
		from = open
	}
	return append(out, s.raw[from:]...)
}

// without is s without a key, if it has that.
func (s source) without(name string) source {
	i := slices.IndexFunc(s.keys, func(k sourceKey) bool { return k.name == name })
	if i < 0 {
		return s
	}
	from, to := bytes.IndexByte(s.raw, '{')+1, s.keys[i].end
	switch {
	case i > 0: // with the comma in front
		from = s.keys[i-1].end
	case len(s.keys) > 1: // with the one behind
		to += bytes.IndexByte(s.raw[to:], ',') + 1
	}
	out, _, err := scanObject(slices.Concat(s.raw[:from], s.raw[to:]))
	if err != nil {
		panic("model: an edited config does not parse: " + err.Error())
	}
	return out
}

// value is the text of a key's value, nil where there is no such key.
func (s source) value(name string) []byte {
	for _, k := range s.keys {
		if k.name == name {
			return s.raw[k.start:k.end]
		}
	}
	return nil
}

// set is s with a key given a value, in its place or in front.
func (s source) set(name string, value []byte) source {
	out, _, err := scanObject(s.with(value, name))
	if err != nil {
		panic("model: an edited config does not parse: " + err.Error())
	}
	return out
}
