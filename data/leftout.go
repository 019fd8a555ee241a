package data

import (
	"bytes"
	"encoding/json"
	"strings"

	"mt/jinja"
)

// leftOut tells by flags what the conversation holds and the template did not write: the
// thoughts of earlier answers, which many templates leave out on purpose; text of a message,
// such as the text beside calls of tools; tools or calls of them. Text counts as written
// where its lines are found in order, however they are indented.
func leftOut(v *conversation, r *jinja.Rendered) (flags uint64) {
	for _, t := range v.tools {
		function, _ := t.(*jinja.Object).Get("function")
		if !names(r.Text, function) {
			flags |= flagLeftCalls
		}
	}
	turns := map[int]string{}
	for _, t := range r.Turns {
		turns[t.Message] += r.Text[t.From:t.To]
	}
	for i, m := range v.messages {
		o := m.(*jinja.Object)
		answers := roleOf(m) == "assistant"
		text := turns[i]
		if strings.TrimSpace(text) == "" {
			text = r.Text
		}
		content, _ := o.Get("content")
		said, _ := content.(string)
		thought := ""
		if answers {
			thought, said = thoughtIn(said)
		}
		// An answer must be written in its own turn, since another message may say the same.
		if !writes(text, said) && (answers || !writes(r.Text, said)) {
			flags |= flagLeftText
		}
		for _, field := range []string{"reasoning_content", "reasoning", "thinking"} {
			if own, _ := o.Get(field); own != nil && own != "" {
				thought, _ = own.(string)
			}
		}
		if !writes(text, thought) {
			flags |= flagLeftThinking
		}
		calls, _ := o.Get("tool_calls")
		list, _ := calls.([]any)
		for _, c := range list {
			function, _ := c.(*jinja.Object).Get("function")
			if !names(text, function) {
				flags |= flagLeftCalls
			}
		}
	}
	return flags
}

// The marks that reasoning models write before and after their thoughts.
const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// thoughtIn divides an answer into its thoughts and what it says then.
func thoughtIn(answer string) (thought, said string) {
	before, after, found := strings.Cut(answer, thinkClose)
	if !found {
		return "", answer
	}
	return strings.Replace(before, thinkOpen, "", 1), after
}

// names tells whether the name of function occurs in text.
func names(text string, function any) bool {
	o, ok := function.(*jinja.Object)
	if !ok {
		return true
	}
	name, _ := o.Get("name")
	s, _ := name.(string)
	return strings.Contains(text, s)
}

// writes tells whether text has the lines of part, in order, either as they are or as JSON
// quotes them.
func writes(text, part string) bool {
	if part = strings.TrimSpace(part); part == "" || strings.Contains(text, part) {
		return true
	}
	for line := range strings.Lines(part) {
		line = strings.TrimSpace(line)
		at, n := strings.Index(text, line), len(line)
		if at < 0 {
			line = quoted(line)
			if at, n = strings.Index(text, line), len(line); at < 0 {
				return false
			}
		}
		text = text[at+n:]
	}
	return true
}

// quoted is a line as it stands inside a JSON string.
func quoted(line string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(line); err != nil {
		return line
	}
	out := strings.TrimSpace(b.String())
	return out[1 : len(out)-1]
}
