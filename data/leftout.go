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
	if missingNames(v, r) > 0 {
		flags |= flagLeftCalls
	}
	turns := turnTexts(r)
	for i, m := range v.messages {
		o := m.(*jinja.Object)
		answers := roleOf(m) == "assistant"
		text := turns[i]
		if strings.TrimSpace(text) == "" {
			text = r.Text
		}
		content, _ := o.Get("content")
		said, thought := contentText(content, "\n")
		if answers && thought == "" {
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
	}
	return flags
}

// turnTexts are what was written while a loop stood at each message.
func turnTexts(r *jinja.Rendered) map[int]string {
	turns := map[int]string{}
	for _, t := range r.Turns {
		turns[t.Message] += r.Text[t.From:t.To]
	}
	return turns
}

// missingNames counts the tools whose names are not in the text, and the calls whose
// functions' names are not in the turns of their messages.
func missingNames(v *conversation, r *jinja.Rendered) (n int) {
	for _, t := range v.tools {
		if !strings.Contains(r.Text, functionOf(t.(*jinja.Object))) {
			n++
		}
	}
	turns := turnTexts(r)
	for i, m := range v.messages {
		calls, _ := m.(*jinja.Object).Get("tool_calls")
		list, _ := calls.([]any)
		text := turns[i]
		if strings.TrimSpace(text) == "" {
			text = r.Text
		}
		for _, c := range list {
			if !strings.Contains(text, functionOf(c.(*jinja.Object))) {
				n++
			}
		}
	}
	return n
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
