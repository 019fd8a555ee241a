package data

import (
	"fmt"
	"slices"
	"strings"

	"mt/jinja"
)

// mute takes turns of weight 0 out of the labels of a rendered conversation, of which
// train_on_prompt supervises everything. Each turn goes with the marker that ends it. answers
// are the assistants' turns. A turn that the template writes outside of its loop is an error.
func (e *encoder) mute(v *conversation, out written, answers []jinja.Turn) error {
	if !e.spec.TrainOnPrompt {
		return nil
	}
	for i, m := range v.messages {
		if !weightless(m) {
			continue
		}
		turns := out.Turns
		if roleOf(m) == "assistant" {
			turns = answers
		}
		turns = slices.DeleteFunc(slices.Clone(turns), func(t jinja.Turn) bool { return t.Message != i })
		for _, t := range turns {
			from, to := e.tokenAt(t.From), e.tokenAt(t.To)
			if from < to && roleOf(m) == "assistant" && !t.Paused && !e.tmpl.Marks() && !e.endsTurn(out.Text[t.From:t.To], e.ids[to-1]) {
				to, _ = e.endBehind(to)
			}
			e.unlearn(from, to)
		}
		content, _ := m.(*jinja.Object).Get("content")
		if text, _ := contentText(content, "\n"); len(turns) == 0 && strings.TrimSpace(text) != "" && writes(out.Text, text) {
			return fmt.Errorf("%s has a mark that it is not to be trained on, and the chat template writes it outside of its loop over messages, so that train_on_prompt cannot leave it out; remove the mark, or train_on_prompt", v.names[i])
		}
	}
	return nil
}

// unlearn takes the tokens [from, to) out of the labels.
func (e *encoder) unlearn(from, to int) {
	for i := from; i < to; i++ {
		e.labs[i] = IgnoreIndex
	}
}
