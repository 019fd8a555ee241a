package files

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// nonFinite are the words that Python's json module writes for numbers that are not finite. JSON has no such words.
var nonFinite = []string{"NaN", "Infinity", "-Infinity"}

// JSON returns text, JSON as Python writes it, with null in place of every NaN, Infinity and -Infinity that stands outside
// of strings. Text without such a word is returned as it is.
func JSON(text []byte) []byte {
	return ReplaceNonFinite(text, func(string) string { return "null" })
}

// ReplaceNonFinite returns text, JSON as Python writes it, with by(word) in place of every NaN, Infinity and -Infinity that
// stands outside of strings. Text without such a word is returned as it is.
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

// Unmarshal reads text, JSON as Python writes it, into v. Its errors name JSON's kinds of values, and not the types of Go.
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

// nonFiniteAt returns the word that text begins with and that is a whole value; "" if there is none.
func nonFiniteAt(text []byte) string {
	for _, word := range nonFinite {
		if rest, ok := bytes.CutPrefix(text, []byte(word)); ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n,]}"), rest[0]) >= 0) {
			return word
		}
	}
	return ""
}

// afterString returns where the string ends that begins at i, or the length of text if it does not end.
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

// Members calls f for each member of the JSON object text, in order, with the key and the raw text of the value. Values are
// not decoded, so an object with many small values costs little. The error is a syntax error of the text, or the first error of f.
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

// skip returns where the next thing of a valid text is at or after i that is no white space, comma or colon.
func skip(text []byte, i int) int {
	for bytes.IndexByte([]byte(" \t\r\n,:"), text[i]) >= 0 {
		i++
	}
	return i
}

// afterValue returns where the value ends that begins at i of a valid text.
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
