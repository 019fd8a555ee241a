package data

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"mt/data/jinja"
)

// repair is a set of changes that give a conversation another form, for a chat template that does not accept the form
// of the row. Each bit is one change.
type repair uint8

const (
	textForNull     repair = 1 << iota // null content becomes empty text
	joinParts                          // parts of a content become one text
	decodeArguments                    // call arguments that are JSON in a string become objects
	encodeArguments                    // call arguments that are objects become JSON in a string
	wrapFunctions                      // functions are wrapped as tools and calls with the type function
	splitThoughts                      // parts of a content that are thoughts move to reasoning_content
	textAsParts                        // texts become a list of one part
)

// repairFlags maps a repair to the document flag that counts the documents it was applied to.
var repairFlags = map[repair]uint64{
	joinParts: flagJoined, decodeArguments: flagDecoded, encodeArguments: flagEncoded,
	wrapFunctions: flagReshaped, splitThoughts: flagReshaped, textAsParts: flagReshaped,
}

// flags returns the document flags of all repairs in the set r.
func (r repair) flags() (flags uint64) {
	for one, flag := range repairFlags {
		if r&one != 0 {
			flags |= flag
		}
	}
	return flags
}

// repairs returns the set of all repairs that would change v. textAsParts, which would change any text, is left out.
func (v *conversation) repairs() (all repair) {
	for _, t := range v.tools {
		if needsWrap(t) {
			all |= wrapFunctions
		}
	}
	for _, m := range v.messages {
		o := m.(*jinja.Object)
		switch content, _ := o.Get("content"); content := content.(type) {
		case nil:
			all |= textForNull
		case []any:
			all |= joinParts
			if slices.ContainsFunc(content, isThought) {
				all |= splitThoughts
			}
		}
		calls, _ := o.Get("tool_calls")
		list, _ := calls.([]any)
		for _, c := range list {
			if needsWrap(c) {
				all |= wrapFunctions
			}
			switch arguments, _ := innerOf(c.(*jinja.Object)).Get("arguments"); arguments.(type) {
			case string:
				all |= decodeArguments
			case *jinja.Object:
				all |= encodeArguments
			}
		}
	}
	return all
}

// needsWrap reports whether v, a tool or a call, is a bare function or lacks a type. Such a v changes under the
// repair wrapFunctions.
func needsWrap(v any) bool {
	o, _ := v.(*jinja.Object)
	_, has := o.Get("function")
	_, typed := o.Get("type")
	return !has || !typed
}

// innerOf returns the function object inside a tool or call; o itself if o is a bare function.
func innerOf(o *jinja.Object) *jinja.Object {
	if f, ok := o.Get("function"); ok {
		if inner, ok := f.(*jinja.Object); ok {
			return inner
		}
	}
	return o
}

// functionOf returns the name of a tool's or call's function.
func functionOf(o *jinja.Object) string {
	v, _ := innerOf(o).Get("name")
	name, _ := v.(string)
	return name
}

// wrapped returns o, a bare function, as a tool or call: {"type": "function", "function": o}. The other fields of a
// call, such as its id, stay beside the function.
func wrapped(o *jinja.Object) *jinja.Object {
	out := jinja.NewObject("type", "function")
	if _, ok := o.Get("function"); !ok {
		out.Set("function", o)
		return out
	}
	for _, k := range o.Keys() {
		v, _ := o.Get(k)
		out.Set(k, v)
	}
	return out
}

// with returns a copy of o with this value under key.
func with(o *jinja.Object, key string, value any) *jinja.Object {
	out := jinja.NewObject()
	for _, k := range o.Keys() {
		v, _ := o.Get(k)
		out.Set(k, v)
	}
	out.Set(key, value)
	return out
}

// repaired returns v with the repairs r applied: v itself if there are none, otherwise a copy.
func (v *conversation) repaired(r repair) *conversation {
	if r == 0 {
		return v
	}
	out := *v
	if r&wrapFunctions != 0 && v.tools != nil {
		out.tools = make([]any, len(v.tools))
		for i, t := range v.tools {
			out.tools[i] = wrapped(t.(*jinja.Object))
		}
	}
	out.messages = make([]any, len(v.messages))
	for i, m := range v.messages {
		o := m.(*jinja.Object)
		if content, changed := r.content(o); changed {
			if _, thought := contentText(content, ""); r&splitThoughts != 0 && thought != "" {
				content = slices.DeleteFunc(slices.Clone(content.([]any)), isThought)
				if r&joinParts != 0 {
					content, _ = contentText(content, "")
				}
				o = with(o, "reasoning_content", thought)
			}
			o = with(o, "content", content)
		}
		if calls, _ := o.Get("tool_calls"); calls != nil && r&(wrapFunctions|decodeArguments|encodeArguments) != 0 {
			list := slices.Clone(calls.([]any))
			for k, c := range list {
				list[k] = r.call(c.(*jinja.Object))
			}
			o = with(o, "tool_calls", list)
		}
		out.messages[i] = o
	}
	return &out
}

// content returns the content of a message after the repairs r, without thoughts that splitThoughts moves elsewhere.
// changed reports whether it differs from the message's own content.
func (r repair) content(message *jinja.Object) (content any, changed bool) {
	content, _ = message.Get("content")
	switch c := content.(type) {
	case nil:
		return "", r&textForNull != 0
	case string:
		return []any{jinja.NewObject("type", "text", "text", c)}, r&textAsParts != 0
	case []any:
		if _, thought := contentText(c, ""); thought != "" {
			return content, r&splitThoughts != 0
		}
		text, _ := contentText(c, "")
		return text, r&joinParts != 0
	}
	return content, false
}

// call returns a copy of call with the repairs r applied: its arguments decoded or encoded, and a
// bare function wrapped.
func (r repair) call(call *jinja.Object) *jinja.Object {
	inner := innerOf(call)
	changed := inner
	switch arguments, _ := inner.Get("arguments"); arguments := arguments.(type) {
	case string:
		if opened, err := jinja.DecodeJSON([]byte(arguments)); err == nil && r&decodeArguments != 0 {
			changed = with(inner, "arguments", opened)
		}
	case *jinja.Object:
		if text, err := jinja.EncodeJSON(arguments); err == nil && r&encodeArguments != 0 {
			changed = with(inner, "arguments", text)
		}
	}
	if inner == call {
		call = changed
	} else if changed != inner {
		call = with(call, "function", changed)
	}
	if r&wrapFunctions != 0 {
		call = wrapped(call)
	}
	return call
}

// Characters before and after the number of a probe, a placeholder in a test rendering. No ordinary
// text contains them. Python escapes them when it prints a list or dict, so a probe that is printed
// in this way counts as missing.
const (
	probeOpen  = "\ue000"
	probeClose = "\ue001"
)

// probe is a placeholder for a part of a message's content or for a call's arguments. To test a
// template, mt renders a conversation with probes. If a probe is missing in the text, the template
// drops the part that the probe stands for.
type probe struct {
	text      string // text of a part, or key of the arguments
	arguments bool
	asText    bool // the arguments are JSON in a string
}

// json returns the JSON object that stands in for call arguments. Its key is the probe's text.
func (p probe) json() string { return fmt.Sprintf(`{"%s": "%s"}`, p.text, probeClose) }

// written reports whether the template wrote the probe in a usable form. text is the result of rendering the probes
// with the repairs r applied.
func (p probe) written(text string, r repair) bool {
	if p.arguments && (p.asText && r&decodeArguments == 0 || !p.asText && r&encodeArguments != 0) {
		return strings.Contains(text, p.json())
	}
	return strings.Contains(text, p.text)
}

// probed returns a copy of v with probes in place of call arguments and parts of contents, and the list of these
// probes.
func (v *conversation) probed() (*conversation, []probe) {
	var all []probe
	next := func(p probe) probe {
		p.text = fmt.Sprint(probeOpen, len(all), probeClose)
		all = append(all, p)
		return p
	}
	out := *v
	out.messages = slices.Clone(v.messages)
	for i, m := range v.messages {
		o := m.(*jinja.Object)
		content, _ := o.Get("content")
		if list, ok := content.([]any); ok {
			list = slices.Clone(list)
			for k, part := range list {
				text := next(probe{}).text
				list[k] = text
				if p, ok := part.(*jinja.Object); ok {
					key, _ := partText(p)
					list[k] = with(p, key, text)
				}
			}
			o = with(o, "content", list)
		}
		calls, _ := o.Get("tool_calls")
		if list, _ := calls.([]any); list != nil {
			list = slices.Clone(list)
			for k, c := range list {
				list[k] = probedCall(c.(*jinja.Object), next)
			}
			o = with(o, "tool_calls", list)
		}
		out.messages[i] = o
	}
	return &out, all
}

// probedCall returns a copy of call with a probe in place of its arguments. next registers a probe and returns it
// with its text set.
func probedCall(call *jinja.Object, next func(probe) probe) *jinja.Object {
	inner := innerOf(call)
	changed := inner
	switch arguments, _ := inner.Get("arguments"); arguments.(type) {
	case string:
		changed = with(inner, "arguments", next(probe{arguments: true, asText: true}).json())
	case *jinja.Object:
		changed = with(inner, "arguments", jinja.NewObject(next(probe{arguments: true}).text, probeClose))
	}
	if inner == call {
		return changed
	}
	return with(call, "function", changed)
}

// unwritten renders v with the repairs r applied, and returns how much is lost: the call arguments, parts of contents
// and function names that the template drops, and the nulls that it writes. For the count, it renders a copy of v
// with probes in place of arguments and parts.
func (e *encoder) unwritten(v *conversation, r repair) (n int, err error) {
	probed, probes := v.probed()
	probed = probed.repaired(r)
	out, err := e.tmpl.Render(e.variables(probed))
	if err != nil {
		return 0, err
	}
	for _, p := range probes {
		if !p.written(out.Text, r) {
			n++
		}
	}
	return n + missingNames(probed, out) + nulls(out.Text), nil
}

// choose returns the smallest subset of the repairs all with which the template accepts v and drops nothing. If there
// is none, it returns the subset with the fewest losses (see unwritten). If the template fails with every subset,
// choose returns the error of the attempt that got to the latest message, and that attempt's repairs.
func (e *encoder) choose(v *conversation, all repair) (best repair, err error) {
	var sets []repair
	for r := range all + 1 {
		if r&^all == 0 && r&(decodeArguments|encodeArguments) != decodeArguments|encodeArguments {
			sets = append(sets, r)
		}
	}
	slices.SortStableFunc(sets, func(a, b repair) int {
		return cmp.Compare(bits.OnesCount8(uint8(a)), bits.OnesCount8(uint8(b)))
	})
	least, furthest := -1, jinja.ToolResult
	var failed error
	var reached repair
	for _, r := range sets {
		n, err := e.unwritten(v, r)
		at := jinja.NoMessage
		if t, ok := errors.AsType[*jinja.Error](err); ok {
			at = t.Message
		}
		switch {
		case endsRepairs(err):
			return 0, err
		case err != nil && at > furthest:
			failed, reached, furthest = err, r, at
		case err != nil:
		case n == 0:
			return r, nil
		case least < 0 || n < least:
			best, least = r, n
		}
	}
	if least < 0 {
		return reached, failed
	}
	return best, nil
}

// endsRepairs reports whether err makes it pointless to try other repairs. Either the reading was stopped, or the
// template exceeded a limit: other repairs would not change that, and each attempt takes seconds.
func endsRepairs(err error) bool {
	t, ok := errors.AsType[*jinja.Error](err)
	return errors.Is(err, jinja.ErrStopped) || ok && t.Limit
}

// writeParts does the same as writeAny, but passes each text as a list of one part, since some
// templates accept content only in this form. The possible repairs are all. An earlier attempt with
// plain texts lost what the flags left say; failed reports that it failed. The last result is true
// only if writeParts succeeds where that attempt failed, or loses less.
func (e *encoder) writeParts(v *conversation, all repair, left uint64, failed bool, write func(*conversation) (written, error)) (written, *conversation, bool) {
	if !strings.Contains(e.tmpl.Source(), "text") {
		return written{}, nil, false
	}
	parts := v.repaired(all & textForNull).repaired(textAsParts)
	chosen := repair(0)
	if all &^= joinParts | textForNull; all != 0 {
		var err error
		if chosen, err = e.choose(parts, all); err != nil {
			return written{}, nil, false
		}
	}
	probed, probes := parts.probed()
	r, err := e.tmpl.Render(e.variables(probed.repaired(chosen)))
	if err != nil || slices.ContainsFunc(probes, func(p probe) bool { return !p.written(r.Text, chosen) }) {
		return written{}, nil, false
	}
	given := parts.repaired(chosen)
	out, err := write(given)
	if err != nil || !failed && (out.left&flagLeftText != 0 || out.left&^left != 0) {
		return written{}, nil, false
	}
	out.left |= (chosen | textAsParts).flags()
	return out, given, true
}

// nulls returns how many nulls a template writes: Python's None, and JSON's null outside of JSON. They show that a
// missing field was printed. A null inside JSON is not counted, since it comes from the row.
func nulls(text string) int {
	n := strings.Count(text, "None")
	for before, rest, found := strings.Cut(text, "null"); found; before, rest, found = strings.Cut(rest, "null") {
		before = strings.TrimRight(before, " \n")
		if inJSON := func(end string) bool { return strings.HasSuffix(before, end) }; !slices.ContainsFunc([]string{`":`, ",", "["}, inJSON) {
			n++
		}
	}
	return n
}
