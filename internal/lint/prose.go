package lint

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// Prose counts the sentences of comments or documents. It also counts the sentences of four kinds
// that a reader has to read twice.
type Prose struct {
	Sentences int
	Long      int // more than 28 words
	Opening   int // begin with Of, What, Where, Whether, Whoever, Whatever, Those, Nor, Else or Which
	Relative  int // have "what of", "that of", "is what", "so many" and the like
	Pronoun   int // have three or more of it, they, this, that, these, those, which, what, one
	Examples  []string
}

// ProseLimits bound the share of each kind of hard sentence that Prose counts, in percent of all
// sentences.
type ProseLimits struct{ Long, Opening, Relative, Pronoun float64 }

var (
	codeSpan   = regexp.MustCompile("`[^`]*`")
	linkTarget = regexp.MustCompile(`\]\([^)]*\)`)
	spaces     = regexp.MustCompile(`\s+`)
	sentence   = regexp.MustCompile(`[.!?]\s+[A-Z\[]`)
	opening    = regexp.MustCompile(`^(Of|What|Where|Whether|Whoever|Whatever|Those|Nor|Else|Which|That of)\b`)
	relative   = regexp.MustCompile(`(?i)\b(what of|that of|those of|is what|are what|says what|say what|of which|of whom|so many|in the place of|nothing of it|such as those|the least that|whoever|but for)\b`)
	pronoun    = regexp.MustCompile(`(?i)\b(it|its|they|them|their|this|that|these|those|which|what|one|ones)\b`)

	comment   = regexp.MustCompile(`^\s*// ?(.*)$`)
	directive = regexp.MustCompile(`^\s*//(go:|nolint|export|line )`)
	fence     = regexp.MustCompile("(?s)```.*?```")
	bullet    = regexp.MustCompile(`^\s*([-*]|\d+\.)\s+`)
)

// AddGo counts the comments of a Go file. Generated files have none.
func (p *Prose) AddGo(name string, content []byte) {
	head := content[:min(len(content), 400)]
	if bytes.Contains(head, []byte("Code generated")) {
		return
	}
	p.addBlocks(name, string(content), func(line string) (string, bool) {
		m := comment.FindStringSubmatch(line)
		if m == nil || directive.MatchString(line) || strings.HasPrefix(m[1], "\t") {
			return "", false
		}
		return m[1], true
	})
}

// AddMarkdown counts the running text of a Markdown file, without code, tables and headings.
func (p *Prose) AddMarkdown(name string, content []byte) {
	text := fence.ReplaceAllStringFunc(string(content), func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	p.addBlocks(name, text, func(line string) (string, bool) {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "|") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "    ") {
			return "", false
		}
		return bullet.ReplaceAllString(line, ""), true
	})
}

// addBlocks counts the sentences of each block, a run of consecutive lines for which words returns true. words also
// returns the line's text without markup. name is the file's name for the examples.
func (p *Prose) addBlocks(name, text string, words func(line string) (string, bool)) {
	var block []string
	start := 0
	for i, line := range append(strings.Split(text, "\n"), "") {
		w, ok := words(line)
		if ok {
			if len(block) == 0 {
				start = i + 1
			}
			block = append(block, w)
			continue
		}
		p.addText(fmt.Sprintf("%s:%d", name, start), strings.Join(block, " "))
		block = block[:0]
	}
}

// addText counts the sentences of a text. It leaves out sentences of one or two words. place says in the examples
// where the text stands.
func (p *Prose) addText(place, text string) {
	text = codeSpan.ReplaceAllString(strings.TrimSpace(spaces.ReplaceAllString(text, " ")), "CODE")
	text = linkTarget.ReplaceAllString(text, "]")
	for text != "" {
		s := text
		text = ""
		if at := sentence.FindStringIndex(s); at != nil {
			s, text = s[:at[0]+1], s[at[1]-1:]
		}
		words := len(strings.Fields(s))
		if words < 3 {
			continue
		}
		p.Sentences++
		bad := false
		for _, k := range []struct {
			n     *int
			fault bool
		}{
			{&p.Long, words > 28},
			{&p.Opening, opening.MatchString(s)},
			{&p.Relative, relative.MatchString(s)},
			{&p.Pronoun, len(pronoun.FindAllString(s, 3)) == 3},
		} {
			if k.fault {
				*k.n++
				bad = true
			}
		}
		if bad {
			p.Examples = append(p.Examples, place+": "+s)
		}
	}
}

// Check compares the shares of hard sentences with limits. It returns one sentence for each share above its limit.
// `what` names the counted text in it.
func (p *Prose) Check(what string, limits ProseLimits) (found []string) {
	for _, k := range []struct {
		name  string
		n     int
		limit float64
	}{
		{"long", p.Long, limits.Long},
		{"opening", p.Opening, limits.Opening},
		{"relative", p.Relative, limits.Relative},
		{"pronoun", p.Pronoun, limits.Pronoun},
	} {
		if share := 100 * float64(k.n) / float64(max(1, p.Sentences)); share > k.limit {
			found = append(found, fmt.Sprintf("%s: %d of %d sentences are %s (%.2f %%, at most %.2f %%): see Writing in CONTRIBUTING.md", what, k.n, p.Sentences, k.name, share, k.limit))
		}
	}
	return found
}
