package jinja

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"mt/internal/files"
)

// defaultName is the name of the template that is used where there are several.
const defaultName = "default"

// Load reads the chat template of a model directory: chat_template.jinja, else
// chat_template in tokenizer_config.json, which is a text or a list of named
// texts, of which "default" is taken, else chat_template.json, which older processors
// for images have beside the tokenizer. It is nil without an error where the
// directory has none.
func Load(dir string) (*Template, error) {
	path := filepath.Join(dir, "chat_template.jinja")
	source, err := files.Read(path, maxFile)
	if err == nil {
		return Parse(path, string(source))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		if t, err := loadJSON(filepath.Join(dir, name)); t != nil || err != nil {
			return t, err
		}
	}
	return nil, nil
}

// loadJSON reads the template in the file at path, nil where there is none.
func loadJSON(path string) (*Template, error) {
	text, err := files.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	config, err := DecodeJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	o, ok := config.(*Object)
	if !ok {
		return nil, fmt.Errorf("%s: the file holds no JSON object", path)
	}
	v, _ := o.Get("chat_template")
	found, err := pick(v)
	if err != nil {
		return nil, fmt.Errorf("%s: chat_template: %w", path, err)
	}
	if found == nil {
		return nil, nil
	}
	return Parse(path+" chat_template", *found)
}

// maxFile bounds the memory that reading a file takes.
const maxFile = 64 << 20

// pick is the template among what a configuration holds, nil where it has none.
func pick(v any) (*string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return &v, nil
	case []any:
		var names []string
		for i, item := range v {
			o, _ := item.(*Object)
			if o == nil {
				return nil, fmt.Errorf("item %d is a %s, not an object with name and template", i, typeName(item))
			}
			name, _ := o.Get("name")
			source, _ := o.Get("template")
			n, ok1 := name.(string)
			s, ok2 := source.(string)
			if !ok1 || !ok2 {
				return nil, fmt.Errorf("item %d lacks a name or a template that is a string", i)
			}
			if n == defaultName {
				return &s, nil
			}
			names = append(names, n)
		}
		if len(names) == 0 {
			return nil, nil
		}
		return nil, fmt.Errorf("it has the templates %q, but none named %q: write the one to use to chat_template.jinja", names, defaultName)
	}
	return nil, fmt.Errorf("it is a %s, not a string or a list", typeName(v))
}
