package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// nonFinite lists the words that Python's json module writes for non-finite numbers. JSON has no such words.
var nonFinite = []string{"NaN", "Infinity", "-Infinity"}

// JSON returns text with each NaN, Infinity and -Infinity outside of strings replaced by null. Python's json module
// writes these words. Text without such a word is returned unchanged.
func JSON(text []byte) []byte {
	return ReplaceNonFinite(text, func(string) string { return "null" })
}

// ReplaceNonFinite returns text with each NaN, Infinity and -Infinity outside of strings replaced by by(word). Python's
// json module writes these words. Text without such a word is returned unchanged.
func ReplaceNonFinite(text []byte, by func(word string) string) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	var out []byte
	from := 0
	for i := 0; i < len(text); {
		if text[i] == '"' {
			i = afterString(text, i)
			continue
		}
		word := nonFiniteAt(text[i:])
		if word == "" {
			i++
			continue
		}
		out = append(append(out, text[from:i]...), by(word)...)
		i += len(word)
		from = i
	}
	if from == 0 {
		return text
	}
	return append(out, text[from:]...)
}

// Unmarshal decodes text into v, after JSON has replaced non-finite numbers by null. Its errors name JSON types, not Go
// types.
func Unmarshal(text []byte, v any) error {
	err := json.Unmarshal(JSON(text), v)
	if bad := (*json.UnmarshalTypeError)(nil); errors.As(err, &bad) {
		if bad.Field == "" {
			return fmt.Errorf("not a JSON object, but a JSON %s", bad.Value)
		}
		return fmt.Errorf("%s: a JSON %s is not what this key takes", bad.Field, bad.Value)
	}
	return err
}

// nonFiniteAt returns the non-finite word (NaN, Infinity or -Infinity) at the start of text. It returns "" if there is
// none, or if the word is only the beginning of something else.
func nonFiniteAt(text []byte) string {
	for _, word := range nonFinite {
		if rest, ok := bytes.CutPrefix(text, []byte(word)); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n,]}"), rest[0]) >= 0) {
			return word
		}
	}
	return ""
}

// afterString returns the index after the JSON string that begins at index i of text; len(text) if the string does not
// end.
func afterString(text []byte, i int) int {
	for i++; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// Members calls f for each member of the JSON object in text, in order, with the member's key and the raw text of its
// value. Members does not decode values, so an object with many small values costs little. It returns a syntax error of
// text, or the first error of f.
func Members(text []byte, f func(key string, value []byte) error) error {
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	if whole = bytes.TrimSpace(whole); whole[0] != '{' {
		return errors.New("not a JSON object")
	}
	for i := skip(whole, 1); whole[i] != '}'; i = skip(whole, i) {
		end := afterString(whole, i)
		key := string(whole[i+1 : end-1])
		if strings.ContainsFunc(key, func(r rune) bool { return r == '\\' || r == utf8.RuneError }) {
			_ = json.Unmarshal(whole[i:end], &key) // it is valid
		}
		i = skip(whole, end)
		end = afterValue(whole, i)
		if err := f(key, whole[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// skip returns the index, from i on, of the first byte of text that is not white space, comma or colon. text is valid
// JSON.
func skip(text []byte, i int) int {
	for bytes.IndexByte([]byte(" \t\r\n,:"), text[i]) >= 0 {
		i++
	}
	return i
}

// afterValue returns the index after the JSON value that begins at index i of text. text is valid JSON.
func afterValue(text []byte, i int) int {
	depth := 0
	for {
		switch text[i] {
		case '"':
			i = afterString(text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		i++
		if depth == 0 && (i == len(text) || bytes.IndexByte([]byte(" \t\r\n,:]}"), text[i]) >= 0 || text[i-1] == '"' || text[i-1] == '}' || text[i-1] == ']') {
			return i
		}
	}
}
