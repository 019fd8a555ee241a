package config

import (
	"bytes"
	"fmt"
	"strings"

	"mt/data"
)

// YAML is the import as a config file of mt, with a comment for every key of theirs: what is ours
// of it, or why it is left out.
func (im *Import) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Written by mt import from %s, a config of %s.\n", im.file, im.Tool)
	n := len(im.Lost())
	switch n {
	case 0:
		b.WriteString("# Nothing is lost.\n\n")
	case 1:
		b.WriteString("# What one of its keys says is lost: see \"not possible\".\n\n")
	default:
		fmt.Fprintf(&b, "# What %d of its keys say is lost: see \"not possible\".\n\n", n)
	}
	for _, note := range im.Notes {
		fmt.Fprintf(&b, "# %s\n", oneLine(note))
	}
	for _, l := range im.Lines {
		l.write(&b)
	}
	return b.Bytes()
}

// write writes the line: our keys with a comment behind them, or theirs as a comment.
func (l *Line) write(b *bytes.Buffer) {
	if len(l.ours) == 0 {
		fmt.Fprintf(b, "# %s: %s  # %s: %s\n", l.Key, clipped(l.theirs.val), l.Fate, oneLine(l.Why))
		return
	}
	for i, e := range l.ours {
		comment := ""
		if i == 0 {
			comment = "  # " + l.comment()
		}
		k := byName[e.spelled]
		text := k.written(e.val)
		if head, rest, several := strings.Cut(text, "\n"); several {
			fmt.Fprintf(b, "%s:%s%s\n%s\n", k.name, head, comment, rest)
			continue
		}
		fmt.Fprintf(b, "%s: %s%s\n", k.name, text, comment)
	}
}

// comment says what became of a key that is kept, renamed or of their defaults.
func (l *Line) comment() string {
	text := string(l.Fate)
	if l.Fate == Kept && !l.unchanged() {
		text = "from " + clipped(l.theirs.val)
	}
	if l.Fate == Renamed {
		text = "renamed from " + l.Key
		if len(l.ours) != 1 || byName[l.ours[0].spelled].written(l.ours[0].val) != clipped(l.theirs.val) {
			text = "from " + l.Key + ": " + clipped(l.theirs.val)
		}
	}
	if l.Why != "" {
		text += ": " + oneLine(l.Why)
	}
	return text
}

// unchanged tells whether the value of a key that is kept is theirs too.
func (l *Line) unchanged() bool {
	k, c := byName[l.ours[0].spelled], Default()
	if k.set(c, k.name, l.theirs.val) != nil {
		return false
	}
	text := k.print(c)
	return k.set(c, k.name, l.ours[0].val) == nil && k.print(c) == text
}

// written is a value of k as YAML has it; data sets and groups are written one a line, with the first line empty.
func (k *key) written(v value) string {
	c := Default()
	if err := k.set(c, k.name, v); err != nil {
		panic("config: " + k.name + " was set and cannot be printed: " + err.Error())
	}
	var items []string
	switch list := k.field(c).(type) {
	case *[]data.Set:
		for i := range *list {
			items = append(items, setsText((*list)[i:i+1]))
		}
	case *[]LRGroup:
		for i := range *list {
			items = append(items, groupsText((*list)[i:i+1]))
		}
	default:
		return k.print(c)
	}
	var b strings.Builder
	for _, text := range items {
		b.WriteString("\n  - " + text[1:len(text)-1])
	}
	return b.String()
}

// clipped is a value of theirs on one line, shortened.
func clipped(v value) string {
	if v.kind == null {
		return ""
	}
	text := oneLine(flow(v.inline()))
	if v.kind == plain {
		text = v.text
	}
	const most = 100
	if r := []rune(text); len(r) > most {
		text = string(r[:most-1]) + "…"
	}
	return text
}

// oneLine is s without line breaks.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
