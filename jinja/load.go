package jinja

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"mt/internal/files"
)

// The names of templates that a model directory may have several of, as in Transformers:
// the one that is used where no other is asked for, the one for rows with tools and the one
// for rows with documents.
const (
	DefaultTemplate   = "default"
	ToolTemplate      = "tool_use"
	DocumentsTemplate = "rag"
)

// defaultFile has the template named default.
const defaultFile = "chat_template.jinja"

// namedFolder has, beside it, further templates, each by its file's name.
const namedFolder = "additional_chat_templates"

// Load reads the chat templates of a model directory: chat_template.jinja and
// additional_chat_templates/NAME.jinja, else chat_template in tokenizer_config.json, which
// is a text or a list of named texts, else chat_template.json, which older processors for
// images have beside the tokenizer. It gives the one named default, which has the others
// (Named); where there are others alone, among them one for tools, it gives one that refuses
// all. It is nil without an error where the directory has none.
func Load(dir string) (*Template, error) {
	path := filepath.Join(dir, defaultFile)
	source, err := files.Read(path, maxFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	texts := map[string]string{}
	where := map[string]string{}
	if err == nil {
		texts[DefaultTemplate], where[DefaultTemplate] = string(source), path
	}
	if err := readNamed(filepath.Join(dir, namedFolder), texts, where); err != nil {
		return nil, err
	}
	for _, name := range []string{"tokenizer_config.json", "chat_template.json"} {
		if _, ok := texts[DefaultTemplate]; ok {
			break
		}
		path := filepath.Join(dir, name)
		found, err := readJSON(path)
		if err != nil {
			return nil, err
		}
		for name, text := range found {
			if _, ok := texts[name]; !ok {
				texts[name], where[name] = text, path+" chat_template"
			}
		}
	}
	return assemble(dir, texts, where)
}

// readNamed reads the templates in a folder.
func readNamed(folder string, texts, where map[string]string) error {
	paths, err := filepath.Glob(filepath.Join(folder, "*.jinja"))
	if err != nil {
		return nil // the folder's name is no pattern, and has no such files
	}
	for _, path := range paths {
		source, err := files.Read(path, maxFile)
		if err != nil {
			return fmt.Errorf("chat template: %w", err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".jinja")
		texts[name], where[name] = string(source), path
	}
	return nil
}

// assemble parses the templates of a directory.
func assemble(dir string, texts, where map[string]string) (*Template, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(texts))
	if _, ok := texts[DefaultTemplate]; !ok {
		why := fmt.Sprintf("it has the templates %q, but none named %q: write the one to use to chat_template.jinja", names, DefaultTemplate)
		if _, ok := texts[ToolTemplate]; !ok {
			return nil, fmt.Errorf("%s: chat_template: %s", strings.TrimSuffix(where[names[0]], " chat_template"), why)
		}
		where[DefaultTemplate] = dir
		texts[DefaultTemplate] = "{% set why = " + pythonString(why) + " %}{{ raise_exception(why) }}"
		names = append(names, DefaultTemplate)
	}
	var out *Template
	named := map[string]*Template{}
	for _, name := range names {
		t, err := Parse(where[name], texts[name])
		if err != nil {
			return nil, err
		}
		if named[name] = t; name == DefaultTemplate {
			out = t
		}
	}
	delete(named, DefaultTemplate)
	out.named = named
	return out, nil
}

// pythonString is s as Python and Jinja write a string.
func pythonString(s string) string {
	var b strings.Builder
	reprString(&b, s, true)
	return b.String()
}

// Named is the template of that name in the directory that t was loaded from; nil where
// there is none.
func (t *Template) Named(name string) *Template { return t.named[name] }

// Files are t, and those with names that it was loaded with, as the files of a model directory that Load reads.
func (t *Template) Files() map[string]string {
	out := map[string]string{defaultFile: t.Source()}
	for name, other := range t.named {
		out[namedFolder+"/"+name+".jinja"] = other.Source()
	}
	return out
}

// IsFile says whether name is that of a file of a model directory with a chat template alone.
func IsFile(name string) bool { return name == defaultFile || path.Dir(name) == namedFolder }

// readJSON reads the templates in the file at path, by name; there are none where it is
// missing.
func readJSON(path string) (map[string]string, error) {
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
	return found, nil
}

// maxFile bounds the memory that reading a file takes.
const maxFile = 64 << 20

// pick are the templates that a configuration holds, by name: a text, a list of objects with
// name and template, or an object of texts.
func pick(v any) (map[string]string, error) {
	out := map[string]string{}
	switch v := v.(type) {
	case nil:
		return nil, nil
	case string:
		return map[string]string{DefaultTemplate: v}, nil
	case *Object:
		for _, name := range v.Keys() {
			source, _ := v.Get(name)
			text, ok := source.(string)
			if !ok {
				return nil, fmt.Errorf("its template %q is a %s, not a string", name, typeName(source))
			}
			out[name] = text
		}
		return out, nil
	case []any:
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
			if _, twice := out[n]; !twice {
				out[n] = s
			}
		}
		return out, nil
	}
	return nil, fmt.Errorf("it is a %s, not a string or a list", typeName(v))
}
