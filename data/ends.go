package data

import (
	"slices"
	"strings"
	"unicode"

	"mt/data/jinja"
)

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
