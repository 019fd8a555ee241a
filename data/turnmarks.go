package data

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mt/data/jinja"
)

// turnMark is a field of a message that says whether the message is trained on.
type turnMark struct {
	field string
	whose string // the program that has it
	skips bool   // true means: not trained on
}

// turnMarks are the fields that other programs have for it; docs/data.md lists them.
var turnMarks = []turnMark{
	{field: "weight", whose: "OpenAI"}, {field: "loss", whose: "ms-swift"}, {field: "loss_scale", whose: "ms-swift"},
	{field: "train", whose: "axolotl"}, {field: "training", whose: "axolotl"}, {field: "loss_mask", whose: "slime"}, {field: "step_loss_mask", whose: "slime"},
	{field: "loss_weight", whose: "LLaMA-Factory v1"}, {field: "trainable", whose: "Tinker"},
	{field: "masked", skips: true, whose: "torchtune"},
}

// partMarks are axolotl's fields that divide a message into parts that are trained on and parts
// that are not.
var partMarks = []string{"train_detail", "training_detail"}

// checkMarks is an error where a message says in a way that mt cannot follow what of it is trained
// on: with a value that is neither yes nor no, of a message that is never trained on, or part by part.
func checkMarks(m *jinja.Object, role, where string) error {
	for _, mark := range turnMarks {
		v, _ := m.Get(mark.field)
		if v == nil {
			continue
		}
		on, known := yesNo(v)
		switch {
		case !known:
			return fmt.Errorf("%s.%s is %s (%s's mark of what is trained on): mt trains on a message or not, so it must be 0 or 1, true or false", where, mark.field, clipValue(v), mark.whose)
		case on && mark.whose == "axolotl" && role != "assistant" && role != functionCall:
			return fmt.Errorf("%s.%s is %s: the message is the %s's, and mt trains on the assistant's alone; set it to false", where, mark.field, clipValue(v), role)
		}
	}
	for _, field := range partMarks {
		if v, _ := m.Get(field); v != nil {
			return fmt.Errorf("%s.%s divides the message into parts, and mt trains on a message as a whole; remove it, or write the parts as turns", where, field)
		}
	}
	return nil
}

// yesNo is what a value says as a yes or a no; known is false where it says neither.
func yesNo(v any) (yes, known bool) {
	switch v := v.(type) {
	case bool:
		return v, true
	case int64:
		return v == 1, v == 0 || v == 1
	case float64:
		return v == 1, v == 0 || v == 1
	case string:
		text := strings.ToLower(strings.TrimSpace(v))
		yes = slices.Contains([]string{"1", "1.0", "true"}, text)
		return yes, yes || slices.Contains([]string{"0", "0.0", "false"}, text)
	}
	return false, false
}

// copyMarks gives a message the marks that another has.
func copyMarks(to, from *jinja.Object) {
	for _, mark := range turnMarks {
		if v, _ := from.Get(mark.field); v != nil {
			to.Set(mark.field, v)
		}
	}
}

// weightless reports whether a message has a mark that it is not to be trained on.
func weightless(m any) bool {
	o := m.(*jinja.Object)
	return slices.ContainsFunc(turnMarks, func(mark turnMark) bool {
		v, _ := o.Get(mark.field)
		on, known := yesNo(v)
		return known && on == mark.skips
	})
}

// notAnswers are fields of a row by which programs mark an answer that a model is not to learn.
// Sources: TRL's KTOTrainer (label), LLaMA-Factory's kto_tag.
var notAnswers = []string{"label", "kto_tag"}

// checkLabel is an error where a row of a chat says that its answer is a bad one.
func checkLabel(fields map[string]json.RawMessage) error {
	for _, name := range notAnswers {
		if string(fields[name]) == "false" {
			return fmt.Errorf("%s is false: the answer is marked as one not to give (unpaired preferences, for KTO), which mt does not train on; remove the row", name)
		}
	}
	return nil
}

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
