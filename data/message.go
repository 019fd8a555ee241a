package data

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"mt/jinja"
)

// list appends the messages in field, whose JSON is raw, to v.
func (c *columns) list(v *conversation, field string, raw []byte) error {
	decoded, err := jinja.DecodeJSON(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	messages, ok := decoded.([]any)
	text, _ := decoded.(string)
	switch {
	case strings.HasPrefix(text, "[{'"):
		return fmt.Errorf("%s is %s, a list as Python prints it and not JSON; write the rows as JSONL or Parquet, which keep lists", field, clip(raw))
	case strings.HasPrefix(text, "["):
		return fmt.Errorf("%s is %s, a text that begins like a list in JSON and is none; it may be cut off", field, clip(raw))
	case !ok:
		return fmt.Errorf("%s is %s; it must be a list of messages", field, clip(raw))
	case len(messages) == 0:
		return fmt.Errorf("%s is empty; remove the row", field)
	}
	for i, m := range messages {
		where := fmt.Sprintf("%s[%d]", field, i)
		o, ok := m.(*jinja.Object)
		if !ok {
			return fmt.Errorf("%s is %s; it must be an object with %s and %s", where, clipValue(m), c.Role, c.Content)
		}
		if o, err = c.message(o, where); err != nil {
			return err
		}
		v.messages, v.names = append(v.messages, o), append(v.names, where)
	}
	return nil
}

// message is m with the field names that chat templates use. Fields that are null are left
// out, except for content: in Parquet a field is in all messages or in none.
func (c *columns) message(m *jinja.Object, where string) (*jinja.Object, error) {
	role, err := c.role(m, where)
	if err != nil {
		return nil, err
	}
	if err := checkMarks(m, role, where); err != nil {
		return nil, err
	}
	content, has := m.Get(c.Content)
	if role == functionCall {
		call, err := called(content, where+"."+c.Content)
		if err == nil {
			copyMarks(call, m)
		}
		return call, err
	}
	out := jinja.NewObject("role", role)
	calls, err := callsOf(m, where)
	switch {
	case err != nil:
		return nil, err
	case has:
		if content, err = contentOf(content, where+"."+c.Content); err != nil {
			return nil, err
		}
		if content == nil && (role != "assistant" || calls == nil) {
			return nil, fmt.Errorf("%s.%s is null; it must be a string", where, c.Content)
		}
		out.Set("content", content)
	case calls == nil || role != "assistant":
		return nil, fmt.Errorf("%s has no %s", where, c.Content)
	default: // beside calls, OpenAI's messages leave content out or have null
		out.Set("content", nil)
	}
	for _, k := range m.Keys() {
		if v, _ := m.Get(k); v != nil && k != c.Role && k != c.Content && k != "tool_calls" && k != functionCall {
			out.Set(k, v)
		}
	}
	if calls != nil {
		out.Set("tool_calls", calls)
	}
	return out, nil
}

// role is the message's role by the name that templates use.
func (c *columns) role(m *jinja.Object, where string) (string, error) {
	v, ok := m.Get(c.Role)
	if !ok {
		return "", fmt.Errorf("%s has no %s", where, c.Role)
	}
	name, _ := v.(string)
	role, ok := c.Roles[name]
	if !ok {
		return "", fmt.Errorf("%s.%s is %s; known roles are %s", where, c.Role, clipValue(v), strings.Join(slices.Sorted(maps.Keys(c.Roles)), ", "))
	}
	return role, nil
}

// Types of parts that a content may have. Those of OpenAI's Responses mean the same as text.
var (
	textParts    = []string{"text", "input_text", "output_text"}
	thoughtParts = []string{"thinking", "reasoning"}
)

// contentOf is a message's content as templates take it: a string, or a list of parts. nil
// stays nil. Fields of parts that are null are left out.
func contentOf(v any, where string) (any, error) {
	list, ok := v.([]any)
	if !ok {
		if _, ok := v.(string); ok || v == nil {
			return v, nil
		}
		return nil, fmt.Errorf("%s is %s; it must be a string, or a list of text parts", where, clipValue(v))
	}
	parts := make([]any, len(list))
	for i, part := range list {
		if s, ok := part.(string); ok {
			parts[i] = s
			continue
		}
		o, ok := part.(*jinja.Object)
		if !ok {
			return nil, fmt.Errorf("%s[%d] is %s; it must be a part with type and text", where, i, clipValue(part))
		}
		kind, _ := o.Get("type")
		name, _ := kind.(string)
		if !slices.Contains(textParts, name) && !slices.Contains(thoughtParts, name) {
			return nil, fmt.Errorf("%s[%d].type is %s; mt reads text alone", where, i, clipValue(kind))
		}
		out := jinja.NewObject()
		for _, k := range o.Keys() {
			if v, _ := o.Get(k); v != nil {
				out.Set(k, v)
			}
		}
		if slices.Contains(textParts, name) {
			out.Set("type", "text")
		}
		if key, _ := partText(out); key == "" {
			text, _ := o.Get(name)
			return nil, fmt.Errorf("%s[%d].text is %s; it must be a string", where, i, clipValue(text))
		}
		parts[i] = out
	}
	return parts, nil
}

// partText is the text of a part and the key under which the part has it; both are empty
// where it has none.
func partText(part *jinja.Object) (key, text string) {
	keys := []string{"text"}
	if isThought(part) {
		keys = []string{"thinking", "reasoning", "text"}
	}
	for _, key := range keys {
		v, _ := part.Get(key)
		if text, ok := v.(string); ok {
			return key, text
		}
	}
	return "", ""
}

// isThought tells whether a part of an answer is a thought.
func isThought(part any) bool {
	o, ok := part.(*jinja.Object)
	if !ok {
		return false
	}
	kind, _ := o.Get("type")
	name, _ := kind.(string)
	return slices.Contains(thoughtParts, name)
}

// contentText is the text of a content, and its thoughts where they are parts of it. Between
// parts stands between.
func contentText(content any, between string) (text, thought string) {
	if s, ok := content.(string); ok {
		return s, ""
	}
	list, _ := content.([]any)
	var said, thoughts []string
	for _, part := range list {
		s, _ := part.(string)
		if o, ok := part.(*jinja.Object); ok {
			_, s = partText(o)
		}
		if isThought(part) {
			thoughts = append(thoughts, s)
		} else {
			said = append(said, s)
		}
	}
	return strings.Join(said, between), strings.Join(thoughts, between)
}

// called is an assistant's message that calls functions. content has the calls as JSON: one
// {"name", "arguments"} or a list of them.
func called(content any, where string) (*jinja.Object, error) {
	text, ok := content.(string)
	if !ok {
		return nil, fmt.Errorf("%s is %s; a function call is a string that holds JSON", where, clipValue(content))
	}
	v, err := jinja.DecodeJSON([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s is %s: %w; a function call is JSON with name and arguments", where, clip([]byte(text)), err)
	}
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	calls := make([]any, len(list))
	for i, c := range list {
		call, err := callOf(c, where)
		if err != nil {
			return nil, err
		}
		calls[i] = wrapped(call)
	}
	return jinja.NewObject("role", "assistant", "content", "", "tool_calls", calls), nil
}

// callsOf are the tool_calls of a message, nil where it has none. A function_call, OpenAI's older
// form, is the one call of its message. Beside tool_calls it must say what their one call says.
func callsOf(m *jinja.Object, where string) ([]any, error) {
	v, _ := m.Get("tool_calls")
	if text, ok := v.(string); ok {
		if inside, err := jinja.DecodeJSON([]byte(text)); err == nil {
			v = inside
		}
	}
	if one, _ := m.Get(functionCall); one != nil {
		call, err := callOf(jinja.NewObject("type", "function", "function", one), where+"."+functionCall)
		if err != nil {
			return nil, err
		}
		if list, ok := v.([]any); v == nil || ok && len(list) == 0 {
			return []any{call}, nil
		} else if ok && len(list) == 1 && sameCall(list[0], call) {
			return callsIn(list, where)
		}
		return nil, fmt.Errorf("%s has %s beside tool_calls that say something else, and a message's calls are in one of them: move the call into tool_calls, or remove one of the two", where, functionCall)
	}
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, fmt.Errorf("%s.tool_calls is %s; it must be a list", where, clipValue(v))
	}
	if len(list) == 0 {
		return nil, nil
	}
	return callsIn(list, where)
}

// callsIn are the calls of the list tool_calls.
func callsIn(list []any, where string) ([]any, error) {
	calls := make([]any, len(list))
	for i, c := range list {
		var err error
		if calls[i], err = callOf(c, fmt.Sprintf("%s.tool_calls[%d]", where, i)); err != nil {
			return nil, err
		}
	}
	return calls, nil
}

// sameCall tells whether two calls are of one function with the same arguments, be these an
// object or JSON in a string.
func sameCall(a, b any) bool {
	var plain [2]any
	for i, c := range []any{a, b} {
		o, ok := c.(*jinja.Object)
		if !ok {
			return false
		}
		arguments, _ := innerOf(decodeArguments.call(o)).Get("arguments")
		plain[i] = jinja.NewObject("name", functionOf(o), "arguments", arguments)
	}
	return sameMessage(plain[0], plain[1])
}

// callOf is a call as the row has it, without fields that are null. Arguments in a string
// must be JSON.
func callOf(v any, where string) (*jinja.Object, error) {
	call, ok := v.(*jinja.Object)
	if !ok {
		return nil, fmt.Errorf("%s is %s; a call is an object with name and arguments", where, clipValue(v))
	}
	out := jinja.NewObject()
	inner, result := call, out
	for _, k := range call.Keys() {
		v, _ := call.Get(k)
		if k == "function" {
			where += ".function"
			if inner, ok = v.(*jinja.Object); !ok {
				return nil, fmt.Errorf("%s is %s; it must be an object with name and arguments", where, clipValue(v))
			}
			result = jinja.NewObject()
			v = result
		}
		if v != nil {
			out.Set(k, v)
		}
	}
	if name, _ := inner.Get("name"); name == nil {
		return nil, fmt.Errorf("%s has no name of a function", where)
	}
	for _, k := range inner.Keys() {
		v, _ := inner.Get(k)
		if s, ok := v.(string); ok && k == "arguments" {
			if _, err := jinja.DecodeJSON([]byte(s)); err != nil {
				return nil, fmt.Errorf("%s.arguments is %s, which is no whole JSON (%w); write the arguments out, {} where there are none, or remove the row", where, clipValue(v), err)
			}
		}
		if v != nil && (inner != call || k != "function") {
			result.Set(k, v)
		}
	}
	return out, nil
}

// clipValue quotes a decoded value for an error message, shortened.
func clipValue(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing or null"
	case string:
		return fmt.Sprintf("%q", clip([]byte(v)))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case *jinja.Object:
		return fmt.Sprintf("an object with %q", v.Keys())
	}
	return fmt.Sprint(v)
}
