package checkup

import (
	"io/fs"
	"strconv"
	"strings"
)

// text is the content of a file without the white space around it; "" where it cannot be read.
func (s Sources) text(name string) string {
	b, err := fs.ReadFile(s.Root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// exists tells whether there is such a file.
func (s Sources) exists(name string) bool {
	_, err := fs.Stat(s.Root, name)
	return err == nil
}

// after is what follows key at the start of a line of a file, without the white space around it;
// "" where there is no such line.
func (s Sources) after(name, key string) string {
	for line := range strings.Lines(s.text(name)) {
		if rest, ok := strings.CutPrefix(line, key); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}

// kib is a figure of /proc/meminfo in bytes, 0 where there is none.
func (s Sources) kib(key string) int64 {
	number, _, _ := strings.Cut(s.after("proc/meminfo", key), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// chosen is the word in brackets: "always [madvise] never" has madvise.
func chosen(text string) string {
	_, rest, _ := strings.Cut(text, "[")
	word, _, _ := strings.Cut(rest, "]")
	return word
}

// count is how many numbers a list like 0-3,8 has.
func count(list string) (n int) {
	for _, part := range strings.Split(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.Atoi(from)
		if err != nil {
			continue
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		n += max(0, b-a+1)
	}
	return n
}
