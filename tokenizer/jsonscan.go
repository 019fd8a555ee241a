package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The functions here walk through JSON that json.Valid has passed, without
// making anything of what they pass by: vocabularies are large.

// jsonSpace is the start of the next thing at or after i: not white space, a
// comma or a colon.
func jsonSpace(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
			continue
		}
		break
	}
	return i
}

// jsonEnd is where the value that starts at i ends.
func jsonEnd(b []byte, i int) int {
	switch b[i] {
	case '"':
		for i++; b[i] != '"'; i++ {
			if b[i] == '\\' {
				i++
			}
		}
		return i + 1
	case '{', '[':
		for depth := 0; ; i++ {
			switch b[i] {
			case '"':
				i = jsonEnd(b, i) - 1
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
		}
	}
	for i < len(b) && bytes.IndexByte([]byte(" \t\r\n,}]"), b[i]) < 0 {
		i++
	}
	return i
}

// jsonText is the string that raw writes; false where it is no string.
func jsonText(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), true
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// jsonObject calls f for each member of the object raw.
func jsonObject(raw []byte, f func(key string, value []byte) error) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '{' {
		return fmt.Errorf("it is %s, not an object", shorten(raw))
	}
	for i := jsonSpace(raw, 1); raw[i] != '}'; i = jsonSpace(raw, i) {
		end := jsonEnd(raw, i)
		key, _ := jsonText(raw[i:end])
		i = jsonSpace(raw, end)
		end = jsonEnd(raw, i)
		if err := f(key, raw[i:end]); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// jsonArray calls f for each element of the array raw.
func jsonArray(raw []byte, f func(n int, value []byte) error) error {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '[' {
		return fmt.Errorf("it is %s, not an array", shorten(raw))
	}
	n := 0
	for i := jsonSpace(raw, 1); raw[i] != ']'; i = jsonSpace(raw, i) {
		end := jsonEnd(raw, i)
		if err := f(n, raw[i:end]); err != nil {
			return err
		}
		n++
		i = end
	}
	return nil
}

// shorten is raw for an error message.
func shorten(raw []byte) string {
	const most = 60
	if len(raw) == 0 {
		return "missing"
	}
	if len(raw) > most {
		return string(bytes.ToValidUTF8(raw[:most], nil)) + "…"
	}
	return string(raw)
}
