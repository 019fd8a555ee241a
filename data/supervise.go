package data

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"mt/data/jinja"
)

// label sets e.labs to the labels of a conversation that the template wrote as out and whose text e.ids
// encodes. given is v with the changes that the template needed.
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

// supervise gives those tokens their own ids as labels that start within span of the text.
// e.starts say where the tokens from number first on start.
func (e *encoder) supervise(first int, span jinja.Span) {
	for i, at := range e.starts {
		if at >= span.From && at < span.To {
			e.labs[first+i] = e.ids[first+i]
		}
	}
}

// whole supervises every token where Spec.TrainOnPrompt asks for that.
func (e *encoder) whole() {
	if e.spec.TrainOnPrompt {
		copy(e.labs, e.ids)
	}
}

// ignored appends n labels that do not count.
func ignored(dst []int32, n int) []int32 {
	for range n {
		dst = append(dst, IgnoreIndex)
	}
	return dst
}

// placed is an error where it matters to which message a mark of the template belongs, and
// that is not known.
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

// answerEnds is what a chat template writes behind the text of an answer, in the answer's own
// turn: with a turn behind the answer, and without. Both are empty where the turn ends with
// the marker of the next one.
type answerEnds struct {
	known bool
	own   [2]string
}

// ended finds out how the template ends answers, once for each template.
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

// endsTurn tells whether the text of a turn, whose last token is last, has the end of the
// turn in it.
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

// marker tells whether id can be the marker with which a turn begins.
func (e *encoder) marker(id int32) bool {
	return e.tok.IsSpecial(id) && (id != e.around.bos || id == e.around.eos)
}

// superviseEnds supervises the token that ends each of the turns, where the template writes
// it as the marker of the next turn. Behind the last message the marker is what the template
// writes where there is one message more; it is appended to e.ids.
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

// endBehind returns the place behind the marker that follows place at, white space between, or
// at where none does. last says that only white space follows.
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

// tokenAt is the first token that starts at byte at of the text or behind it.
func (e *encoder) tokenAt(at int) int {
	i, _ := slices.BinarySearch(e.starts, at)
	return i
}

// pausedAt corrects the labels of the tokens [from, to), which others' text follows. alone is
// what the template writes for the message where nothing follows it: the special token at its
// end is learned where it also follows in the text; what stands only in the text is not.
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

// nextMarker is the special token with which the template begins a turn behind the last of
// v: a tool's where that message calls one, else the user's. It is IgnoreIndex where there
// is none.
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

// markerOf is the special token that the template writes directly behind the last turn of v
// where the turn next follows: an end that the last turn of a text lacks, or the token with
// which next begins. It is IgnoreIndex where there is none.
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

// addedBy is what r, a rendering of v with one turn more, has behind the text that the template
// writes for v alone. It is "" where r does not begin with that text, or the text does not end
// with the last turn of v.
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

// firstMarker is the token with which text begins, white space aside, where that token can be a
// marker; else IgnoreIndex.
func (e *encoder) firstMarker(text string) int32 {
	if ids, err := e.tok.Encode(nil, []byte(strings.TrimSpace(text))); err == nil && len(ids) > 0 && e.marker(ids[0]) {
		return ids[0]
	}
	return IgnoreIndex
}

// openEnd is flagOpenEnd where a supervised turn does not end with a special token, together
// with flagMissingEOS where none comes before the white space at its end either. Many
// templates end a turn with a special token and a line break, and supervise both.
func (e *encoder) openEnd() (flags uint64) {
	if e.spec.TrainOnPrompt { // everything is one supervised turn, which may end with one token of white space
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

// endOf is flagMissingEOS where the supervised tokens before place end do not end with a
// special token, nor with one and white space after it. Else it is 0.
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

// special tells whether id is a token that a turn may end with.
func (e *encoder) special(id int32) bool { return id == e.around.eos || e.tok.IsSpecial(id) }

// blank tells whether text is nothing but white space.
func blank(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

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
