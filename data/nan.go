package data

import "bytes"

// pythonNumbers are the words for numbers that Python's json writes and JSON does not have.
var pythonNumbers = []string{"NaN", "-Infinity", "Infinity"}

// withoutNaN is JSON in which null stands for each NaN or infinity, as Python writes them. It
// returns text itself where there are none.
func withoutNaN(text []byte) []byte {
	if !bytes.Contains(text, []byte("NaN")) && !bytes.Contains(text, []byte("Infinity")) {
		return text
	}
	out := make([]byte, 0, len(text)+8)
	quoted := false
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case quoted && c == '\\' && i+1 < len(text):
			out = append(out, c, text[i+1])
			i += 2
			continue
		case c == '"':
			quoted = !quoted
		case !quoted:
			if n := pythonNumber(text, i); n > 0 {
				out = append(out, "null"...)
				i += n
				continue
			}
		}
		out = append(out, text[i])
		i++
	}
	return out
}

// pythonNumber is how long the word for a number is that stands at place i as a value of its own; 0
// where none stands there.
func pythonNumber(text []byte, i int) int {
	for _, word := range pythonNumbers {
		end := i + len(word)
		if bytes.HasPrefix(text[i:], []byte(word)) && (end == len(text) || bytes.IndexByte([]byte(",]} \t\r\n"), text[end]) >= 0) {
			return len(word)
		}
	}
	return 0
}
