package jinja

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"time"
)

// Render writes the template with vars: messages ([]any of *Object), tools,
// documents, add_generation_prompt, bos_token, enable_thinking, whatever the
// template reads. Values are what DecodeJSON gives, int, float32, []string,
// []*Object and map[string]any (whose keys are sorted). As in Transformers,
// tools, documents (None) and add_generation_prompt (false) are defined where
// vars lacks them, and a message's reasoning is found under the names
// reasoning_content and thinking, whichever it has. vars is not changed.
//
// An error of the template is an *Error; Raised tells a call of raise_exception.
func (t *Template) Render(vars map[string]any) (out *Rendered, err error) {
	r := &run{t: t, now: t.Now, out: &buffer{}, root: &scope{}}
	if r.now == nil {
		r.now = time.Now
	}
	size, err := r.prepare(vars)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.name, err)
	}
	r.maxBytes, r.maxOutput = maxBytes+bytesPerByte*size, maxOutput+bytesPerByte*size
	r.maxSteps = t.steps + stepsPerByte*size
	r.bytes, r.steps = r.maxBytes, r.maxSteps
	defer func() {
		switch p := recover().(type) {
		case nil:
		case stopped:
			out, err = nil, ErrStopped
		case failure:
			e := t.errorAt(r.pos, p.msg)
			e.Raised, e.Limit, e.Message = p.raised, p.limit, r.message()
			out, err = nil, e
		default:
			panic(p)
		}
	}()
	for _, name := range t.late {
		r.root.set(name, missing{})
	}
	rest := max(len(t.body)-1, 0)
	r.exec(t.body[:rest], r.root)
	last := len(r.out.text)
	r.exec(t.body[rest:], r.root)
	return &Rendered{string(r.out.text), r.out.gens, r.out.turns, last}, nil
}

// promptFlag is the variable that asks for the header of an answer to come.
const promptFlag = "add_generation_prompt"

// prepare sets the variables from vars, and gives the number of bytes of text in them.
func (r *run) prepare(vars map[string]any) (size int, err error) {
	r.vars = map[string]any{"tools": nil, "documents": nil, promptFlag: false}
	in := &intake{}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if r.vars[name], err = in.value(vars[name], 0); err != nil {
			return 0, fmt.Errorf("variable %s: %w", name, err)
		}
	}
	v, ok := vars["messages"]
	if !ok {
		return in.size, nil
	}
	list, ok := r.vars["messages"].([]any)
	if !ok {
		return 0, fmt.Errorf("variable messages is a %T, not a list", v)
	}
	list = slices.Clone(list)
	r.messages = make(map[*Object]int, len(list))
	for i, m := range list {
		o, ok := m.(*Object)
		if !ok {
			return 0, fmt.Errorf("variable messages: message %d is a %s, not an object", i, typeName(m))
		}
		if o = withReasoning(o); o == m {
			if _, twice := r.messages[o]; twice {
				o = o.clone() // messages are told apart by their identity
			}
		}
		list[i], r.messages[o] = o, i
		r.noteResults(o)
	}
	r.vars["messages"] = list
	return in.size, nil
}

// noteResults notes the objects in a message's list tool_responses.
func (r *run) noteResults(message *Object) {
	v, _ := message.Get("tool_responses")
	results, _ := v.([]any)
	for _, result := range results {
		if o, ok := result.(*Object); ok {
			if _, known := r.messages[o]; !known {
				r.messages[o] = ToolResult
			}
		}
	}
}

// withReasoning is message with its reasoning under both names that templates read; it is
// message itself where it has no reasoning.
func withReasoning(message *Object) *Object {
	for _, name := range []string{"reasoning_content", "thinking", "reasoning"} {
		v, _ := message.Get(name)
		if v == nil {
			continue
		}
		o := NewObject("thinking", v)
		for i, k := range message.keys {
			h, _ := hashKey(k)
			o.set(h, k, message.vals[i])
		}
		o.Set("reasoning_content", v)
		return o
	}
	return message
}

// intake turns Go values into values of the template, and counts the size of their text.
type intake struct{ size int }

func (in *intake) value(v any, depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested more than %d deep", maxJSONDepth)
	}
	in.size += 8
	switch v := v.(type) {
	case nil, bool, int64, float64, *big.Int:
		return v, nil
	case string:
		in.size += len(v)
		return v, nil
	case int:
		return int64(v), nil
	case int32:
		return int64(v), nil
	case float32:
		return float64(v), nil
	case *Object:
		return in.object(v, depth)
	case []any:
		return list(in, v, depth)
	case []*Object:
		return list(in, v, depth)
	case []string:
		return list(in, v, depth)
	case map[string]any:
		o := &Object{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			o.Set(key, v[key])
		}
		return in.object(o, depth)
	}
	return nil, fmt.Errorf("a value of type %T cannot be used in a template", v)
}

// object is o itself where no value in it needs to be changed, else a changed copy.
func (in *intake) object(o *Object, depth int) (*Object, error) {
	if o == nil {
		return nil, fmt.Errorf("an object is nil")
	}
	out := o
	for i, v := range o.vals {
		if s, ok := o.keys[i].(string); ok {
			in.size += len(s)
		}
		w, err := in.value(v, depth+1)
		if err != nil {
			return nil, fmt.Errorf("key %v: %w", o.keys[i], err)
		}
		if !unchanged(v, w) {
			if out == o {
				out = o.clone()
			}
			out.vals[i] = w
		}
	}
	return out, nil
}

// list is items itself where no item needs to be changed, else a changed copy.
func list[T any](in *intake, items []T, depth int) ([]any, error) {
	out, same := any(items).([]any)
	if !same {
		out = make([]any, len(items))
	}
	for i, v := range items {
		w, err := in.value(v, depth+1)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i, err)
		}
		if same && unchanged(v, w) {
			continue
		}
		if same {
			out, same = slices.Clone(out), false
		}
		out[i] = w
	}
	return out, nil
}

// unchanged tells whether w, which intake made of v, is v as it was.
func unchanged(v, w any) bool {
	if x, ok := v.([]any); ok {
		y := w.([]any)
		return len(x) == 0 || &x[0] == &y[0]
	}
	switch v.(type) {
	case []*Object, []string, map[string]any:
		return false
	}
	return v == w
}
