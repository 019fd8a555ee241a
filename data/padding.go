package data

import (
	"encoding/json"
	"maps"
	"slices"
)

// A struct of a Parquet or Arrow file has every field that some row has. A row that lacks a
// field has null there. TRL drops such nulls (remove_none_values), and so does unpad.

// padding drops the nulls of structs.
type padding struct {
	tools map[string]any // the schema of each tool's parameters, by the tool's name
}

// unpad drops the nulls that stand for absent fields in a row of columns with these types. Nulls in
// arguments of a call stay where the tool's schema has null among the values of a parameter. The
// fields of a message itself stay too: whoever reads a message knows which may be null. cols name
// the row's columns.
func unpad(fields map[string]json.RawMessage, types map[string]*colType, cols *columns) {
	p := &padding{}
	toolsField := ""
	if cols != nil {
		toolsField = cols.toolsIn(fields)
	}
	if raw := given(fields[toolsField]); raw != nil && types[toolsField].nests(1) {
		fields[toolsField] = p.strip(nil, raw, types[toolsField], nil, true)
	}
	for name, t := range types {
		raw := given(fields[name])
		if raw == nil || name == toolsField || !t.nests(2) {
			continue
		}
		if p.tools == nil {
			p.tools = parameters(fields[toolsField])
		}
		fields[name] = p.strip(nil, raw, t, nil, false)
	}
}

// nests reports whether t has structs in structs, at least levels of them.
func (t *colType) nests(levels int) bool {
	switch {
	case t == nil:
		return false
	case t.element != nil:
		return t.element.nests(levels)
	case t.fields == nil:
		return false
	case levels == 1:
		return true
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(t.fields)), func(f *colType) bool { return f.nests(levels - 1) })
}

// strip appends raw, a value of type t, without the nulls of its structs. drop says whether those of
// the outermost struct go too. schema describes a value inside arguments of a call; nil: there is none.
func (p *padding) strip(dst, raw []byte, t *colType, schema any, drop bool) []byte {
	switch {
	case t == nil || t.json || len(raw) == 0:
		return append(dst, raw...)
	case t.element != nil && raw[0] == '[':
		dst = append(dst, '[')
		for i, value := range elements(raw) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = p.strip(dst, value, t.element, keyOf(schema, "items"), drop)
		}
		return append(dst, ']')
	case t.fields == nil || raw[0] != '{':
		return append(dst, raw...)
	}
	var called any
	if t.fields["name"] != nil && t.fields["arguments"] != nil {
		called = p.tools[nameIn(raw)]
	}
	dst = append(dst, '{')
	first := true
	for key, value := range members(raw) {
		property := keyOf(keyOf(schema, "properties"), key)
		if drop && string(value) == "null" && !allowsNull(property) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		if key == "arguments" && called != nil {
			property = called
		}
		dst = p.strip(append(quote(dst, key), ':'), value, t.fields[key], property, true)
	}
	return append(dst, '}')
}

// nameIn is the text of the field name of an object; "" where it has none.
func nameIn(raw []byte) string {
	for key, value := range members(raw) {
		if key == "name" && value[0] == '"' {
			return string(unquote(nil, value[1:len(value)-1]))
		}
	}
	return ""
}

// elements are those of a JSON list as the readers of columns write it: with no space between them.
func elements(raw []byte) func(func(int, []byte) bool) {
	return func(yield func(int, []byte) bool) {
		for i, at := 0, 1; raw[at] != ']'; i++ {
			var s jsonScan
			n := s.scan(raw[at:])
			if !yield(i, raw[at:at+n]) {
				return
			}
			if at += n; raw[at] == ',' {
				at++
			}
		}
	}
}

// members are the names and values of a JSON object as the readers of columns write it.
func members(raw []byte) func(func(string, []byte) bool) {
	return func(yield func(string, []byte) bool) {
		for at := 1; raw[at] != '}'; {
			var name, value jsonScan
			n := name.scan(raw[at:])
			key := string(unquote(nil, raw[at+1:at+n-1]))
			at += n + 1
			n = value.scan(raw[at:])
			if !yield(key, raw[at:at+n]) {
				return
			}
			if at += n; raw[at] == ',' {
				at++
			}
		}
	}
}

// parameters are the schemas of the parameters of a row's tools, by the tools' names.
func parameters(raw json.RawMessage) map[string]any {
	out := map[string]any{}
	var tools any
	if raw == nil || json.Unmarshal(raw, &tools) != nil {
		return out
	}
	list, _ := opened(tools).([]any)
	for _, t := range list {
		tool := opened(t)
		if f := keyOf(tool, "function"); f != nil {
			tool = opened(f)
		}
		if name, ok := keyOf(tool, "name").(string); ok {
			out[name] = opened(keyOf(tool, "parameters"))
		}
	}
	return out
}

// opened is v, or where v is a text in JSON what the text says.
func opened(v any) any {
	text, ok := v.(string)
	if !ok {
		return v
	}
	var out any
	if json.Unmarshal([]byte(text), &out) != nil {
		return v
	}
	return out
}

// keyOf is the value of a key of an object; nil where v is no object or lacks the key.
func keyOf(v any, key string) any {
	o, _ := v.(map[string]any)
	return o[key]
}

// allowsNull reports whether a schema names null among its values. Sources: JSON Schema 2020-12;
// "nullable" is OpenAPI's, which Transformers' get_json_schema writes.
func allowsNull(schema any) bool {
	o, ok := schema.(map[string]any)
	if !ok {
		return false
	}
	isNull := func(v any) bool { return v == nil || v == "null" }
	switch kind := o["type"].(type) {
	case string:
		if kind == "null" {
			return true
		}
	case []any:
		if slices.ContainsFunc(kind, isNull) {
			return true
		}
	}
	if constant, has := o["const"]; has && constant == nil {
		return true
	}
	if values, ok := o["enum"].([]any); ok && slices.Contains(values, nil) {
		return true
	}
	for _, key := range []string{"anyOf", "oneOf"} {
		if schemas, ok := o[key].([]any); ok && slices.ContainsFunc(schemas, allowsNull) {
			return true
		}
	}
	return o["nullable"] == true
}
