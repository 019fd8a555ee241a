package data

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"mt/data/jinja"
)

// label sets e.labs, the labels of the tokens e.ids. The template wrote the conversation v as out,
// and e.ids are the tokens of this text. given is v after the repairs that the template needed.
// Only the assistant's turns are supervised (in the loss).
func (e *encoder) label(v, given *conversation, out written) error {
	if err := e.placed(v, out.turns); err != nil {
		return err
	}
	last := 0
	for _, t := range out.turns {
		last = max(last, t.Message)
	}
	e.labs = ignored(e.labs[:0], len(e.ids))
	learned := slices.DeleteFunc(slices.Clone(out.turns), func(t jinja.Turn) bool {
		return t.Message != jinja.NoMessage && (t.Message < v.from || e.spec.MaskHistory && t.Message != last || weightless(v.messages[t.Message]))
	})
	for _, t := range learned {
		e.supervise(0, t.Span)
	}
	if !e.tmpl.Marks() {
		if err := e.superviseEnds(given, learned, out.Text); err != nil {
			return err
		}
	}
	e.whole()
	return e.mute(given, out, out.turns)
}

// supervise takes into the loss those tokens that start within the given span of the text. e.starts has the offsets
// in the text at which the tokens e.ids[first:] start.
func (e *encoder) supervise(first int, span jinja.Span) {
	for i, at := range e.starts {
		if at >= span.From && at < span.To {
			e.labs[first+i] = e.ids[first+i]
		}
	}
}

// whole takes every token into the loss if Spec.TrainOnPrompt is set.
func (e *encoder) whole() {
	if e.spec.TrainOnPrompt {
		copy(e.labs, e.ids)
	}
}

// ignored appends IgnoreIndex, the label outside the loss, n times.
func ignored(dst []int32, n int) []int32 {
	for range n {
		dst = append(dst, IgnoreIndex)
	}
	return dst
}

// placed returns an error if mt cannot tell which message a supervised turn belongs to, although a
// setting or the row excludes some answers from training. A template hides the message if its {%
// generation %} blocks stand outside of a loop over messages.
func (e *encoder) placed(v *conversation, turns []jinja.Turn) error {
	if !slices.ContainsFunc(turns, func(t jinja.Turn) bool { return t.Message == jinja.NoMessage }) {
		return nil
	}
	why := ""
	switch {
	case e.spec.MaskHistory:
		why = "mask_history"
	case v.from > 0:
		why = "a completion"
	case slices.ContainsFunc(v.messages, weightless):
		why = "a turn of weight 0"
	default:
		return nil
	}
	return fmt.Errorf("the chat template's {%% generation %%} blocks stand outside a loop over messages, so it is not known which message each is of, and %s needs that: put them into the loop", why)
}

// answerEnds is the text that a template writes after an answer, as part of the answer's turn: own[0] if the answer
// is the last turn, own[1] if a user turn follows. Both are "" if only the marker (the first special token) of the
// next turn ends the answer. known reports that the template could be tested.
type answerEnds struct {
	known bool
	own   [2]string
}

// ended returns the answerEnds of the template e.tmpl. It finds them by rendering a short conversation, once per
// template.
func (e *encoder) ended() *answerEnds {
	if end := e.ends[e.tmpl]; end != nil {
		return end
	}
	const answer = "answer"
	end := &answerEnds{}
	if e.ends == nil {
		e.ends = map[*jinja.Template]*answerEnds{}
	}
	e.ends[e.tmpl] = end
	v := &conversation{}
	v.add("user", "question")
	v.add("assistant", answer)
	for i := range end.own {
		r, turns, err := e.tmpl.SupervisedSpans(e.variables(v))
		if err != nil || len(turns) != 1 {
			return end
		}
		_, behind, found := strings.Cut(r.Text[turns[0].From:turns[0].To], answer)
		if !found {
			return end
		}
		end.own[i] = strings.TrimSpace(behind)
		v.add("user", "question")
	}
	end.known = true
	return end
}

// endsTurn reports whether text, an assistant's turn as the template wrote it, contains the end of the turn, such as
// <|im_end|>. Otherwise only the next turn's marker ends it. `last` is the turn's last token.
func (e *encoder) endsTurn(text string, last int32) bool {
	end := e.ended()
	written := ""
	for _, own := range end.own {
		if own != "" && strings.HasSuffix(text, own) {
			return true
		}
		written += own
	}
	return !end.known || last == e.around.eos || written != "" && e.special(last)
}

// marker reports whether the token id may begin a turn: it is a special token other than BOS, or it is EOS.
func (e *encoder) marker(id int32) bool {
	return e.tok.IsSpecial(id) && (id != e.around.bos || id == e.around.eos)
}

// superviseEnds takes into the loss the token that ends each answer, if the template ends answers only with the
// marker of the next turn. After the conversation's last message there is no next turn; superviseEnds then appends to
// e.ids the marker that a further message would have. text is the rendered conversation, turns are its answers.
func (e *encoder) superviseEnds(v *conversation, turns []jinja.Turn, text string) error {
	var after int32 = IgnoreIndex
	e.paused = e.paused[:0]
	for _, t := range turns {
		from := e.tokenAt(t.From)
		to := e.tokenAt(t.To)
		switch {
		case from == to:
		case t.Paused:
			if err := e.pausedAt(from, to, t.Alone); err != nil {
				return err
			}
		case !e.endsTurn(text[t.From:t.To], e.ids[to-1]):
			end, last := e.endBehind(to)
			copy(e.labs[to:end], e.ids[to:end])
			if last && t.Message == len(v.messages)-1 {
				if after = e.nextMarker(v); after != IgnoreIndex {
					copy(e.labs[to:], e.ids[to:])
				}
			}
		}
	}
	if after != IgnoreIndex {
		e.ids, e.labs = append(e.ids, after), append(e.labs, after)
	}
	return nil
}

// endBehind looks in e.ids, from position at on, for the marker of the next turn; only white space
// may precede it. It returns the position after the marker, or at if no marker follows. The result
// last reports that the conversation ends there, with only white space after at.
func (e *encoder) endBehind(at int) (end int, last bool) {
	next := at
	for next < len(e.ids) && !e.special(e.ids[next]) && blank(e.tok.Decode(e.ids[next:next+1])) {
		next++
	}
	if next < len(e.ids) && e.marker(e.ids[next]) {
		return next + 1, false
	}
	return at, next == len(e.ids)
}

// tokenAt returns the index of the first token that starts at byte offset at of the text, or later.
func (e *encoder) tokenAt(at int) int {
	i, _ := slices.BinarySearch(e.starts, at)
	return i
}

// pausedAt corrects the labels of an assistant's turn, tokens [from, to), that pauses for other
// messages, such as the results of its tool calls. After the calls, some templates write text that
// leads over to the results. The model must not learn that text, but it must learn the token that
// ends its turn. The text alone is the same turn, rendered as if it were the last message. Tokens
// missing in alone leave the loss. If alone ends with a special token that also follows the turn in
// e.ids, this token enters the loss.
func (e *encoder) pausedAt(from, to int, alone string) error {
	ids, err := e.tok.Encode(nil, []byte(strings.TrimSpace(alone)))
	if err != nil {
		return err
	}
	end := len(ids)
	if end > 0 && e.special(ids[end-1]) {
		end--
	}
	if n := agreeing(e.ids[from:to], ids, equal); n > 0 && n == end {
		for i := from + n; i < to; i++ {
			e.labs[i] = IgnoreIndex
		}
		to = from + n
	}
	if end < len(ids) && to < len(e.ids) && e.ids[to] == ids[end] && e.labs[to] == IgnoreIndex {
		e.labs[to] = ids[end]
		to++
	}
	e.paused = append(e.paused, to)
	return nil
}

// nextMarker returns the special token with which the template would begin a turn after v. It is a tool's turn if the
// last message of v calls a tool, otherwise the user's. IgnoreIndex: there is no such token.
func (e *encoder) nextMarker(v *conversation) int32 {
	next := jinja.NewObject("role", "user", "content", "x")
	calls, _ := v.messages[len(v.messages)-1].(*jinja.Object).Get("tool_calls")
	if list, _ := calls.([]any); len(list) > 0 {
		next = jinja.NewObject("role", "tool", "content", "x")
		call, _ := list[0].(*jinja.Object)
		if id, ok := call.Get("id"); ok {
			next.Set("tool_call_id", id)
		}
		if name := functionOf(call); name != "" {
			next.Set("name", name)
		}
	}
	return e.markerOf(v, next)
}

// markerOf returns the special token that the template writes directly after the last turn of v, when the message
// next follows. This is either an end token that the template writes only between turns, or the token that begins the
// turn of next. IgnoreIndex: there is no such token.
func (e *encoder) markerOf(v *conversation, next *jinja.Object) int32 {
	n := len(v.messages)
	more := v.clone()
	more.messages = append(more.messages, next)
	r, err := e.tmpl.Render(e.variables(more))
	if err != nil {
		return IgnoreIndex
	}
	if id := e.firstMarker(e.addedBy(v, r)); id != IgnoreIndex {
		return id
	}
	at := slices.IndexFunc(r.Turns, func(t jinja.Turn) bool { return t.Message == n })
	follows := func(t jinja.Turn) bool {
		return t.Message == n-1 && t.From <= r.Turns[at].From && strings.TrimSpace(r.Text[min(t.To, r.Turns[at].From):r.Turns[at].From]) == ""
	}
	if at < 0 || !slices.ContainsFunc(r.Turns, follows) {
		return IgnoreIndex
	}
	return e.firstMarker(r.Text[r.Turns[at].From:r.Turns[at].To])
}

// addedBy returns the text that the last turn of a conversation adds. It renders v, the
// conversation without this turn, and subtracts the result from r, the rendering with the turn. It
// returns "" if r does not begin with the rendering of v, or if that rendering has text after v's
// last turn.
func (e *encoder) addedBy(v *conversation, r *jinja.Rendered) string {
	alone, err := e.tmpl.Render(e.variables(v))
	if err != nil {
		return ""
	}
	last := len(v.messages) - 1
	ends := func(t jinja.Turn) bool { return t.Message == last && strings.TrimSpace(alone.Text[t.To:]) == "" }
	added, ok := strings.CutPrefix(r.Text, strings.TrimRightFunc(alone.Text, unicode.IsSpace))
	if !ok || !slices.ContainsFunc(alone.Turns, ends) {
		return ""
	}
	return added
}

// firstMarker returns the first token of text, after white space, if it is a special token that may begin a turn.
// Otherwise it returns IgnoreIndex.
func (e *encoder) firstMarker(text string) int32 {
	if ids, err := e.tok.Encode(nil, []byte(strings.TrimSpace(text))); err == nil && len(ids) > 0 && e.marker(ids[0]) {
		return ids[0]
	}
	return IgnoreIndex
}

// openEnd returns flagOpenEnd if a supervised turn does not end with a special token. The model then does not learn
// where to stop. It adds flagMissingEOS if there is no special token before the turn's trailing white space either.
// Many templates end a turn with a special token and a line break, and supervise both.
func (e *encoder) openEnd() (flags uint64) {
	if e.spec.TrainOnPrompt { // all is one supervised turn, which may end with one white space token
		n := len(e.ids)
		if !e.tok.IsSpecial(e.ids[n-1]) && !e.tok.IsSpecial(e.ids[n-2]) {
			flags = flagOpenEnd | e.endOf(n)
		}
		return flags
	}
	for i, l := range e.labs {
		ends := i+1 == len(e.labs) || e.labs[i+1] == IgnoreIndex
		if l != IgnoreIndex && ends && !e.special(l) && !slices.Contains(e.paused, i+1) {
			flags |= flagOpenEnd | e.endOf(i+1)
		}
	}
	return flags
}

// endOf looks at the supervised tokens directly before position end. It returns 0 if they end with a special token,
// white space after it aside. Otherwise it returns flagMissingEOS.
func (e *encoder) endOf(end int) uint64 {
	for i := end - 1; i >= 0 && e.labs[i] != IgnoreIndex; i-- {
		if e.special(e.ids[i]) {
			return 0
		}
		if !blank(e.tok.Decode(e.ids[i : i+1])) {
			break
		}
	}
	return flagMissingEOS
}

// special reports whether the token id may end a turn: it is EOS or another special token.
func (e *encoder) special(id int32) bool { return id == e.around.eos || e.tok.IsSpecial(id) }

// blank reports whether text is only white space.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// mute takes turns of weight 0 (marked as not to be trained on), and the markers that end them, out of the loss. Only
// train_on_prompt, which takes all tokens into the loss, needs this. answers are the assistant's turns. If the
// template writes such a turn outside of its loop over messages, the turn cannot be found, and mute returns an error.
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

// unlearn takes the tokens [from, to) out of the loss.
func (e *encoder) unlearn(from, to int) {
	for i := from; i < to; i++ {
		e.labs[i] = IgnoreIndex
	}
}
