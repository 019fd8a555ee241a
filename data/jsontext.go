package data

import (
	"bytes"
	"encoding/json"
)

// rowFields reads the fields of a row. A text in JSON that stands where a list is due is read as
// that list: so lists are kept where columns have fixed types, and in tables. lists says which fields
// may be lists, as Spec.lists does.
func rowFields(row []byte, lists func(name string, value []byte) bool) (map[string]json.RawMessage, error) {
	fields, err := fieldsOf(row)
	if err != nil {
		return nil, err
	}
	for name, raw := range fields {
		if list := listIn(raw); list != nil && lists(name, list) {
			fields[name] = list
		}
	}
	return fields, nil
}

// listIn is the list that raw holds as a text in JSON, or whose elements it holds as such texts; nil
// where raw is something else, or has half of a surrogate pair, which the reader of the field refuses.
func listIn(raw json.RawMessage) json.RawMessage {
	if raw[0] == '"' {
		inside := bytes.TrimLeft(raw[1:], " ")
		if inside[0] != '[' || halfSurrogate("", raw) != nil {
			return nil
		}
		text := withoutNaN(bytes.TrimSpace(unquote(nil, raw[1:len(raw)-1])))
		if !json.Valid(text) {
			return nil
		}
		if list := listIn(text); list != nil {
			return list
		}
		return text
	}
	var texts []string
	if start := bytes.TrimLeft(raw[1:], " \t\r\n"); raw[0] != '[' || !bytes.HasPrefix(start, []byte(`"{`)) || halfSurrogate("", raw) != nil || json.Unmarshal(raw, &texts) != nil {
		return nil
	}
	out := []byte{'['}
	for i, text := range texts {
		object := withoutNaN([]byte(text))
		if !json.Valid(object) {
			return nil
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, object...)
	}
	return append(out, ']')
}
